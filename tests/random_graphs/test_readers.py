"""Programs that read random files."""

from . import reader_programs, serve
from .processes import HERE


def test_random_files_are_read_without_accidents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    for seed in range(30):
        program = reader_programs.write(seed)
        shown = serve.run(program.lines())
        assert program == reader_programs.write(seed)
        assert set(shown) == {"minibatches"} and not accidents(shown), f"seed {seed}: {shown}"


def accidents(shown):
    return [v for v in shown.values() if isinstance(v, dict) and v["accident"]]
