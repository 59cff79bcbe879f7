"""Checkpoints of CNTK are read, and written unchanged."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from cntkjax.formats import checkpoint
from cntkjax.formats.checkpoint import Checkpoint, LearnerState, Rates, pack_state, unpack_state
from cntkjax.formats.dictionary import FormatError, SizeT, StoredShape, decode, encode
from cntkjax.graph.build import composite, make_node
from cntkjax.graph.public import classes
from cntkjax.graph.variable import VariableKind
from cntkjax.primitives.structure import Combine

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "checkpoints"


def model():
    return composite(make_node(Combine, [classes.variable(VariableKind.Input, (2,), np.float32, ())], {}))


def written(path, **state):
    """The content of the '.ckp' file of a trainer with one learner."""
    learner = {"samples": 1, "minibatches": 1, "sweeps": 0, "rates": Rates(((1, 0.5),)), "smoothed_gradients": []}
    checkpoint.write(path, checkpoint.encode(model(), Checkpoint([LearnerState(**(learner | state))])))
    return decode(Path(f"{path}.ckp").read_bytes())


def test_files_of_cntk_are_read_and_written_the_same(tmp_path):
    entries = json.loads((GOLDEN / "index.json").read_text())["checkpoints"]
    for entry in entries:
        state = checkpoint.load(GOLDEN / entry["model"])
        assert [s.samples for s in state.learners] == [entry["restore"]["samples_seen"]] * len(state.learners)
        assert state.external == entry["restore"]["external_state"]
        checkpoint.write(tmp_path / "m", checkpoint.encode(model(), state))
        mine, theirs = (decode(p.read_bytes()) for p in (tmp_path / "m.ckp", GOLDEN / entry["checkpoint"]))
        for learner, other in zip(mine["Learners"], theirs["Learners"], strict=True):
            for a, b in zip(learner.pop("smoothed_gradients"), other.pop("smoothed_gradients"), strict=True):
                np.testing.assert_array_equal(a, b)
        del mine[checkpoint.DIGEST]
        assert mine == theirs


@pytest.mark.parametrize(
    ("rates", "schedule"),
    [  # recorded from CNTK 2.7
        (Rates(((1, 0.1),)), {"0": 0.1}),
        (Rates(((1, 0.1),), epoch_size=7), {"7": 0.1}),
        (Rates(((2, 0.1), (3, 0.05), (1, 0.01)), epoch_size=10), {"20": 0.1, "50": 0.05, "60": 0.01}),
        (Rates(((1, 0.3), (1, 0.2))), {"1": 0.3, "2": 0.2}),
        (Rates(((1, 0.4), (1, 0.2)), epoch_size=5, start=3), {"8": 0.4, "13": 0.2}),  # reset after 3 samples
        (Rates(((1, 0.1), (1, 0.2)), epoch_size=1, minibatch_size=1), {"1": 0.1, "2": 0.2}),
    ],
)
def test_schedules_round_trip_as_cntk_writes_them(tmp_path, rates, schedule):
    record = written(tmp_path / "m", rates=rates)["Learners"][0]["learnig_rate_schedule"]
    assert record["schedule"] == schedule
    assert checkpoint.load(tmp_path / "m").learners[0].rates == rates


def test_a_schedule_that_was_reset_continues_with_the_same_rates(tmp_path):
    written(tmp_path / "m", rates=Rates(((1, 0.3), (1, 0.4)), epoch_size=4, start=9))
    loaded = checkpoint.load(tmp_path / "m").learners[0].rates
    assert loaded == Rates(((3, 0.3), (1, 0.4)), epoch_size=4, start=1)  # 0.3 up to sample 13, 0.4 up to 17


@pytest.mark.parametrize(  # shapes of a parameter, and of what CNTK 2.7 keeps for it in adam
    ("shape", "stored"), [((3, 2, 3, 3), (36, 3)), ((3, 1, 1), (6, 1)), ((), (2, 1)), ((2,), (2, 2)), ((5, 4), (10, 4))]
)
def test_several_arrays_of_a_parameter_are_packed_in_one_matrix(shape, stored):
    arrays = [np.random.default_rng(i).normal(size=shape).astype(np.float32) for i in range(2)]
    both = pack_state(arrays, np.float32)
    assert both.shape == stored
    for a, b in zip(unpack_state(both, 2, shape, "W"), arrays, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_single_array_is_stored_unchanged_and_none_as_zero():
    w = np.ones((2, 3), np.float32)
    assert pack_state([w], w.dtype) is w
    assert pack_state([], w.dtype).shape == ()
    assert unpack_state(pack_state([], w.dtype), 0, w.shape, "W") == []


def test_the_state_of_another_kind_of_learner_is_rejected():
    with pytest.raises(RuntimeError, match=r"'W' needs 2 arrays of shape \(2, 3\), but the checkpoint has \(2, 3\)"):
        unpack_state(np.ones((2, 3)), 2, (2, 3), "parameter 'W'")
    with pytest.raises(ValueError, match="another kind of learner"):
        unpack_state(np.ones((2, 3)), 0, (2, 3), "parameter 'W'")


def test_a_distributed_learner_keeps_the_samples_of_all_workers(tmp_path):
    record = written(tmp_path / "m", all_workers_samples=12)["Learners"][0]
    assert (record["localLearners"]["sample_count"], record["totalNumberOfSamplesSeen"]) == (1, 12)
    assert checkpoint.load(tmp_path / "m").learners[0].all_workers_samples == 12


def test_block_momentum_saves_its_smoothed_gradients(tmp_path):
    record = written(tmp_path / "m", all_workers_samples=12, block_gradients=[np.ones(2, np.float32)])["Learners"][0]
    assert list(record) == ["base", "localTotalNumSamplesSeen", "blockLevelSmoothedGradient"]
    assert (record["base"]["totalNumberOfSamplesSeen"], record["localTotalNumSamplesSeen"]) == (12, 1)
    (learner,) = checkpoint.load(tmp_path / "m").learners
    np.testing.assert_array_equal(learner.block_gradients, [[1, 1]])
    assert (learner.samples, learner.all_workers_samples) == (1, 12)


def test_unsupported_state_is_rejected_before_anything_is_written():
    with pytest.raises(TypeError, match=r"ExternalState\.when is of type complex"):
        checkpoint.encode(model(), Checkpoint([], {"when": 1j}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Version": SizeT(2)}, "version 2; the newest that CNTK 2.7 has is 1"),
        ({"Learners": 3}, "Learners is of type int, not list"),
        ({"Learners": [3]}, "learner 0 is 3, not a dictionary"),
        ({"Learners": [{"type": "Learner", "version": SizeT(3)}]}, "learner 0: sample_count is missing"),
        ({"ExternalState": StoredShape((1,))}, "ExternalState is of type Shape"),
    ],
)
def test_damage_is_named(tmp_path, change, reason):
    record = written(tmp_path / "m")
    (tmp_path / "m.ckp").write_bytes(encode(record | change))
    with pytest.raises(FormatError, match=reason):
        checkpoint.load(tmp_path / "m")


@pytest.mark.parametrize(("unit", "minibatch_size"), [(0, 1), (1, 0)])
def test_files_of_earlier_versions_of_cntk_are_read(tmp_path, unit, minibatch_size):
    """CNTK 2.7 continues from them as from its own: rates of a sample or a minibatch, gradients by parameter."""
    record = written(tmp_path / "m")
    del record["Version"], record["DistributedState"]
    (learner,) = record["Learners"]
    del learner["noise_injection_seed"], learner["sweepCount"], learner["smoothed_gradients"]
    learner["version"] = SizeT(1)
    learner |= {"Parameter12": np.float32([3]), "Parameter7": np.float32([1, 2])}
    del learner["learnig_rate_schedule"]["ref_mb_size"]
    learner["learnig_rate_schedule"] |= {"version": SizeT(1), "unit": SizeT(unit)}
    (tmp_path / "m.ckp").write_bytes(encode(record))
    (state,) = checkpoint.load(tmp_path / "m").learners
    assert state.rates == Rates(((1, 0.5),), minibatch_size=minibatch_size)
    assert [array.tolist() for array in state.smoothed_gradients] == [[1, 2], [3]]


@pytest.mark.parametrize("schedule", [{}, {"x": 0.1}, {"3": 1}, {"-3": 0.1}])
def test_a_damaged_schedule_is_named(tmp_path, schedule):
    record = written(tmp_path / "m")
    record["Learners"][0]["learnig_rate_schedule"]["schedule"] = schedule
    (tmp_path / "m.ckp").write_bytes(encode(record))
    with pytest.raises(FormatError, match=r"learning rate.*is no schedule"):
        checkpoint.load(tmp_path / "m")


def test_a_missing_checkpoint_is_a_runtime_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"nowhere.ckp'.*no such file"):
        checkpoint.load(tmp_path / "nowhere")


def files(number):
    """The files of a checkpoint, which is identified by a number."""
    return checkpoint.encode(model(), Checkpoint([], {"number": number}))


class Killed(BaseException):
    """The process dies."""


def killed_at(monkeypatch, call, do):
    """Run an action up to the n-th call that changes a file; returns whether it finished."""
    remaining = [call]

    def dying(real):
        def counted(*arguments, **options):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Killed
            return real(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        for name in "replace", "unlink", "fsync", "chmod", "open":
            patch.setattr(os, name, dying(getattr(os, name)))
        try:
            do()
        except Killed:
            return False
    return True


@pytest.mark.parametrize("again", range(12))
def test_a_killed_writer_leaves_the_last_complete_checkpoint(tmp_path, monkeypatch, again):
    """A writer is killed at each of its calls in turn, and then another one at call `again`."""
    path = tmp_path / "m"
    for call in range(100):
        for old in tmp_path.iterdir():
            old.unlink()
        checkpoint.write(path, files(0))
        ended = killed_at(monkeypatch, call, lambda: checkpoint.write(path, files(1)))
        killed_at(monkeypatch, again, lambda: checkpoint.write(path, files(2)))
        restored = checkpoint.load(path).external["number"]
        assert restored in ((1, 2) if ended else (0, 1, 2))
        checkpoint.write(path, files(3))
        assert checkpoint.load(path).external["number"] == 3
        assert sorted(f.name for f in tmp_path.iterdir()) == ["m", "m.ckp"]
        if ended:
            break
    assert 4 < call < 100


def test_a_first_checkpoint_exists_as_soon_as_its_state_does(tmp_path, monkeypatch):
    path, states = tmp_path / "m", set()
    for call in range(100):
        for old in tmp_path.iterdir():
            old.unlink()
        ended = killed_at(monkeypatch, call, lambda: checkpoint.write(path, files(1)))
        states.add((checkpoint.exists(path), path.exists()))
        if checkpoint.exists(path):
            assert checkpoint.load(path).external["number"] == 1
            assert path.exists()
        if ended:
            break
    assert states == {(False, False), (True, False), (True, True)}


def test_files_of_two_checkpoints_are_not_mixed(tmp_path):
    checkpoint.write(tmp_path / "a", files(1))
    checkpoint.write(tmp_path / "b", checkpoint.encode(model(), Checkpoint([])))
    (tmp_path / "b").replace(tmp_path / "a")
    with pytest.raises(FormatError, match=r"a' is not the one that '.*a\.ckp' was saved with"):
        checkpoint.load(tmp_path / "a")
