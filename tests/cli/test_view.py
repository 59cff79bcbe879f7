"""``cntkjax view`` and ``cntkjax diff``."""

import pytest

import cntk as C
from cntkjax.cli import main


@pytest.fixture
def model(tmp_path):
    f = C.layers.Dense(2, name="scores")(C.input_variable(3, name="x"))
    f.save(str(tmp_path / "a.model"))
    return tmp_path / "a.model"


def test_view_writes_a_page_beside_the_reader(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["view", str(model)]) == 0
    assert capsys.readouterr().out.startswith("a.html: ")
    assert "scores" in (tmp_path / "a.html").read_text()
    assert main(["view", str(model), "other.html"]) == 0 and (tmp_path / "other.html").exists()


def test_view_of_a_damaged_file_is_the_readers_error_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.model").write_bytes(b"\x0a\xff\xff\xff")
    assert main(["view", "bad.model"]) == 1
    assert "bad.model" in capsys.readouterr().err and not (tmp_path / "bad.html").exists()


def test_diff_prints_and_writes_the_differences(model, tmp_path, capsys):
    C.relu(C.layers.Dense(2, name="scores")(C.input_variable(3, name="x"))).save(str(tmp_path / "b.model"))
    page = tmp_path / "d.html"
    assert main(["diff", str(model), str(model)]) == 0
    assert capsys.readouterr().out.startswith("The models are equal")
    assert main(["diff", str(model), str(tmp_path / "b.model"), "--html", str(page)]) == 0
    assert "+ ReLU" in capsys.readouterr().out and "+ ReLU" in page.read_text()
