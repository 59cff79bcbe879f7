"""Truncated sequences: a piece continues where the one before it, in the previous minibatch, ended."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.core import Value
from cntkjax.engine.data.ragged import Ragged

U = np.array([[0.5, -0.3]], np.float32)
W = np.array([[0.2, 0.4], [-0.6, 0.1]], np.float32)
UP = np.arange(1, 7, dtype=np.float32).reshape(6, 1) / 4


# Numbers of CNTK 2.7 (it keeps only the last minibatch, so results for pieces shorter than a delay differ).
LOSSES = [-0.52172, -0.16866, -0.07518]
TRAINED = [[0.52922, -0.26208]], [[0.25637, 0.45869], [-0.51535, 0.23638]]


def recurrent(x, weights=None):
    """A loop with delays of one and two steps."""
    u, w = weights or (C.constant(U), C.constant(W))
    past, h = C.sequence.past_value, C.placeholder()
    out = C.tanh(C.times(x, u) + C.times(past(h, 0.25, 1), w) + 0.5 * past(h, -0.5, 2))
    return out.replace_placeholders({h: out})


def reducing(x):
    """A loop whose state is a number, and begins with three."""
    h = C.placeholder()
    out = C.reduce_sum(C.sequence.past_value(h, C.constant([0.5, -0.25, 1])) * C.constant([1, 2, 4])) * 0.1 + x
    return out.replace_placeholders({h: out})


MODELS = {
    "a loop": recurrent,
    "an initial state larger than the state": reducing,  # CNTK reads memory that was never written
    "a delay": lambda x: C.sequence.past_value(x, 7, 3),
    "initial states of the batch": lambda x: C.sequence.past_value(x, C.sequence.first(x) * 0 + 2, 2),
    "is_first": C.sequence.is_first,
}


@pytest.mark.parametrize("name", MODELS)
def test_pieces_give_the_values_of_the_whole_sequence(name, grid):
    x = C.sequence.input_variable(1)
    model = MODELS[name](x)
    sequences = [UP, -UP[:5]]
    expected = MODELS[name](x).eval({x: sequences})
    values_of_pieces = [[], []]
    for begin, end in [(0, 1), (1, 2), (2, 5), (5, 6)]:
        pieces = [s[begin:end] for s in sequences if len(s) > begin]
        for i, values in enumerate(model.eval({x: (pieces, [begin == 0] * len(pieces))})):
            values_of_pieces[i].append(values)
    for pieces, values in zip(values_of_pieces, expected, strict=True):
        np.testing.assert_allclose(np.concatenate(pieces), values, rtol=1e-6)


def test_a_piece_continues_the_last_sequence_in_its_slot(grid):
    x = C.sequence.input_variable(1)
    model = C.sequence.past_value(x, -1)
    samples, lengths = np.arange(6, dtype=np.float32)[:, None], np.array([2, 1, 3], np.int32)
    first = Ragged(samples, lengths, np.ones(3, bool), np.array([0, 0, 1]))
    then = Ragged(np.array([[7.0], [8]], np.float32), np.ones(2, np.int32), np.zeros(2, bool), np.array([1, 0]))
    model.eval({x: Value.from_ragged(first, (1,))})
    assert [v.item() for v in model.eval({x: Value.from_ragged(then, (1,))})] == [5, 2]


def test_no_gradient_flows_from_one_piece_to_another():
    x = C.sequence.input_variable(1)
    weights = C.parameter(init=U), C.parameter(init=W)
    loss = C.reduce_sum(recurrent(x, weights))
    trainer = C.Trainer(None, (loss, None), [C.sgd(weights, C.learning_parameter_schedule_per_sample(0.1))])
    losses = []
    for begin in (0, 2, 4):
        piece = [UP[begin : begin + 2], -UP[begin : begin + 2]]
        outputs = [loss] if begin == 2 else None  # requesting outputs makes no difference
        trainer.train_minibatch({x: (piece, [begin == 0] * 2)}, outputs)
        losses.append(trainer.previous_minibatch_loss_average)
    np.testing.assert_allclose(losses, LOSSES, atol=1e-5)
    for weight, values in zip(weights, TRAINED, strict=True):
        np.testing.assert_allclose(weight.value, values, atol=1e-5)


def test_backward_starts_from_the_states_of_forward():
    x = C.sequence.input_variable(1, needs_gradient=True)
    w = C.parameter((1, 1), init=0.5)
    h = C.placeholder()
    out = C.times(C.sequence.past_value(h), w) + x
    out = out.replace_placeholders({h: out})
    for piece, starts, states in [([1, 2, 3], True, [1, 2.5, 4.25]), ([4, 5], False, [6.125, 8.0625])]:
        state, values = out.forward({x: ([np.reshape(piece, (-1, 1))], [starts])}, None, [out.output])
        np.testing.assert_allclose(values[out.output][0].ravel(), states)
    gradient = out.backward(state, {out.output: [np.ones((2, 1))]}, [w])[w]
    np.testing.assert_allclose(gradient, [[4.25 + 6.125 + 4.25 * 0.5]])


def test_a_piece_that_continues_nothing_is_an_error():
    x = C.sequence.input_variable(1)
    model = C.sequence.past_value(x)
    with pytest.raises(RuntimeError, match="sequence 0 of the minibatch continues one of the minibatch before"):
        model.eval({x: ([UP], [False])})
    model.eval({x: ([UP], [True])})
    with pytest.raises(RuntimeError, match="sequence 1 of the minibatch"):
        model.eval({x: ([UP, UP], [False, False])})
    np.testing.assert_allclose((x + 1).eval({x: ([UP], [False])})[0], UP + 1)  # nothing looks back


def test_start_flags_may_be_passed_once_for_all_arguments():
    """CNTK's character language model. Numbers: CNTK 2.7."""
    x, w = C.sequence.input_variable(2), C.parameter(2, init=1)
    total = C.reduce_sum(C.layers.Recurrence(C.plus)(x) * w)
    trainer = C.Trainer(total, (total, total), C.sgd([w], C.learning_parameter_schedule(0.0)))
    piece = {x: [np.ones((2, 2), np.float32)]}
    for starts, expected in (True, [2, 4]), (False, [6, 8]), (True, [2, 4]):
        np.testing.assert_array_equal(total.eval((piece, [starts]))[0], expected)
    assert trainer.test_minibatch((piece, [True])) == 3
    trainer.train_minibatch((piece, [True]))
    assert trainer.previous_minibatch_loss_average == 3
    trainer.train_minibatch((piece, [False]))
    assert trainer.previous_minibatch_loss_average == 7


@pytest.mark.parametrize("in_loop", [False, True])
def test_pieces_whose_free_dimensions_have_other_sizes_are_an_error(in_loop):
    x = C.sequence.input_variable(C.FreeDimension)
    model = C.layers.Recurrence(C.plus)(x) if in_loop else C.sequence.past_value(x)
    model = C.sequence.last(model)
    model.eval({x: ([np.ones((2, 3))], [True])})
    with pytest.raises(RuntimeError, match=r"sequences of shape \[2\] continue some of shape \[3\]"):
        model.eval({x: ([np.ones((2, 2))], [False])})
    np.testing.assert_array_equal(model.eval({x: ([np.ones((2, 3))], [False])})[0], np.full(3, 4 if in_loop else 1))


def test_pieces_continue_values_of_the_shape_of_the_initial_state():
    x = C.sequence.input_variable(1)
    model = C.sequence.past_value(x, C.constant([1, 2, 3]))
    for starts, first in [(True, [1, 2, 3]), (False, [1, 1, 1])]:
        np.testing.assert_array_equal(model.eval({x: ([np.ones((2, 1))], [starts])})[0], [first, [1, 1, 1]])
