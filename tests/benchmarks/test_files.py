"""The benchmark of files, on a small model: all sides run, and loading takes about twice the model in memory."""

from benchmarks.files import compare


def test_all_sides_are_measured_and_memory_is_bounded(tmp_path):
    results = compare(32, 1, str(tmp_path))
    assert set(results) == {"read, copy", "load", "write", "save", "peak of load", "peak of save"}
    assert all(results[side] > 0 for side in ("read, copy", "load", "write", "save"))
    assert results["peak of load"] < 3 * 32 and results["peak of save"] < 32
    assert list(tmp_path.iterdir()) == []
