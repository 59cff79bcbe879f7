"""Damaged files are rejected with a clear error, or loaded, within 2 seconds and 1 GB: see fuzz.py for many more."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"

sys.path.insert(0, str(HERE))
import test_v1  # noqa: E402

sys.path.remove(str(HERE))


def fuzz(kind, count, files):
    command = [sys.executable, "-W", "ignore", HERE / "fuzz.py", kind, str(count), *files]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["bad"] == []
    assert report["loaded"] and report["refused"] > count / 3
    return report


def small_models(folder):
    x, s = C.input_variable((2, 5, 5), name="x"), C.sequence.input_variable(3, is_sparse=True)
    nets = [
        C.layers.Sequential([
            C.layers.Convolution2D((3, 3), 2, activation=C.relu), C.layers.BatchNormalization(), C.layers.Dense(2)
        ])(x),
        C.sequence.last(C.layers.Recurrence(C.layers.LSTM(2))(s)),
        C.cross_entropy_with_softmax(C.dropout(C.input_variable(3), 0.3), C.constant(np.eye(3, dtype=np.float32)[1])),
    ]
    for i, net in enumerate(nets):
        net.save(folder / f"{i}.model")
    return sorted(folder.iterdir())


def test_models_of_cntk_2(tmp_path):
    golden = [GOLDEN / "models" / f"{name}.model" for name in ("attention_seq2seq", "blocks_nested", "shape_ops")]
    fuzz("model", 200, small_models(tmp_path) + golden)


def test_models_of_cntk_1(tmp_path):
    for i, data in enumerate((test_v1.recurrence(), test_v1.convolution())):
        (tmp_path / f"{i}.dnn").write_bytes(data)
    fuzz("model", 150, sorted(tmp_path.iterdir()))


def test_damaged_checkpoints_are_errors(tmp_path):
    x, y = C.input_variable(2), C.input_variable(1)
    z = C.layers.Dense(1)(x)
    files = []
    for make in (C.sgd, C.adam):
        rate = C.learning_parameter_schedule([0.1, 0.01], epoch_size=10)
        learner = make(z.parameters, rate, **({"momentum": 0.9} if make is C.adam else {}))
        trainer = C.Trainer(z, C.squared_error(z, y), [learner])
        trainer.train_minibatch({x: np.ones((2, 2), np.float32), y: np.ones((2, 1), np.float32)})
        trainer.save_checkpoint(str(tmp_path / make.__name__), {"epoch": 1, "name": "a", "list": [1.5, True]})
        files.append(tmp_path / f"{make.__name__}.ckp")
    fuzz("checkpoint", 150, files)


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62])
def test_sizes_are_checked_before_memory_is_allocated(size):
    from cntkjax.formats.dictionary import FormatError

    data = test_v1.w.network(test_v1.w.source("x", 3), test_v1.w.node("Tanh", "t", "x"))
    number = test_v1.w.uint64(2)
    damaged = data.replace(test_v1.w.text("EVersion") + number, test_v1.w.text("EVersion") + test_v1.w.uint64(size))
    with pytest.raises(FormatError, match="items"):
        C.load_model(damaged)
