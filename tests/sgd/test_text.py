"""Texts of configurations: blocks in them, references, and damage."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cntkjax.sgd import SGD, ConfigError
from tests.sgd.tutorial import TUTORIAL

FILE = """
command = trainNetwork : testNetwork  # SGD = { is a comment }
precision = "double"
RunDir = "/out"
modelDir = "$RunDir$/models"
trainNetwork = [
    action = "train"
    network = { f(x) = { y = x  # }
        + 1 } ; text = "SGD = [" }
    SGD = [
        n = 4
    ]
]
"""


def test_a_block_inside_a_larger_file_in_old_brackets_with_references():
    text = FILE.replace("n = 4", "ModelPath = $ModelDir$/net.dnn; minibatchsize = $Size$ * 2 : 1024")
    text = text.replace("RunDir =", "size = 64\nRunDir =")
    block = SGD.parse(text.replace("$Size$ * 2", "$Size$"))
    assert block["modelPath"] == "/out/models/net.dnn"
    assert str(block["minibatchSize"]) == "64:1024"
    assert str(SGD.parse(text)["minibatchSize"]) == "64*2:1024"
    assert block["gradientBits"].at(0) == 64  # 8*sizeof(precision)


def test_a_comment_begins_after_white_space():
    block = SGD.parse("SGD = [ modelPath = a#b # c }\n minibatchSize = 64*2:128 // d\n]")
    assert (block["modelPath"], str(block["minibatchSize"])) == ("a#b", "64*2:128")


def test_the_innermost_definition_is_referred_to():
    text = "N = 1; a = { N = 2 }; train = { N = 3; SGD = { maxEpochs = $N$ } }"
    assert SGD.parse(text)["maxEpochs"] == 3
    assert SGD.parse(text.replace("N = 3; ", ""))["maxEpochs"] == 1


def test_a_file_is_named_and_texts_of_the_command_line_come_first(tmp_path):
    path = tmp_path / "train.cntk"
    path.write_text("dir = x\nSGD = { modelPath = $dir$/m ; maxEpochs = 2 }")
    block = SGD.read(path, {"dir": "/y", "maxEpochs": "4"})
    assert (block["modelPath"], block["maxEpochs"]) == ("/y/m", 4)
    assert "maxEpochs = 4  # the command line, line 1, column 1" in block.describe()
    assert 'modelPath = "/y/m"  # the command line, line 1, column 7' in block.describe()
    assert f"modelPath = \"x/m\"  # {path}, line 1, column 7" in SGD.read(path).describe()
    with pytest.raises(ConfigError, match="the command line, line 1, column 1: SGD has no key .*; did you mean"):
        SGD.read(path, {"maxEpoch": "4"})
    path.write_text("SGD = { maxEpochs = }")
    with pytest.raises(ConfigError, match=f"{path}, line 1, column 9: maxEpochs has no value"):
        SGD.read(path)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "a.cntk").write_bytes(b"SGD = {\xff}")
    with pytest.raises(ConfigError, match=r"a\.cntk is no text in UTF-8: .* in byte 7; save it as UTF-8"):
        SGD.read(tmp_path / "a.cntk")


@settings(max_examples=300)
@given(st.text(alphabet="{}[]();:=*/+-^#\"'$., \n\t1e9abmaxEpochs_\\\0é", max_size=60))
@example("SGD={" * 50)
@example("maxEpochs=" + "-" * 5000 + "1")
@example("maxEpochs=" + "2^" * 3000 + "1")
def test_damaged_texts_are_configuration_errors(text):
    for config in (text, TUTORIAL + text, TUTORIAL.replace("160", text), TUTORIAL.replace("{", text, 1)):
        try:
            SGD.parse(config)
        except ConfigError as error:
            assert "line " in str(error)


@settings(max_examples=100)
@given(st.data())
def test_a_tutorial_without_some_of_its_characters(data):
    begin = data.draw(st.integers(0, len(TUTORIAL)))
    text = TUTORIAL[:begin] + TUTORIAL[begin + data.draw(st.integers(0, 30)) :]
    try:
        SGD.parse(text)
    except ConfigError as error:
        assert "line " in str(error)
