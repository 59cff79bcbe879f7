"""The state of a training: a step changes the values of its cells at once, and of no others."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.cells import commit
from cntkjax.graph.proxy import unwrap

DATA = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


@pytest.fixture
def training():
    """A trainer of one of two layers, its input, and the state of its step."""
    x = C.input_variable(3)
    fixed, learned = C.parameter((3, 2), init=1), C.parameter((2, 1), init=1)
    loss = C.square(C.times(C.times(x, fixed), learned))
    learner = C.momentum_sgd([learned], C.learning_parameter_schedule(0.1), 0.9)
    trainer = C.Trainer(None, loss, learner)
    trainer.train_minibatch({x: DATA})
    return trainer, x, unwrap(trainer)._step([]).state, fixed, learned


def test_a_step_replaces_what_it_learns_and_leaves_the_rest(training):
    trainer, x, state, fixed, learned = training
    before = {cell: cell.value for cell in state.cells}
    fixed_before, learned_before = fixed.value, learned.value
    trainer.train_minibatch({x: DATA})
    changed = {cell for cell, value in before.items() if cell.value is not value}
    assert np.array_equal(fixed.value, fixed_before) and not np.array_equal(learned.value, learned_before)
    assert state.learners[0].optax_cell in changed and len(changed) < len(before)


def test_what_was_trained_is_the_state_after_it_is_committed(training):
    _, _, state, _, learned = training
    trained = state.trained()
    doubled = trained._replace(parameters=[[2 * value for value in group] for group in trained.parameters])
    expected, scale = 2 * learned.value, state.pending.value.scale
    changes = state.after(doubled)
    assert not np.array_equal(learned.value, expected), "computing changes changes nothing"
    commit(changes)
    np.testing.assert_array_equal(learned.value, expected)
    assert state.pending.value.scale is scale and set(changes) <= {*state.cells, state.pending}
