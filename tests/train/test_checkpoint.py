"""A restored trainer, in this process or another, continues exactly as the one that was saved."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats import checkpoint
from cntkjax.formats.dictionary import decode, encode

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "cntk27"
X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = X @ np.float32([[1, 0], [2, 1], [0, -1]])


def trainer(seed=1, learner=lambda p: C.adam(p, 0.1, 0.9)):
    x, y = C.input_variable(3, name="x"), C.input_variable(2, name="y")
    w = C.parameter((3, 2), init=np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32), name="w")
    z = C.times(x, w) + C.parameter(2, name="b")
    difference = z - y
    loss = C.times(difference * difference, C.constant(np.ones((2, 1), np.float32)))
    learners = learner(z.parameters)
    return C.Trainer(z, (loss, loss), learners), (x, y)


def run(training, steps):
    learning, (x, y) = training
    for i in steps:
        rows = slice(4 * i, 4 * i + 4)
        learning.train_minibatch({x: X[rows], y: Y[rows]}, is_sweep_end=i == 1)
    return [p.value for p in learning.model.parameters]


LEARNERS = [
    lambda p: C.sgd(p, C.learning_parameter_schedule([0.1, 0.05], epoch_size=8)),
    lambda p: C.momentum_sgd(p, 0.1, 0.9),
    lambda p: C.adam(p, 0.1, 0.9),
    lambda p: [C.sgd(p[:1], 0.1), C.fsadagrad(p[1:], 0.1, 0.9)],
]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_restored_trainer_continues_identically(tmp_path, learner):
    first, second = trainer(1, learner), trainer(2, learner)
    run(first, range(2))
    first[0].save_checkpoint(str(tmp_path / "t"), {"epoch": 3, "best": [0.5, "x"]})
    run(second, range(1))
    assert second[0].restore_from_checkpoint(str(tmp_path / "t")) == {"epoch": 3, "best": [0.5, "x"]}
    assert second[0].total_number_of_samples_seen == 8
    for a, b in zip(run(first, range(2, 5)), run(second, range(2, 5)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first[0].previous_minibatch_loss_average == second[0].previous_minibatch_loss_average


CONTINUE = """
import cntk as C, numpy as np
x, y = C.input_variable(3, name="x"), C.input_variable(2, name="y")
w, b = C.parameter((3, 2), name="w"), C.parameter(2, name="b")
z = C.times(x, w) + b
loss = C.times((z - y) * (z - y), C.constant(np.ones((2, 1), np.float32)))
data = np.load("data.npz")
for name, learner in [("momentum", C.momentum_sgd(z.parameters, 0.1, 0.9)), ("adam", C.adam(z.parameters, 0.1, 0.9))]:
    trainer = C.Trainer(z, (loss, loss), [learner])
    trainer.restore_from_checkpoint(name)
    for i in range(2, 5):
        rows = slice(4 * i, 4 * i + 4)
        trainer.train_minibatch({x: data["X"][rows], y: data["Y"][rows]}, is_sweep_end=False)
    np.savez(name + ".npz", *[p.value for p in z.parameters])
"""


def test_cntk_resumes_from_our_checkpoints(tmp_path):
    if not ORACLE.exists():
        pytest.skip("needs the original CNTK 2.7 in ../shared/oracle")
    expected = {}
    for name, learner in ("momentum", LEARNERS[1]), ("adam", LEARNERS[2]):
        training = trainer(1, learner)
        run(training, range(2))
        training[0].save_checkpoint(str(tmp_path / name))
        expected[name] = run(training, range(2, 5))
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    (tmp_path / "resume.py").write_text(CONTINUE)
    done = subprocess.run([ORACLE, "resume.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, values in expected.items():
        with np.load(tmp_path / f"{name}.npz") as npz:
            arrays = dict(npz)
        for value, theirs in zip(values, arrays.values(), strict=True):
            np.testing.assert_allclose(value, theirs, rtol=1e-5, atol=1e-6)


def test_the_model_in_a_checkpoint_has_the_models_outputs_first(tmp_path):
    training = trainer()
    training[0].save_checkpoint(str(tmp_path / "t"))
    loaded = C.load_model(tmp_path / "t")
    assert loaded.outputs[0].shape == (2,)
    assert len(loaded.parameters) == 2


def truncated(folder, stop_after=None):
    """Train on truncated sequences, with dropout in a block; a checkpoint is saved halfway."""
    x = C.sequence.input_variable(2)
    cell = C.layers.LSTM(3, init=C.glorot_uniform(seed=1))
    h = C.layers.Sequential([C.layers.Recurrence(cell), C.layers.Dropout(0.5, seed=7)])(x)
    loss = C.squared_error(C.layers.Dense(2, init=C.glorot_uniform(seed=2))(h), x)
    training = C.Trainer(None, (loss, None), C.fsadagrad(loss.parameters, 0.1, 0.9))
    rng = np.random.default_rng(0)
    steps = [[rng.normal(size=(n, 2)).astype(np.float32) for n in (3, 2)] for _ in range(6)]
    for i, step in enumerate(steps):
        if i == 3 and stop_after is None:
            training.save_checkpoint(folder / "t")
        if i == 3 and stop_after is not None:
            training.restore_from_checkpoint(folder / "t")
        if stop_after is None or i < stop_after or i >= 3:
            training.train_minibatch({x: (step, [i % 4 == 0, i % 4 == 0])})
    return training, [p.value for p in loss.parameters]


@pytest.mark.parametrize("stop_after", [0, 2])
def test_truncated_sequences_and_dropout_continue_identically(tmp_path, stop_after):
    _, straight = truncated(tmp_path)
    _, restored = truncated(tmp_path, stop_after)
    for a, b in zip(straight, restored, strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_carried_state_is_refused(tmp_path):
    training, before = truncated(tmp_path)
    stored = decode((tmp_path / "t.ckp").read_bytes())
    stored["cntkjax"]["slots"] = {"7": {}}
    (tmp_path / "t.ckp").write_bytes(encode(stored))
    with pytest.raises(RuntimeError, match=r"t.ckp: what is kept for the next step is damaged"):
        training.restore_from_checkpoint(tmp_path / "t")
    for a, p in zip(before, training.loss_function.parameters, strict=True):
        np.testing.assert_array_equal(a, p.value)


def test_files_are_written_while_training_continues(tmp_path, monkeypatch):
    training, other = trainer(1), trainer(2)
    gate, write = Event(), checkpoint.write
    monkeypatch.setattr(checkpoint, "write", lambda *arguments: gate.wait() and write(*arguments))
    expected = run(training, range(2))
    training[0].save_checkpoint(tmp_path / "t", {"step": 2}, wait=False)
    run(training, range(2, 4))
    assert not (tmp_path / "t").exists()
    gate.set()
    training[0].wait_for_checkpoint()
    assert other[0].restore_from_checkpoint(tmp_path / "t") == {"step": 2}
    for a, p in zip(expected, other[0].model.parameters, strict=True):
        np.testing.assert_array_equal(a, p.value)


def test_errors_in_the_background_are_raised(tmp_path, monkeypatch):
    def full(path, contents):
        raise OSError(errno.ENOSPC, "disk full", path)

    training, _ = trainer()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", full)
        training.save_checkpoint(tmp_path / "t", wait=False)
    with pytest.raises(OSError, match="disk full"):
        training.wait_for_checkpoint()
    training.wait_for_checkpoint()
    with pytest.raises(TypeError, match="complex"):
        training.save_checkpoint(tmp_path / "t", {"when": 1j}, wait=False)


@pytest.mark.parametrize(("spoil", "says"), [("t", "t' is not the one that"), ("t.ckp", r"t.ckp, byte \d+: ")])
def test_an_error_leaves_the_trainer_unchanged(tmp_path, spoil, says):
    saved, other = trainer(1), trainer(2)
    run(saved, range(2))
    saved[0].save_checkpoint(str(tmp_path / "t"))
    (tmp_path / spoil).write_bytes((tmp_path / spoil).read_bytes()[:-7])
    before = run(other, range(1))
    with pytest.raises(RuntimeError, match=says):
        other[0].restore_from_checkpoint(str(tmp_path / "t"))
    assert other[0].total_number_of_samples_seen == 4
    for a, b in zip(before, other[0].model.parameters, strict=True):
        np.testing.assert_array_equal(a, b.value)


def test_a_number_that_is_shared_here_may_be_several_in_a_checkpoint(tmp_path):
    """CNTK 2.7 gives each use of a number in a double precision graph its own, when it evaluates it."""
    w, path = C.parameter(2, init=1), str(tmp_path / "checkpoint")

    def trainer(first, second):
        x = C.input_variable(2)
        loss = C.reduce_sum((w * first + x) * second)
        return C.Trainer(None, (loss, None), C.sgd([w], 0.1))

    several, shared = trainer(C.constant(2), C.constant(2)), trainer(*[C.constant(2)] * 2)
    several.train_minibatch(np.ones((1, 2), np.float32))
    several.save_checkpoint(path)
    trained, w.value = w.value, np.zeros(2)
    shared.restore_from_checkpoint(path)
    assert w.value.tolist() == trained.tolist()


def test_a_checkpoint_of_another_trainer_is_refused(tmp_path):
    saved, other = trainer(1), trainer(2, lambda p: C.momentum_sgd(p, 0.1, 0.9))
    saved[0].save_checkpoint(str(tmp_path / "t"))
    with pytest.raises(ValueError, match="another kind of learner"):
        other[0].restore_from_checkpoint(str(tmp_path / "t"))
    two = trainer(2, LEARNERS[-1])
    with pytest.raises(ValueError, match="the trainer has 2 learners, but .* is of 1"):
        two[0].restore_from_checkpoint(str(tmp_path / "t"))


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(("name", "reason"), [
    ("", "the name of the file is empty"),
    (".", "this is a folder"),
    ("new/", "this is a folder"),
    ("device", "this is a device or a pipe"),
    ("file/t", "file' is no folder"),
    ("protected", "this file is write-protected"),
    ("state", "state.ckp'"),
    ("locked/t", "locked' cannot be written to"),
])
def test_names_that_cannot_be_written_are_errors_before_anything_is_touched(tmp_path, monkeypatch, name, reason, wait):
    monkeypatch.chdir(tmp_path)
    for folder in ("locked", "state.ckp"):
        (tmp_path / folder).mkdir()
    for file in ("file", "protected"):
        (tmp_path / file).write_text("old")
    (tmp_path / "device").symlink_to("/dev/full")
    allowed, forbidden = os.access, [str(tmp_path / "protected"), str(tmp_path / "locked")]
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in forbidden and allowed(path, mode))  # as root
    before = sorted((path, path.lstat().st_ino, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    training, _ = trainer()
    with pytest.raises(OSError, match=reason) as caught:
        training.save_checkpoint(name, wait=wait)
    assert name.rstrip("/") in str(caught.value)
    assert before == sorted((path, path.lstat().st_ino, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert Path("/dev/full").is_char_device()


SAVER = """
import sys
import numpy as np
import cntkjax as C
x = C.input_variable(100)
w = C.parameter((100, 300), init=0, name="w")
loss = C.reduce_sum(C.times(x, w))
trainer = C.Trainer(None, (loss, None), C.sgd([w], 0.1))
for number in range(int(sys.argv[2]), 10**6, 2):
    w.value = np.full((100, 300), number, np.float32)
    trainer.save_checkpoint(sys.argv[1], {"number": number})
    if number < 2:
        print("begin", flush=True)
"""


@pytest.mark.timeout(60)
def test_a_process_that_restores_while_others_save_gets_one_whole_checkpoint(tmp_path):
    path = tmp_path / "t"
    savers = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", SAVER, path, str(i)], stdout=subprocess.PIPE)
        for i in range(2)
    ]
    x, w = C.input_variable(100), C.parameter((100, 300), init=-1, name="w")
    training = C.Trainer(None, (C.reduce_sum(C.times(x, w)), None), C.sgd([w], 0.1))
    try:
        for saver in savers:
            assert saver.stdout.readline() == b"begin\n"
        numbers = set()
        for _ in range(100):
            number = training.restore_from_checkpoint(path)["number"]
            assert (w.value == number).all()
            numbers.add(number)
    finally:
        for saver in savers:
            assert saver.poll() is None, "a saver failed"
            saver.kill()
            saver.communicate()
    assert len(numbers) > 3 and {number % 2 for number in numbers} == {0, 1}
    number = training.restore_from_checkpoint(path)["number"]
    assert (w.value == number).all()
    training.save_checkpoint(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t", "t.ckp"]
