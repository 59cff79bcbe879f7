"""The compiled parser of text files and the one in NumPy agree to the bit, whatever the text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cntkjax.io import _ctf_native, _ctf_vectorized
from cntkjax.io._ctf_rows import Field

pytestmark = pytest.mark.usefixtures("compiled_parser")

FIELDS = [Field(b"x", 3, False), Field(b"w", 50, True), Field(b"xx", 1, False)]
anything = st.binary(max_size=60)
grammar = st.lists(
    st.sampled_from([b"|", b"|x", b"|w", b"|xx ", b"|#", b" ", b"\t", b"\r", b"\n", b":", b"0", b"7", b"49", b"50"])
    | st.sampled_from([b"1.", b".5", b"-", b"+", b"1e5", b"2E-7", b"1e400", b"e", b"-0", b"3:", b"4:1.5", b"0:0 "])
    | st.floats(width=32).map(lambda x: repr(x).encode()) | st.integers().map(lambda i: str(i).encode())
    | st.text("0123456789.e-", min_size=1, max_size=40).map(str.encode),
    max_size=40,
).map(b"".join)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.from_regex(
    r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
rows = st.lists(numbers, max_size=3).map(lambda row: f"|x {' '.join(row)}\n".encode())
sparse_rows = st.lists(st.tuples(st.integers(0, 49), numbers), max_size=4).map(
    lambda row: f"|w {' '.join(f'{i}:{v}' for i, v in row)}\n".encode()
)


def assert_same(text: bytes, pieces: list[slice]) -> None:
    (compiled, malformed), (vectorized, malformed_there) = (
        backend.parse(text, pieces, FIELDS, map) for backend in (_ctf_native, _ctf_vectorized)
    )
    assert malformed == malformed_there
    for a, b in zip(compiled, vectorized, strict=True):
        assert a.rows.tolist() == b.rows.tolist()
        assert a.too_short.tolist() == b.too_short.tolist()
        if isinstance(a.data, np.ndarray):
            assert a.data.tobytes() == b.data.tobytes() and a.data.shape == b.data.shape
        else:
            for name in ("indptr", "indices", "values"):
                assert getattr(a.data, name).tobytes() == getattr(b.data, name).tobytes()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(anything | grammar | rows | sparse_rows, min_size=1, max_size=8).map(b"".join), st.data())
@example(b"|x 1 2 3\n|x 9007199254740993 90071992547409930 1e22\n|x 1e23 -1e-23 0.1e-300\n|x 1e309 1e-400 5.e5", None)
@example(b"|x " + b"1" * 512 + b"\n|x " + b"1" * 513 + b"\n|x 1e" + b"0" * 512 + b"\n|x 1e" + b"0" * 513, None)
@example(b"|w 000000000000000001:1\n|w 0000000000000000001:1\n|w 1:1:1\n|w 5:1 5:2 3:0\n|w", None)
def test_parsers_agree(text, data):
    text += b"\n"
    ends = [i + 1 for i, byte in enumerate(text) if byte == 10]
    chosen = sorted(data.draw(st.sets(st.sampled_from(ends)))) if data else []
    bounds = sorted({0, *chosen, len(text)})
    assert_same(text, [slice(a, b) for a, b in pairwise(bounds)])


def test_a_library_of_another_version_is_not_used(tmp_path):
    assert _ctf_native._load(tmp_path / "missing.so") is None
    (tmp_path / "damaged.so").write_bytes(b"nothing")
    assert _ctf_native._load(tmp_path / "damaged.so") is None
