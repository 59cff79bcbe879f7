"""Layered files and includes, and what bad ones say."""

import pytest

from cntkjax.brainscript.writing import new_file
from cntkjax.configuration import load
from cntkjax.sgd import ConfigError
from tests.configuration.reading import read


def test_files_are_layered_and_included_once(tmp_path):
    (tmp_path / "base.cntk").write_text("x = base\ny = base\nz = base")
    (tmp_path / "more.cntk").write_text(f"include={tmp_path}/base.cntk\ny = more\ninclude = base.cntk")
    (tmp_path / "last.cntk").write_text("z = last")
    root = load([f"configFile={tmp_path}/more.cntk+{tmp_path}/last.cntk", "w=1", f"configFile={tmp_path}/last.cntk"])
    assert [root.text(name) for name in "xyzw"] == ["base", "more", "last", "1"]


def test_names_of_included_files_may_have_values_from_before(tmp_path):
    (tmp_path / "inner.cntk").write_text("x = 1")
    (tmp_path / "a.cntk").write_text('File = inner\ninclude = "$Dir$/$File$.cntk"')
    assert load([f"Dir={tmp_path}", f"configFile={tmp_path}/a.cntk"]).text("x") == "1"
    with pytest.raises(ConfigError, match=r"\$Dir\$ is not defined"):
        load([f"configFile={tmp_path}/a.cntk", f"Dir={tmp_path}"])


def test_errors_name_the_includes(tmp_path):
    (tmp_path / "inner.cntk").write_text("x = [")
    with pytest.raises(ConfigError, match=r"inner.cntk, line 1, column 5.*\n.*\n.*\n.*included at .*a.cntk, line 2"):
        read(tmp_path, "\ninclude = inner.cntk")


def test_a_file_without_its_key_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text("x = 1")
    with pytest.raises(ConfigError, match="a.cntk is no key = value; a file is given by configFile=a.cntk"):
        load(["a.cntk"])


def test_a_folder_is_no_name_of_a_file_that_is_written(tmp_path):
    with pytest.raises(ConfigError, match="is a folder, and no file that can be written"):
        new_file(str(tmp_path))
