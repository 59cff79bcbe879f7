"""Block momentum with one worker: the trajectories were recorded from CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats import checkpoint, model

HALF = {"block_momentum_as_time_constant": 10, "use_nestrov_momentum": False}


def trajectory(momentum=None, save_after=(), folder=None, steps=9, ends=False, **options):
    """A parameter whose gradient is 2 i in step i, before each step of which two samples are seen.

    With `ends` also after the empty minibatch that ends the data.
    """
    x, w = C.input_variable(1), C.parameter((1, 1), init=1.0)
    loss = C.reduce_sum(C.times(x, w))
    rate = C.learning_parameter_schedule_per_sample(0.5)
    if momentum is None:
        learner = C.sgd([w], rate)
    else:
        learner = C.momentum_sgd([w], rate, C.momentum_schedule_per_sample(momentum), unit_gain=False)
    trainer = C.Trainer(loss, (loss, None), C.block_momentum_distributed_learner(learner, **options))
    values = []
    for i in range(steps):
        assert trainer.train_minibatch({x: np.full((2, 1), i + 1)})
        if i in save_after:
            trainer.save_checkpoint(folder / "t")
        values.append(w.value.item())
    (learner,) = trainer.parameter_learners
    assert trainer.total_number_of_samples_seen == learner.total_number_of_samples_seen == 2 * steps
    if ends:
        assert not trainer.train_minibatch({})
        values.append(w.value.item())
    return values


RECORDED = [
    ({}, [0, -2, -5, -9, -14, -20, -27, -35, -44]),
    ({"block_momentum_as_time_constant": 10},
     [0, -0.65201, -3.65201, -5.61409, -10.61409, -14.99765, -21.99765, -29.5477, -38.5477]),
    (HALF, [0, 0.01096, -2.98904, -2.95977, -7.95977, -8.57759, -15.57759, -17.28853, -26.28853]),
    ({"block_momentum_as_time_constant": 10, "block_learning_rate": 2.0},
     [0, -2.30403, -5.30403, -12.22818, -17.22818, -30.9953, -37.9953, -60.09541, -69.09541]),
    ({"block_size": 5, **HALF}, [0, -2, -1.70713, -5.70713, -10.70713, -9.96066, -16.96066, -24.96066, -25.31882]),
    ({"distributed_after": 4, **HALF},
     [0, -2, -0.97808, -4.97808, -5.27115, -11.27115, -12.43471, -20.43471, -22.84116]),
    ({"momentum": 0.9, **HALF},
     [0, -0.25608, -3.25608, -4.20694, -9.20694, -11.81696, -18.81696, -23.7326, -32.7326]),
    ({"momentum": 0.9, "reset_sgd_momentum_after_aggregation": False, **HALF},
     [0, -0.25608, -5.53218, -5.56513, -17.26678, -18.08459, -37.62205, -40.77248, -69.07101]),
]


@pytest.mark.parametrize(("options", "expected"), RECORDED)
def test_one_worker_matches_cntk(options, expected):
    np.testing.assert_allclose(trajectory(**{"block_size": 4, **options}), expected, atol=2e-5)


@pytest.mark.parametrize(("size", "expected"), [(4, [-26.28853, -26.05187]), (8, [-30.29848, -36.67785])])
def test_the_end_of_the_data_ends_the_block(size, expected):
    np.testing.assert_allclose(trajectory(block_size=size, ends=True, **HALF)[-2:], expected, rtol=1e-6)


def test_a_checkpoint_ends_the_block(tmp_path):
    values = trajectory(save_after=(2,), folder=tmp_path, steps=6, block_size=4, **HALF)
    np.testing.assert_allclose(values[:5], [0, 0.01096, -1.3426, -5.3426, -5.21705], atol=2e-5)


def test_a_restored_trainer_continues_identically(tmp_path):
    def run(begin, end, restore=False):
        x, w = C.input_variable(1), C.parameter((1, 1), init=1.0)
        loss = C.reduce_sum(C.times(x, w))
        learner = C.block_momentum_distributed_learner(C.momentum_sgd([w], 0.1, 0.9), 4, 10)
        trainer = C.Trainer(loss, (loss, None), learner)
        if restore:
            trainer.restore_from_checkpoint(tmp_path / "t")
        for i in range(begin, end):
            trainer.train_minibatch({x: np.full((2, 1), i + 1)})
            if i == 2 and not restore:
                trainer.save_checkpoint(tmp_path / "t")
        return w.value.item()

    assert run(0, 8) == run(3, 8, restore=True)


def test_checkpoints_of_cntk_are_restored(tmp_path):
    def make():
        x, w = C.input_variable(1), C.parameter((1, 1), init=1.0)
        loss = C.reduce_sum(C.times(x, w))
        trainer = C.Trainer(loss, (loss, None), C.block_momentum_distributed_learner(C.sgd([w], 0.1), 4, 10))
        return trainer, lambda i: (trainer.train_minibatch({x: np.full((2, 1), i + 1)}), w.value.item())[1]

    trainer, step = make()
    for i in range(5):
        step(i)
    trainer.save_checkpoint(tmp_path / "t")
    of_cntk = checkpoint.Checkpoint(checkpoint.load(tmp_path / "t").learners)
    checkpoint.write(tmp_path / "t", checkpoint.encode(model.load(tmp_path / "t"), of_cntk))
    other, other_step = make()
    other.restore_from_checkpoint(tmp_path / "t")
    assert other.total_number_of_samples_seen == trainer.total_number_of_samples_seen == 10
    assert [other_step(i) for i in range(5)] == [step(i) for i in range(5)]


def test_custom_checkpoints_start_a_new_block(tmp_path):
    class WithCheckpoint(C.learners.UserLearner):
        def update(self, gradients, count, sweep_end):
            for p, gradient in gradients.items():
                p.value = p.value - 0.5 * np.asarray(gradient)
            return True

        def create_checkpoint(self):
            return {"kept": 1}

        def restore_from_checkpoint(self, state):
            assert state == {"kept": 1}

    x, w = C.input_variable(1), C.parameter((1, 1), init=1.0)
    loss = C.reduce_sum(C.times(x, w))
    learner = WithCheckpoint([w], C.learning_parameter_schedule(0.5))
    trainer = C.Trainer(loss, (loss, None), C.block_momentum_distributed_learner(learner, 4, **HALF))
    trainer.save_checkpoint(tmp_path / "t")
    first = [(trainer.train_minibatch({x: np.full((2, 1), i + 1)}), w.value.item())[1] for i in range(3)]
    trainer.restore_from_checkpoint(tmp_path / "t")
    assert [(trainer.train_minibatch({x: np.full((2, 1), i + 1)}), w.value.item())[1] for i in range(3)] == first


def test_a_block_without_samples_is_an_error():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        C.block_momentum_distributed_learner(C.sgd([C.parameter(1)], 0.1), 0)
