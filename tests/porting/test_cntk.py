"""A graph as a script of the CNTK API, with layers where the graph has layers."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cntkjax as C
from cntkjax.cli import main
from cntkjax.graph import build
from cntkjax.porting import TARGETS, PortError, port
from cntkjax.primitives.base import BY_NAME

from .packages import passed
from .test_porting import images, operations, two_towers
from .test_sequences import cells, losses, negatives, steps, tagger, upsampled

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
# What CNTK composes of operations that its API does not have, and operations in Python.
REFUSED = {"conv_sequential": "ConvolutionSequenceShape", "sequence_ops_more": "PackedIndex", "user_function": ""}
MODELS = [images, operations, two_towers, tagger, cells, steps, losses, upsampled, negatives]


def source(model):
    return TARGETS["cntk"].write(model, "A model.")[0]


@pytest.mark.timeout(600)
def test_models_compute_the_same(tmp_path):
    for make in MODELS:
        port(make(), "cntk", tmp_path / make.__name__)
    assert passed(tmp_path) == len(MODELS)


@pytest.mark.timeout(600)
def test_golden_models_compute_the_same_or_are_refused(tmp_path):
    paths = sorted(GOLDEN.glob("*.model"))
    for path in paths:
        if path.stem not in REFUSED:
            port(C.load_model(path), "cntk", tmp_path / path.stem)
        elif REFUSED[path.stem]:
            with pytest.raises(PortError, match=REFUSED[path.stem]):
                port(C.load_model(path), "cntk", tmp_path / path.stem)
    assert passed(tmp_path) == len(paths) - len(REFUSED)


def test_layers_and_recurrences_are_written_as_such():
    text = source(C.load_model(GOLDEN / "bilstm_tagger.model"))
    for line in ("C.layers.Embedding(4)(words)", "C.layers.Recurrence(C.layers.LSTM(3), go_backwards=True)(embedding)",
                 'tags = C.layers.Dense(5, name="tags")(splice)'):
        assert line in text
    assert "placeholder" not in text


def test_its_test_has_the_imports_first(tmp_path):
    port(images(), "cntk", tmp_path / "images")
    lines = (tmp_path / "images" / "test_model.py").read_text().splitlines()
    assert lines.index("from .model import load") + 3 == lines.index("def run(*inputs):")


def test_layers_of_double_precision_have_it():
    text = source(C.load_model(GOLDEN / "float64_model.model"))
    assert "    with C.default_options(dtype=np.float64):\n        " in text


def test_weights_that_are_shared_stay_shared():
    tower = C.layers.Dense(3, activation=C.tanh)
    model = tower(C.input_variable(4)) * tower(C.input_variable(4))
    built = {}
    exec(source(model).partition("def load")[0], built)
    new = built["create_model"]()
    assert len(new.parameters) == 2 and [p.shape for p in new.parameters] == [p.shape for p in model.parameters]


def test_a_block_that_is_no_layer_stays_a_block():
    @C.BlockFunction("Scaled", "twice")
    def scaled(x):
        return 2 * x

    built = {}
    exec(source(scaled(C.input_variable(3, name="x"))).partition("def load")[0], built)
    node = built["create_model"]().find_by_name("twice")
    assert node.op_name == "Scaled"
    np.testing.assert_array_equal(node.eval({node.arguments[0]: [[1, 2, 3]]}), [[2, 4, 6]])


def test_the_command_writes_a_package_that_loads(tmp_path, monkeypatch):
    model = C.layers.Dense(2, name="h")(C.input_variable(3))
    model.save(tmp_path / "a.model")
    assert main(["port", str(tmp_path / "a.model"), "--to", "cntk", "-o", str(tmp_path / "ported")]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    from ported import create_model, load  # type: ignore[import-not-found]

    data = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(load().eval(data), model.eval(data), rtol=1e-6)
    assert create_model().h.W.shape == (3, 2)


def test_options_that_files_write_out_or_leave_out_are_those_of_the_api():
    x = C.input_variable((1, 4, 4))
    pooled = build.apply(BY_NAME["Pooling"], [C.convolution(C.parameter((2, 1, 1, 1), init=1), x).output], {
        "poolingType": 0, "poolingWindowShape": (2, 2), "strides": (2, 2), "autoPadding": [False] * 3,
        "lowerPad": (0, 0, 0), "upperPad": (0, 0, 0)})
    gate = build.apply(BY_NAME["Sigmoid"], [pooled.output])
    part = build.apply(BY_NAME["Slice"], [gate.output], {"axis": C.Axis(2), "beginIndex": 0, "endIndex": 1})
    text = source(part)
    assert "C.sigmoid(" in text and "C.slice(" in text


def test_criteria_are_left_out(tmp_path, capsys):
    x, label = C.input_variable(3, name="x"), C.input_variable(2, name="label")
    z = C.layers.Dense(2, name="z")(x)
    criterion = C.reduce_sum(C.cross_entropy_with_softmax(z, label), axis=C.Axis.all_axes(), name="ce")
    C.combine([criterion, z]).save(tmp_path / "model")
    for target in TARGETS:
        assert not main(["port", str(tmp_path / "model"), "--to", target, "-o", str(tmp_path / f"to_{target}")])
        assert "ce" in capsys.readouterr().out
        recorded = load_file(tmp_path / f"to_{target}" / "recorded.safetensors")
        assert [name for name in recorded if name.startswith("input")] == ["input.0"]
