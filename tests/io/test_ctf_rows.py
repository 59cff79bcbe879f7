"""Rows of text files: what they are parsed to."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.ragged import SparseRows
from cntkjax.io._ctf_rows import canonical

pytestmark = pytest.mark.usefixtures("parser")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), max_size=5), max_size=4))
def test_canonical_rows_have_sorted_unique_indices_and_no_zeros(rows):
    indices, stored = (np.array([e[k] for row in rows for e in row], t) for k, t in ((0, np.int32), (1, np.float32)))
    given_rows = SparseRows(np.cumsum([0] + [len(row) for row in rows]), indices, stored, 4)
    result = canonical(given_rows)
    np.testing.assert_array_equal(result.to_dense(), given_rows.to_dense())
    assert result.values.all()
    for a, b in zip(result.indptr[:-1], result.indptr[1:], strict=True):
        assert (np.diff(result.indices[a:b]) > 0).all()
