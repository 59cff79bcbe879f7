"""Parsing with NumPy has the results of parsing row by row."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.ragged import SparseRows
from cntkjax.io._ctf_rows import Field, RowReporter, parse_row
from cntkjax.io._ctf_vectorized import parse_rows

pytestmark = pytest.mark.usefixtures("parser")


FIELDS = [Field(b"x", 2, False), Field(b"w", 5, True)]
values = st.lists(st.integers(-99, 99).map(lambda i: str(i / 4)), max_size=2).map(" ".join)
entries = st.dictionaries(st.integers(0, 4), st.integers(1, 9)).map(
    lambda d: " ".join(f"{i}:{v}" for i, v in d.items())
)
samples = st.one_of(values.map("|x {}".format), entries.map("|w {}".format), st.just("|# 1 2"), st.just("|other 1:x"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(samples, min_size=1, max_size=4, unique_by=lambda s: s[:3]), min_size=1, max_size=6))
def test_vectorized_parsing_agrees_with_parsing_row_by_row(rows):
    rows = [row if any(s[1] in "xw" for s in row) else [*row, "|x 1 2"] for row in rows]
    lines = [(" ".join(row) + "\n").encode() for row in rows]
    at_once = parse_rows(np.frombuffer(b"".join(lines), np.uint8), FIELDS)
    one_by_one = [parse_row(line, i, FIELDS, RowReporter("", 0, 0, {}, 0)) for i, line in enumerate(lines)]
    for k in range(len(FIELDS)):
        assert at_once[k].rows.tolist() == np.concatenate([row[k].rows for row in one_by_one]).tolist()
        assert at_once[k].too_short.tolist() == np.concatenate([row[k].too_short for row in one_by_one]).tolist()
        data = [row[k].data for row in one_by_one]
        if FIELDS[k].is_sparse:
            assert at_once[k].data.to_dense().tolist() == SparseRows.concatenate(data).to_dense().tolist()
        else:
            assert at_once[k].data.tolist() == np.concatenate(data).tolist()
