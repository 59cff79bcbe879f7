"""Text in columns, as UCIFastReader reads it."""

import numpy as np
import pytest

from cntkjax import io


def source(folder, text, **options):
    (folder / "data.txt").write_text(text)
    (folder / "labels.txt").write_text("no\nyes\n\n")
    streams = {"x": {"start": 1, "dim": 2},
               "y": {"start": 0, "labelDim": 3, "labelMappingFile": str(folder / "labels.txt")}}
    description = {"type": "UCIFastDeserializer", "file": str(folder / "data.txt"), "input": streams}
    return io.MinibatchSource(description | options, max_sweeps=1, randomize=False)


def rows(source):
    data = source.next_minibatch(10)
    return [data[source.streams[name]].as_sequences() for name in ("x", "y")]


@pytest.mark.parametrize(("text", "options"), [
    ("yes 1.5 2\n\n  no\t-3e-1 4 5\r\nyes 6 7", {}),
    ("yes,1.5,2\nno;-.3;4;5\nyes, 6, 7\n", {"customDelimiter": ",;"}),
    ("yes;1,5;2\nno;-0,3;4;5\nyes;6;7\n", {"customDelimiter": ";", "customDecimalPoint": ","}),
    ("\ufeffyes 1.5 2\nno -0.3 4\nyes 6 7\n", {}),
])
def test_columns_are_numbers_and_labels(tmp_path, text, options):
    x, y = rows(source(tmp_path, text, **options))
    np.testing.assert_array_equal(np.concatenate(x), np.array([[1.5, 2], [-0.3, 4], [6, 7]], np.float32))
    np.testing.assert_array_equal(np.concatenate([each.toarray() for each in y]), np.eye(3)[[1, 0, 1]])


def test_rows_are_shuffled_as_those_of_cntk_s_text_format(tmp_path):
    """A text that was converted, as Microsoft advised, gives the same losses."""
    numbers = [f"{i}" for i in range(500)]
    (tmp_path / "a.txt").write_text("\n".join(numbers))
    (tmp_path / "a.ctf").write_text("\n".join(f"|x {each}" for each in numbers))
    columns = {"type": "UCIFastDeserializer", "file": str(tmp_path / "a.txt"), "input": {"x": {"start": 0, "dim": 1}}}
    text = io.CTFDeserializer(str(tmp_path / "a.ctf"), io.StreamDefs(x=io.StreamDef("x", 1)))
    orders = []
    for description in (columns, text):
        shuffled = io.MinibatchSource(description, max_sweeps=2)
        orders.append(np.concatenate([shuffled.next_minibatch(500)[shuffled.streams.x].asarray() for _ in range(2)]))
    np.testing.assert_array_equal(*orders)
    assert (np.diff(orders[0].ravel()) != 1).any()


@pytest.mark.parametrize(("text", "message"), [
    ("yes 1 2\nno 3\n", "data.txt, line 2: there are 2 columns, but start = 1 and dim = 2 need 3; customDelimiter is"),
    ("yes 1 2\n\nno 3 ?\n", "data.txt, line 3, columns 1 to 2: could not convert string to float: '\\?'"),
    ("yes 1 2\nperhaps 3 4\n", "data.txt, line 2: label 'perhaps' is not in .*labels.txt"),
    ("yes,1,2\n", "data.txt, line 1: there are 1 columns"),
    (" \n\n", "data.txt: there are no rows"),
])
def test_rows_that_do_not_fit_are_named(tmp_path, text, message):
    with pytest.raises(RuntimeError, match=message):
        source(tmp_path, text)


@pytest.mark.parametrize("columns", [{"start": -1, "dim": 1}, {"start": 0, "dim": 0}])
def test_columns_that_cannot_be_are_named(tmp_path, columns):
    with pytest.raises(RuntimeError, match=r"data.txt: start = -?\d and dim = \d are no columns; the first one is 0"):
        source(tmp_path, "1 2", input={"x": columns})


def test_files_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(RuntimeError, match=r"labels.txt: there are 2 labels, but labelDim is 1"):
        source(tmp_path, "yes 1 2", input={"y": {"start": 0, "labelDim": 1,
                                                 "labelMappingFile": str(tmp_path / "labels.txt")}})
    with pytest.raises(RuntimeError, match=r"Failed to open input file: .*nowhere.txt"):
        source(tmp_path, "", file=str(tmp_path / "nowhere.txt"))
