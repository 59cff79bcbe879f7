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
    assert main(["diff", str(model), str(tmp_path / "b.model"), "--html", str(page)]) == 1
    assert "+ ReLU" in capsys.readouterr().out and "+ ReLU" in page.read_text()


def test_diff_lists_what_differs_by_the_layers_that_have_it(tmp_path, capsys):
    x = C.input_variable(3, name="x")
    for name, depth in (("a", 1), ("b", 2)):
        layers = [C.layers.Dense(4, name=f"h{i}", activation=C.relu) for i in range(depth)]
        C.layers.Sequential([*layers, C.layers.Dense(2, init=1)])(x).save(str(tmp_path / f"{name}.model"))
    assert main(["diff", str(tmp_path / "a.model"), str(tmp_path / "b.model")]) == 1
    text = capsys.readouterr().out
    assert "  h1:\n    + ReLU\n    + Dense 'h1'\n" in text and "  h0:\n    W in Times: largest deviation" in text


def test_diff_of_a_file_that_is_missing_is_neither_equal_nor_different(model, capsys):
    assert main(["diff", str(model), "nowhere.model"]) == 2
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "reason"), [
    ("out.png", "give the name another extension: .html"),
    ("nowhere/out.html", "there is no folder 'nowhere'"),
])
def test_pages_are_written_as_html_into_folders_that_exist(model, tmp_path, monkeypatch, capsys, out, reason):
    monkeypatch.chdir(tmp_path)
    for status, command in (1, ["view", str(model), out]), (2, ["diff", str(model), str(model), "--html", out]):
        assert main(command) == status
        assert reason in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.model"]
