"""Training on a GPU from readers, over checkpoints that move between devices, and with two workers."""

import json
import os

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.xla.devices import accelerators
from cntkjax.graph.seed import reset_random_seed
from tests.gpu.devices import RUNS_ALL, assert_alike, check_alike, is_rehearsal, on_cpu, on_other
from tests.gpu.two_workers import WORKERS, trained
from tests.parallel import launching


def tagger():
    """A bi-directional LSTM that tags words, and its inputs."""
    words, tags = C.sequence.input_variable(20, is_sparse=True), C.sequence.input_variable(4, is_sparse=True)
    both = (C.layers.Recurrence(C.layers.LSTM(6)), C.layers.Recurrence(C.layers.LSTM(6), go_backwards=True))
    z = C.layers.Sequential([C.layers.Embedding(8), both, C.splice, C.layers.Dropout(0.0), C.layers.Dense(4)])(words)
    learner = C.adam(z.parameters, 0.02, 0.9)
    return words, tags, z, C.Trainer(z, C.cross_entropy_with_softmax(z, tags), [learner])


@pytest.fixture
def text(tmp_path):
    """A file of sequences of different lengths."""
    random = np.random.default_rng(1)
    lines = [
        f"{i} |w {random.integers(20)}:1 |t {random.integers(4)}:1"
        for i in range(40) for _ in range(random.integers(1, 5))
    ]
    path = tmp_path / "words.ctf"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def source(path):
    streams = C.io.StreamDefs(
        w=C.io.StreamDef("w", shape=20, is_sparse=True), t=C.io.StreamDef("t", shape=4, is_sparse=True)
    )
    return C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=True)


def test_a_reader_feeds_training(text):
    def numbers():
        words, tags, z, trainer = tagger()
        reader, losses = source(text), []
        for _ in range(6):
            minibatch = reader.next_minibatch(30, {words: reader.streams.w, tags: reader.streams.t})
            trainer.train_minibatch(minibatch)
            losses.append(np.float32(trainer.previous_minibatch_loss_average))
        return [*losses, *(p.value for p in z.parameters)]

    check_alike(numbers)


def test_a_checkpoint_moves_between_devices(tmp_path):
    """Two steps on one device and two on the other give what four give, in both orders."""
    random = np.random.default_rng(3)
    data = [random.standard_normal((8, 5)).astype(np.float32) for _ in range(4)]
    labels = np.eye(3, dtype=np.float32)[random.integers(3, size=8)]

    def steps(minibatches, restore=None, save=None):
        reset_random_seed()
        x, y = C.input_variable(5), C.input_variable(3)
        z = C.layers.Sequential([C.layers.Dense(6, C.tanh), C.layers.BatchNormalization(), C.layers.Dense(3)])(x)
        trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [C.adam(z.parameters, 0.05, 0.9)])
        if restore:
            trainer.restore_from_checkpoint(restore)
        for d in minibatches:
            trainer.train_minibatch({x: d, y: labels})
        if save:
            trainer.save_checkpoint(save)
        return [np.asarray(p.value) for p in (*z.parameters, *z.constants)]

    with on_cpu():
        expected = steps(data)
        steps(data[:2], save=str(tmp_path / "from_cpu"))
    with on_other():
        assert_alike(steps(data[2:], restore=str(tmp_path / "from_cpu")), expected)
        steps(data[:2], save=str(tmp_path / "from_other"))
    with on_cpu():
        assert_alike(steps(data[2:], restore=str(tmp_path / "from_other")), expected)


@pytest.mark.skipif(not RUNS_ALL, reason="tests/parallel has workers on CPUs; make test-gpu runs them on GPUs")
@pytest.mark.skipif(len(accelerators()) == 1, reason="NCCL takes a GPU for each worker, and there is one")
def test_two_workers_train_as_one():
    def of_rank(rank):
        gpu = {"JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": str(rank)}
        return {"JAX_PLATFORMS": "cpu"} if is_rehearsal() else gpu

    root = str(launching.HERE.parents[1])
    path = os.pathsep.join([root + "/src", root])
    workers = launching.start(
        "../gpu/two_workers.py", size=WORKERS, environments=[of_rank(r) | {"PYTHONPATH": path} for r in range(WORKERS)]
    )
    printed = launching.outputs(workers)
    assert [worker.returncode for worker in workers] == [0] * WORKERS, printed
    with on_cpu():
        expected = trained(0, 1)
    for output in printed:
        values = json.loads(output.splitlines()[-1])
        assert_alike([np.float32(v) for v in values], expected)
