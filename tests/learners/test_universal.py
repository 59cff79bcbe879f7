"""Learners given as graphs."""

from dataclasses import replace

import numpy as np
import pytest

import cntkjax as C


def test_the_graph_takes_the_step_and_has_its_own_state():
    w, s = C.parameter((2,), init=1), C.parameter((2,), init=0)

    def momentum(parameters, gradients):
        (p,), (g,) = parameters, gradients
        return C.combine([C.assign(s, 0.9 * s + g), C.assign(p, p - 0.01 * s)])

    learner = C.universal(momentum, [w])
    values = []
    for _ in range(3):
        assert learner.update({w: np.array([10, -20], np.float32)}, 4) is True
        values.append([*w.value, *s.value])
    # CNTK 2.7: assignments take effect after everything is computed, so p uses the s of the previous step
    recorded = [[1, 1, 10, -20], [0.9, 1.2, 19, -38], [0.71, 1.58, 27.1, -54.2]]
    np.testing.assert_allclose(values, recorded, rtol=1e-6)
    assert (learner.learning_rate(), learner.total_number_of_samples_seen()) == (1.0, 12)


def test_the_graph_gets_lists_of_parameters_and_constants():
    w, lists = C.parameter((2, 3)), []
    C.universal(lambda ps, gs: lists.extend((ps, gs)) or C.assign(ps[0], gs[0]), [w])
    (p,), (g,) = lists
    assert p is w and g.is_constant and g.shape == (2, 3) and g.name == "grad"


def test_given_constants_keep_the_last_gradient_so_that_updates_can_be_evaluated_afterwards():
    w, gradient, state = C.parameter((3, 2), init=0.1), C.constant(0, (3, 2)), C.parameter((3, 2), init=0)
    x = C.input_variable(3)
    z = C.times(x, w)
    update = C.assign(state, gradient * 2)
    graph = C.combine([update, C.assign(w, w - 0.1 * gradient)])
    loss = C.reduce_sum(C.square(z))
    trainer = C.Trainer(z, (loss, loss), [C.cntk_py.universal_learner([w], [gradient], graph)])
    trainer.train_minibatch({x: np.ones((2, 3), "f")})
    # as CNTK 2.7; so K.get_value(optimizer.updates[i]) of Keras has them too
    np.testing.assert_allclose(gradient.value, np.full((3, 2), 1.2), rtol=1e-6)
    np.testing.assert_allclose(update.eval(), np.full((3, 2), 2.4), rtol=1e-6)


def test_given_gradients_are_constants_one_for_each_parameter():
    w = C.parameter(2)
    with pytest.raises(ValueError, match="gradients are constants"):
        C.cntk_py.universal_learner([w], [C.parameter(2)], C.assign(w, w))
    with pytest.raises(RuntimeError, match="1 parameters, but 0 gradients"):
        C.cntk_py.universal_learner([w], [], C.assign(w, w))


@pytest.mark.parametrize("update", [lambda ps, gs: None, None])
def test_functions_without_a_graph_are_errors(update):
    with pytest.raises(TypeError, match="update_func must return a function|update_func = None"):
        C.universal(update, [C.parameter((2,))])


def test_a_missing_gradient_is_an_error_and_changes_nothing():
    w = C.parameter((2,), init=1, name="w")
    learner = C.universal(lambda ps, gs: C.assign(ps[0], gs[0]), [w])
    with pytest.raises(RuntimeError, match="no gradient of parameter 'w'"):
        learner.update({}, 4)
    assert w.value.tolist() == [1, 1]


def test_checkpoints_store_variables_of_the_graph():
    def momentum(parameters, gradients):
        steps = [(C.parameter(p.shape, init=0), p, g) for p, g in zip(parameters, gradients, strict=True)]
        return C.combine([C.assign(p, p - 0.1 * C.assign(v, 0.9 * v + g)) for v, p, g in steps])

    first, second = C.parameter((2,), init=1), C.parameter((2,), init=1)
    learner, other = C.universal(momentum, [first]), C.universal(momentum, [second])
    gradient = np.float32([1, 2])
    learner.update({first: gradient}, 1)
    other.restore_from_checkpoint(learner.create_checkpoint())
    second.value = first.value
    for p, its_learner in (first, learner), (second, other):
        its_learner.update({p: gradient}, 1)
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_allclose(first.value, [0.71, 0.42], rtol=1e-6)
    with pytest.raises(ValueError, match="keeps other variables"):
        state = replace(learner.create_checkpoint(), other_state=[np.zeros((3,), np.float32)])
        other.restore_from_checkpoint(state)


def test_files_of_cntk_have_no_arrays_for_it():
    w = C.parameter((2, 3), init=1)
    learner = C.universal(lambda ps, gs: C.assign(ps[0], gs[0]), [w])
    learner.update({w: np.ones((2, 3), np.float32)}, 1)
    state = learner.create_checkpoint()
    assert [a.shape for a in state.smoothed_gradients] == [()]
    learner.restore_from_checkpoint(replace(state, other_state=[]))


def test_each_parameter_has_to_be_updated():
    with pytest.raises(RuntimeError, match="does not contain the parameter Parameter.'b'"):
        C.universal(lambda ps, gs: C.assign(ps[0], ps[0] - gs[0]), [C.parameter(2), C.parameter(2, name="b")])
