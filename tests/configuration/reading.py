"""Reading a configuration from its text."""

from cntkjax.configuration import load


def read(tmp_path, text, *arguments):
    path = tmp_path / "a.cntk"
    path.write_text(text)
    return load([f"configFile={path}", *arguments])
