"""`cntkjax train`: a model file is trained with the SGD block of a configuration file."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.cli import main

CONFIG = """
ModelDir = "."
trainNetwork = [
    SGD = [
        modelPath = "$ModelDir$/out.model" ; maxEpochs = 2 ; epochSize = 40
        minibatchSize = 10 ; learningRatesPerSample = 0.02 ; numMBsToShowResult = 2 ; firstMBsToShowResult = 0
    ]
]
"""


@pytest.fixture
def files(tmp_path):
    """A configuration, a model of sparse sequences with its criteria, and data; returns a command."""
    words, tag = C.sequence.input_variable(5, is_sparse=True, name="words"), C.input_variable(2, name="tag")
    h = C.sequence.last(C.layers.Recurrence(C.layers.RNNStep(4))(words))
    z = C.layers.Dense(2)(h)
    criteria = C.cross_entropy_with_softmax(z, tag, name="ce"), C.classification_error(z, tag, name="err")
    C.combine([z, *criteria]).save(tmp_path / "in.model")
    (tmp_path / "train.cntk").write_text(CONFIG)
    rng = np.random.default_rng(0)
    lines = []
    for i in range(40):
        sequence = rng.integers(0, 5, rng.integers(1, 4))
        lines += [f"{i} |words {w}:1" for w in sequence]
        lines[-len(sequence)] += " |tag 1 0" if sequence[-1] < 2 else " |tag 0 1"
    (tmp_path / "d.ctf").write_text("\n".join(lines) + "\n")
    return lambda *more: main([
        "train", str(tmp_path / "train.cntk"), str(tmp_path / "in.model"), "--data", str(tmp_path / "d.ctf"),
        f"ModelDir={tmp_path}", *more,
    ])


def test_a_model_is_trained_and_a_second_call_goes_on(files, tmp_path, capsys):
    assert files("--cv", str(tmp_path / "d.ctf")) == 0
    output = capsys.readouterr().out
    assert " Minibatch[   1-   2]: loss = " in output and "Finished Epoch[2 of 2]: [Training] loss = " in output
    assert f"2 epochs; the model is {tmp_path}/out.model" in output
    before, after = (C.load_model(tmp_path / name) for name in ("in.model", "out.model"))
    assert [v.name for v in after.outputs] == [v.name for v in before.outputs]
    assert any((p.value != q.value).any() for p, q in zip(before.parameters, after.parameters, strict=True))
    assert files("maxEpochs=3") == 0
    assert "Finished Epoch[3 of 3]" in capsys.readouterr().out
    assert files("maxEpochs=2") == 0
    assert "which has 3 epochs: maxEpochs = 2 asks for no more" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "message"), [
    (["maxEpoch=3"], "the command line, line 1, column 1: SGD has no key maxEpoch; did you mean maxEpochs?"),
    (["maxEpochs=x"], "the command line, line 1, column 1: 'x' is no number"),
    (["trainCriterionNodeName=lss"], "trainCriterionNodeName = lss: the model has no node of this name; its nodes are"),
    (["evalCriterionNodeName=er"], "did you mean err?"),
    (["truncated=true"], "truncated = true needs a source that cuts sequences"),
    (["--field", "word=w"], "the model has no input 'word'; use one of: words, tag"),
    (["3"], "'3' is no setting: write key=value"),
])
def test_mistakes_are_one_line(files, capsys, more, message):
    assert files(*more) == 1
    error = capsys.readouterr().err
    assert error.startswith("cntkjax train: ") and message in error and error.count("\n") == 1


def test_a_model_without_criterion(files, tmp_path, capsys):
    x = C.input_variable(2, name="tag")
    C.layers.Dense(2)(x).save(tmp_path / "in.model")
    assert files() == 1
    assert "no node that could be minimized: name one with trainCriterionNodeName" in capsys.readouterr().err


def test_all_metrics_of_a_model_are_printed_and_right(files, tmp_path, capsys):
    model = C.load_model(tmp_path / "in.model")
    z, tag = model.outputs[0], next(v for v in model.arguments if v.name == "tag")
    wrong = C.classification_error(z, C.constant([0, 1]) - tag * 0, name="never_first")
    C.combine([*model.outputs, wrong]).save(tmp_path / "in.model")
    assert files("--cv", str(tmp_path / "d.ctf"), "maxEpochs=1") == 0
    lines = capsys.readouterr().out.splitlines()
    trained = C.load_model(tmp_path / "out.model")
    for name in ("err", "never_first"):
        assert sum(line.startswith(f"{name}: ") for line in lines) == 1
        assert sum(line.startswith(f"Validation {name}: ") for line in lines) == 1
    epoch = next(line for line in lines if line.startswith("Finished Epoch[1 of 1]"))
    first = float(next(line for line in lines if line.startswith("err: ")).split(": ")[1])
    assert f"metric = {first:.2%} * " in epoch
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(tmp_path / "d.ctf"), C.io.StreamDefs(
        words=C.io.StreamDef("words", shape=5, is_sparse=True), tag=C.io.StreamDef("tag", shape=2)
    )), randomize=False, max_sweeps=1)
    inputs = {v: source.streams[v.name] for v in trained.arguments}
    expected = C.eval.Evaluator(trained.outputs[-1]).test_minibatch(source.next_minibatch(1000, input_map=inputs))
    shown = next(line for line in lines if line.startswith("Validation never_first: "))
    assert float(shown.split(": ")[1]) == pytest.approx(expected)
