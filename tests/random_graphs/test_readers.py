"""Programs that read random files."""

import pytest

from . import serve
from .media_programs import images, speech
from .processes import HERE
from .reader_programs import write


@pytest.mark.parametrize("write_program", [write, images, speech])
def test_random_files_are_read_without_accidents(write_program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    for seed in range(30):
        program = write_program(seed)
        shown = serve.run(program.lines())
        assert program == write_program(seed)
        assert set(shown) == {"minibatches"} and not accidents(shown), f"seed {seed}: {shown}"


def accidents(shown):
    return [v for v in shown.values() if isinstance(v, dict) and v["accident"]]
