"""Building the libraries in C."""

import pytest

from cntkjax import _build_native


@pytest.mark.parametrize("command, problem", [("/no/compiler", "no C compiler"), ("false", "returned non-zero")])
def test_without_a_compiler_that_works_nothing_is_built(tmp_path, monkeypatch, command, problem):
    monkeypatch.setenv("CC", command)
    for library in _build_native.LIBRARIES:
        assert problem in _build_native.build(library, tmp_path / library.path.name)
    assert list(tmp_path.iterdir()) == []
