"""Building the compiled parser of text files."""

import pytest

from cntkjax.io import _build_native


@pytest.mark.parametrize("command, problem", [("/no/compiler", "no C compiler"), ("false", "returned non-zero")])
def test_without_a_compiler_that_works_nothing_is_built(tmp_path, monkeypatch, command, problem):
    monkeypatch.setenv("CC", command)
    assert problem in _build_native.build(tmp_path / "libctf.so")
    assert list(tmp_path.iterdir()) == []
