"""Loops that stop early: how many steps are computed, and that the values are those of all steps."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.engine.plan.plan import Plan
from tests.engine.generators import LIMIT, S, assert_equal, counted, counter, early_exits, fed, inputs, steps_of
from tests.layers.decoders import decoder, words


def generated(f):
    """The output of the generator, before the steps after its end are removed."""
    (source,) = {n.node_inputs[0] for n in Plan(f.outputs).nodes if n.op_name == "GatherPacked"}
    return C.combine([source])


def in_full(f, feeds):
    """The values when all steps are used and therefore computed."""
    combined = C.combine([f.output, generated(f).output])
    assert not early_exits(combined)
    return combined.eval(feeds)[f.output]


def test_it_runs_one_step_longer_than_the_longest_sequence():
    start, like = inputs()
    steps, values = steps_of(counter(start, like), fed(start, like, [4, 6, 5], [50, 50, 50]))
    assert_equal(values, [counted(4, 50), counted(6, 50), counted(5, 50)])
    assert steps == 6


def test_several_sequences_share_a_row(grid):
    start, like = inputs()
    starts, lengths = [4, 6, 0, 8, 20], [40, 9, 3, 5, 4]
    steps, values = steps_of(counter(start, like), fed(start, like, starts, lengths))
    assert_equal(values, [counted(*a) for a in zip(starts, lengths, strict=True)])
    assert steps < 25


def test_a_generator_that_does_not_end_runs_as_long_as_the_sequences(grid):
    start, like = inputs()
    steps, values = steps_of(counter(start, like), fed(start, like, [-50, -60], [12, 5]))
    assert_equal(values, [counted(-50, 12), counted(-60, 5)])
    assert steps >= 12


@pytest.mark.parametrize("seed", range(3))
def test_values_equal_those_of_all_steps_wherever_sequences_end(grid, seed):
    start, like = inputs()
    f = counter(start, like)
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 15, size=8)
    for _ in range(12):
        starts = rng.integers(LIMIT - 20, LIMIT + 3, size=8)
        values = f.eval(fed(start, like, starts, lengths))
        assert_equal(values, [counted(*a) for a in zip(starts, lengths, strict=True)])


def test_generated_sequences_may_be_longer_than_the_input(grid):
    start, like = inputs()
    steps, values = steps_of(counter(start, like, length_increase=5.5), fed(start, like, [4, 6, -11], [10, 4, 3]))
    assert_equal(values, [counted(4, 55), counted(6, 22), counted(-11, 17)])
    assert steps < 55


def test_values_and_gradients_equal_those_of_cntk(grid):
    """By CNTK 2.7."""
    start, like = C.input_variable(2), S.input_variable(1)
    w = C.parameter(init=np.array([[1.2, 0.1], [0, 1.1]], np.float32))
    feeds = {start: np.array([[1, 0], [4, 4], [0.5, 0]], np.float32), like: [np.zeros((n, 1)) for n in (9, 4, 3)]}
    f = L.UnfoldFrom(lambda h: 1.5 * h + 0.25, until_predicate=lambda h: C.greater(C.reduce_sum(h), 20))(start, like)
    assert len(early_exits(f)) == 1
    values = f.eval(feeds)
    assert [len(m) for m in values] == [6, 3, 3]
    last = [m[-1] for m in values]
    np.testing.assert_array_equal(last, [[16.5859375, 5.1953125], [14.6875, 14.6875], [2.875, 1.1875]])

    g = L.UnfoldFrom(lambda h: C.times(h, w), until_predicate=lambda h: C.greater(h[0], 3))(start, like)
    assert len(early_exits(g)) == 1
    assert [len(m) for m in g.eval(feeds)] == [7, 1, 3]
    loss = S.reduce_sum(C.reduce_sum(g))
    np.testing.assert_allclose(loss.grad(feeds, wrt=[w]), [[79.11666, 58.266968], [15.536203, 13.31348]], rtol=1e-5)


def test_gradients_cover_the_generated_steps(grid):
    start, like = inputs()
    f = L.UnfoldFrom(lambda h: 1.5 * h, until_predicate=lambda h: C.greater(h, LIMIT))(start, like)
    feeds = fed(start, like, [1, 4, 10], [30, 1, 4])
    assert len(early_exits(f)) == 1
    steps = [6, 1, 1]
    gradient, values = f.grad(feeds, wrt=[start], outputs=[f.output])
    assert_equal(values, [s * 1.5 ** np.arange(1, n + 1) for s, n in zip([1, 4, 10], steps, strict=True)], rtol=1e-5)
    np.testing.assert_allclose(gradient.ravel(), [sum(1.5 ** np.arange(1, n + 1)) for n in steps], rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"rematerialize": True}], ids=str)
def test_training_equals_training_with_all_steps(grid, options):
    def train(all_steps):
        start, like = inputs()
        w = C.parameter(init=np.array([[1.1]], np.float32))
        f = L.UnfoldFrom(lambda h: C.times(h, w), until_predicate=lambda h: C.greater(h, LIMIT))(start, like)
        loss = C.reduce_sum(C.square(f)) / 100
        loss = S.reduce_sum(loss) + 0 * S.last(generated(f)) if all_steps else S.reduce_sum(loss)
        assert bool(early_exits(loss)) is not all_steps
        trainer = C.Trainer(None, (loss, loss), [C.sgd([w], C.learning_parameter_schedule(0.01))], **options)
        for _ in range(3):
            trainer.train_minibatch(fed(start, like, [1, 4, 10], [30, 1, 4]))
        return w.value, trainer.test_minibatch(fed(start, like, [1, 4, 10], [30, 1, 4]))

    (w, error), (w_in_full, error_in_full) = train(False), train(True)
    np.testing.assert_allclose(w, w_in_full, rtol=1e-6)
    np.testing.assert_allclose(error, error_in_full, rtol=1e-6)
    assert abs(w - 1.1).max() > 1e-3


def test_a_decoder_with_attention(grid):
    rng = np.random.default_rng(1)
    size = 6
    greedy, *_ = decoder(size, until_predicate=lambda word: word[1], length_increase=4)
    source = greedy.arguments[0]
    for p in greedy.parameters:
        p.value = 2 * rng.standard_normal(p.shape).astype(np.float32)
    feeds = {source: words(rng, size, 4, 2, 5, 7)}
    (loop,) = early_exits(greedy)
    assert not any(v.name == "encode" for n in loop.nodes for v in n.node_inputs)
    values = greedy.eval(feeds)
    assert len({len(m) for m in values}) > 1
    assert_equal(values, in_full(greedy, feeds))


def test_a_saved_generator_stops_early_too(tmp_path):
    start, like = C.input_variable(1, name="start"), S.input_variable(1, name="like")
    f = L.UnfoldFrom(lambda h: h + 1, until_predicate=lambda h: C.greater_equal(h, LIMIT))(start, like)
    f.save(str(tmp_path / "f.model"))
    loaded = C.Function.load(str(tmp_path / "f.model"))
    assert len(early_exits(loaded)) == 1
    names = {v.name: v for v in loaded.arguments}
    assert_equal(loaded.eval(fed(names["start"], names["like"], [4, 6], [30, 7])), [counted(4, 30), counted(6, 7)])


def test_truncated_sequences_continue_where_they_ended(grid):
    """The generator continues with its last value, whether the sequence has ended or not."""
    start, like = inputs()
    f = L.UnfoldFrom(lambda h: h + 1, until_predicate=lambda h: C.greater_equal(h, LIMIT))(start, like)
    starts, zeros = np.array([[4], [0]], np.float32), [np.zeros((20, 1), np.float32)] * 2
    values = [[], []]
    for begin, end in [(0, 3), (3, 4), (4, 12), (12, 20)]:
        pieces = f.eval({start: starts, like: ([z[begin:end] for z in zeros], [begin == 0] * 2)})
        for so_far, piece in zip(values, pieces, strict=True):
            so_far += piece.ravel().tolist()
    assert_equal(values, [counted(4, 20), counted(0, 20)])


def test_checked_mode_and_node_timing_evaluate_it():
    start, like = inputs()
    f = L.UnfoldFrom(lambda h: h + 1, until_predicate=lambda h: C.greater_equal(h, LIMIT))(start, like)
    feeds = fed(start, like, [4, 6], [30, 7])
    C.debugging.set_checked_mode(True)
    C.debugging.set_node_timing(True)
    try:
        assert_equal(f.eval(feeds), [counted(4, 30), counted(6, 7)])
        assert_equal(f.grad(feeds, wrt=[start], outputs=[f.output])[1], [counted(4, 30), counted(6, 7)])
    finally:
        C.debugging.set_checked_mode(False)
        C.debugging.set_node_timing(False)
