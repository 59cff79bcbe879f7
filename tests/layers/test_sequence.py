"""Recurrent layers against the same cells written step by step in JAX, on both kinds of grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.engine.plan.parts import Loop
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.program_cache import programs
from tests.layers.decoders import decoder, words

S = C.sequence
WIDTH = 3
XS = [np.random.default_rng(n).standard_normal((n, WIDTH)).astype(np.float32) for n in (4, 1, 6, 2, 3)]


def lstm(p, state, x):
    h, c = state
    i, g, f, o = jnp.split(p["b"] + x @ p["W"] + h @ p["H"], 4)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def peephole_lstm(p, state, x):
    h, c = state
    i, g, f, o = jnp.split(p["b"] + x @ p["W"] + h @ p["H"], 4)
    new = jax.nn.sigmoid(f + p["Cf"] * c) * c + jax.nn.sigmoid(i + p["Ci"] * c) * jnp.tanh(g)
    return (jax.nn.sigmoid(o + p["Co"] * new) * jnp.tanh(new)) @ p["P"], new


def gru(p, state, x):
    (h,) = state
    n = h.shape[0]
    of_x, of_h = p["b"] + x @ p["W"], h @ p["H"]
    z, r = jax.nn.sigmoid(of_x[:n] + of_h[:n]), jax.nn.sigmoid(of_x[n : 2 * n] + of_h[n:])
    return ((1 - z) * jnp.tanh(of_x[2 * n :] + (h * r) @ p["H1"]) + z * h,)


def rnn(p, state, x):
    return (jax.nn.sigmoid(x @ p["W"] + state[0] @ p["H"] + p["b"]),)


CELLS = {
    "LSTM": (lambda: L.LSTM(4), lstm, (4, 4)),
    "LSTM with peepholes and projection": (lambda: L.LSTM(4, cell_shape=5, use_peepholes=True), peephole_lstm, (4, 5)),
    "GRU": (lambda: L.GRU(4), gru, (4,)),
    "RNNStep": (lambda: L.RNNStep(4), rnn, (4,)),
}


def run(cell, p, x, initial, backwards):
    state, states = tuple(initial), []
    for now in x[::-1] if backwards else x:
        state = cell(p, state, now)
        states.append(state[0])
    return jnp.stack(states[::-1] if backwards else states)


def assert_equal(values, expected):
    assert len(values) == len(expected)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_values_and_gradients_of_cells(name, backwards, grid):
    make, reference, sizes = CELLS[name]
    x = S.input_variable(WIDTH, needs_gradient=True)
    f = L.Recurrence(make(), go_backwards=backwards, initial_state=0.1)(x)
    rng = np.random.default_rng(0)
    for p in f.parameters:
        p.value = rng.standard_normal(p.shape).astype(np.float32) * 0.5
    values = {p.name: jnp.asarray(p.value) for p in f.parameters}
    initial = [np.full(n, 0.1, np.float32) for n in sizes]

    def loss(p, xs):
        return sum(jnp.sum(run(reference, p, x, initial, backwards) ** 2) for x in xs)

    of_p, of_x = jax.jit(jax.grad(loss, (0, 1)))(values, XS)
    expected = jax.jit(lambda p, xs: [run(reference, p, x, initial, backwards) for x in xs])(values, XS)
    gradients, outputs = C.square(f).grad({x: XS}, wrt=[x, *f.parameters], outputs=[f.output])
    assert_equal(outputs, expected)
    assert_equal(gradients[x], of_x)
    for p in f.parameters:
        np.testing.assert_allclose(gradients[p], of_p[p.name], rtol=1e-4, atol=1e-5)


def test_only_the_recurrent_product_of_an_lstm_is_inside_the_loop():
    f = L.Recurrence(L.LSTM(4))(S.input_variable(WIDTH))
    (loop,) = [part for part in Plan(f.outputs).parts if isinstance(part, Loop)]
    (product,) = [n for n in loop.nodes if n.op_name == "Times"]
    assert product.node_inputs[1].name == "H"


@pytest.mark.parametrize(("cell", "recurrent"), [(L.LSTM, {"H"}), (L.GRU, {"H", "H1"}), (L.RNNStep, {"H"})])
def test_stacked_and_bidirectional_recurrences_have_only_products_of_states_inside_their_loops(cell, recurrent):
    def both():
        return L.Sequential([(L.Recurrence(cell(3)), L.Recurrence(cell(3), go_backwards=True)), C.splice])

    f = L.Sequential([both(), both()])(S.input_variable(WIDTH))
    loops = [part for part in Plan(f.outputs).parts if isinstance(part, Loop)]
    assert len(loops) == 4
    for loop in loops:
        assert {n.node_inputs[1].name for n in loop.nodes if n.op_name == "Times"} == recurrent


def test_fold_is_the_last_state_and_backwards_the_first(grid):
    x = S.input_variable(WIDTH)
    sums = [s.sum(0) + 2 for s in XS]
    for backwards in (False, True):
        np.testing.assert_allclose(
            L.Fold(C.plus, go_backwards=backwards, initial_state=2)(x).eval({x: XS}), sums, rtol=1e-5
        )
    h, c = L.Fold(L.LSTM(2), return_full_state=True)(x).outputs
    assert h.shape == c.shape == (2,) and h.dynamic_axes == (C.Axis.default_batch_axis(),)


def test_initial_states_from_the_batch_are_arguments(grid):
    x, h = S.input_variable(WIDTH), C.input_variable(WIDTH, needs_gradient=True)
    starts = np.arange(15, dtype=np.float32).reshape(5, 3)
    f = L.RecurrenceFrom(C.plus)(h, x)
    assert f.arguments == (h, x)
    assert_equal(f.eval({x: XS, h: starts}), [s.cumsum(0) + start for s, start in zip(XS, starts, strict=True)])
    np.testing.assert_allclose(f.grad({x: XS, h: starts}), np.ones((5, 3)) * [[len(s)] for s in XS])


def test_bidirectional_states_are_spliced(grid):
    x = S.input_variable(WIDTH)
    f = L.Sequential([(L.Recurrence(C.plus), L.Recurrence(C.plus, go_backwards=True)), C.splice])(x)
    assert_equal(f.eval({x: XS}), [np.hstack([s.cumsum(0), s[::-1].cumsum(0)[::-1]]) for s in XS])


def test_a_recurrence_applies_to_the_states_of_another(grid):
    x = S.input_variable(WIDTH)
    f = L.Recurrence(C.plus)(L.Recurrence(C.plus, go_backwards=True)(x))
    assert_equal(f.eval({x: XS}), [s[::-1].cumsum(0)[::-1].cumsum(0) for s in XS])


def test_delays_and_windows_hold_past_values(grid):
    x = S.input_variable(WIDTH)
    assert_equal(
        L.Delay(2, initial_state=9)(x).eval({x: XS}),
        [np.concatenate([np.full((2, WIDTH), 9), s])[: len(s)] for s in XS],
    )
    window = L.PastValueWindow(3, axis=-2)(x)
    value, valid = window.outputs
    values = window.eval({x: XS})
    for s, v, mask in zip(XS, values[value], values[valid], strict=True):
        n = min(len(s), 3)
        np.testing.assert_array_equal(v, np.concatenate([s[::-1][:n], np.zeros((3 - n, WIDTH))]))
        np.testing.assert_array_equal(mask[:, 0], np.arange(3) < n)


@pytest.mark.parametrize(("axis", "shape", "value", "valid"), [
    (C.Axis(-1), (2,), (6,), (3,)),
    (C.Axis(-2), (2,), (3, 2), (3, 1)),
    (C.Axis.new_leading_axis(), (), (3, 1), (3, 1)),
    (C.Axis.new_leading_axis(), (2,), (3, 2), (3, 1)),
    (C.Axis.new_leading_axis(), (2, 3), (3, 2, 3), (3, 1)),
])
@pytest.mark.parametrize("go_backwards", [False, True])
def test_windows_lie_along_any_axis(axis, shape, value, valid, go_backwards):
    """Shapes of CNTK 2.7."""
    window = L.PastValueWindow(3, axis, go_backwards=go_backwards)(S.input_variable(shape))
    assert [output.shape for output in window.outputs] == [value, valid]


class TestUnfolding:
    """Values of CNTK 2.7."""

    start, like = C.input_variable(2), S.input_variable(2)
    feeds = {start: np.array([[0, 0], [2, 2]], np.float32), like: [np.ones((3, 2)), np.ones((4, 2))]}

    def test_unfolds_to_the_length_of_another_sequence(self):
        f = L.UnfoldFrom(lambda state: state + 1)(self.start, self.like)
        assert_equal([s[:, 0] for s in f.eval(self.feeds)], [[1, 2, 3], [3, 4, 5, 6]])

    def test_length_increase_multiplies_the_length(self):
        f = L.UnfoldFrom(lambda state: state + 1, length_increase=1.5)(self.start, self.like)
        assert_equal([s[:, 0] for s in f.eval(self.feeds)], [[1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8]])

    def test_a_state_of_one_number_may_go_through_a_product(self):
        start, like, double = C.input_variable(1), S.input_variable(1), C.parameter(init=np.array([[2]], np.float32))
        f = L.UnfoldFrom(lambda state: C.times(state, double))(start, like)
        assert f.shape == (1,)
        assert_equal(f.eval({start: [[1]], like: [np.ones((3, 1))]}), [[[2], [4], [8]]])

    def test_stops_when_the_predicate_holds(self):
        f = L.UnfoldFrom(
            lambda state: (state * 1, state + 1), until_predicate=lambda p: C.greater(p[0], 3), length_increase=3
        )(self.start, self.like)
        assert_equal([s[:, 0] for s in f.eval(self.feeds)], [[0, 1, 2, 3, 4], [2, 3, 4]])


def test_a_recurrence_is_cloned_onto_another_sequence_axis():
    one, other = S.input_variable(2), S.input_variable(2, sequence_axis=C.Axis("other"))
    f = L.Recurrence(L.GRU(3))(one).clone("share", {one: other})
    assert f.dynamic_axes == other.dynamic_axes


def test_a_block_of_a_recurrence_is_cloned_onto_another_sequence_axis():
    """The number was printed by CNTK."""
    one, other = S.input_variable(2), S.input_variable(2, sequence_axis=C.Axis("other"))
    fold = L.Fold(L.LSTM(2, init=0.5))
    f = C.BlockFunction("Fold", "fold")(lambda x: fold(x))(one).clone("share", {one: other})
    assert_equal(f.eval({other: [[[1, 2], [3, 4], [5, 6]]]}), [[0.9894691, 0.9894691]])


def test_a_recurrence_is_cloned_onto_another_shape_and_type():
    one, other = S.input_variable(2), S.input_variable(1, dtype=np.float64)
    for sums in (L.Recurrence(C.plus), C.BlockFunction("Sums", "sums")(lambda x: L.Recurrence(C.plus)(x))):
        f = sums(one).clone("share", {one: other})
        assert f.shape == (1,) and f.dtype == np.float64
        assert_equal(f.eval({other: [[[1], [2]]]})[0], [[1], [3]])


def test_one_initial_state_in_a_tuple_is_that_of_all_states():
    """As in CNTK."""
    s = S.input_variable(2)
    with C.default_options(init=0.1):
        one, each = (L.Recurrence(L.LSTM(3), initial_state=state) for state in ((0.1,), (0.1, 0.1)))
    steps = {s: [[[1, 2], [3, 4]]]}
    assert_equal(one(s).eval(steps), each(s).eval(steps))


def test_initial_states_in_a_tuple_of_their_own_are_those_of_the_states():
    """As in CNTK."""
    s = S.input_variable(2)
    with C.default_options(init=0.1):
        inside, plain = (L.Recurrence(L.LSTM(3), initial_state=states) for states in (((1, 0),), (1, 0)))
    steps = {s: [[[1, 2], [3, 4]]]}
    assert_equal(inside(s).eval(steps), plain(s).eval(steps))


class TestMistakes:
    def test_another_number_of_initial_states_is_an_error(self):
        with pytest.raises(TypeError, match="initial_state has 3 states, and the step function takes 2"):
            L.Recurrence(L.LSTM(3), initial_state=(0, 0, 0))

    def test_a_step_that_returns_another_number_of_states_is_an_error(self):
        with pytest.raises(TypeError, match="number of state variables inconsistent"):
            L.Recurrence(lambda h, c, x: h + c + x)

    def test_a_step_that_creates_parameters_is_an_error(self):
        with pytest.raises(TypeError, match="Parameter cannot be created inside Recurrence"):
            L.Recurrence(lambda h, x: h + x * C.parameter((1,)))

        def RNN(shape):
            W = C.Parameter(shape)
            return lambda h, x: h + x * W

        with pytest.raises(TypeError, match="Parameter cannot be created inside Recurrence"):
            L.Recurrence(RNN)  # not RNN(1)

    def test_a_step_that_uses_other_variables_is_an_error(self):
        v = C.input_variable(1, name="v")
        with pytest.raises(TypeError, match=r"1 missing arguments \(v\)"):
            L.Recurrence(lambda h, x: h + x * v)

    def test_initial_states_that_depend_on_inputs_are_an_error(self):
        v = C.input_variable(3, name="v")
        with pytest.raises(TypeError, match=r"1 missing arguments \(v\)"):
            L.Recurrence(L.RNNStep(3), initial_state=v)

    def test_an_operand_without_a_sequence_axis_is_an_error(self):
        with pytest.raises((ValueError, RuntimeError), match="sequence axis"):
            L.Recurrence(C.plus)(C.input_variable(2))


def test_the_shape_of_a_state_follows_from_the_biases_of_its_step():
    """The state passes through a layer before it is joined with the input; its shape follows from the biases."""
    x, dense, lstm = C.sequence.input_variable(5), C.layers.Dense(4), C.layers.LSTM(4)
    states = C.layers.Recurrence(lambda h, c, v: lstm(h, c, C.splice(dense(h), v)))(x)
    assert states.shape == (4,) and dense.W.shape == (4, 4)
    assert states.eval({x: [np.ones((2, 5))]})[0].shape == (2, 4)


class TestDecoding:
    """A decoder with attention that is fed its own outputs."""

    SIZE, END = 6, 1

    def decoder(self, **options):
        return decoder(self.SIZE, **options)

    def words(self, *lengths):
        return words(np.random.default_rng(0), self.SIZE, *lengths)

    def test_each_word_is_the_best_after_those_before(self):
        greedy, decode, start = self.decoder()
        source, history = greedy.arguments[0], S.input_variable(self.SIZE, sequence_axis=C.Axis("history"))
        scores = decode(history, source)
        texts = self.words(4, 2, 5)
        values = greedy.eval({source: texts})
        assert [len(m) for m in values] == [4, 2, 5]
        before = [np.vstack([start.value, m[:-1]]) for m in values]
        for m, best in zip(values, scores.eval({source: texts, history: before}), strict=True):
            np.testing.assert_array_equal(m.argmax(1), best.argmax(1))

    def test_many_lengths_share_few_programs(self):
        start, like = C.input_variable(2), S.input_variable(2)
        step, rng = L.RNNStep(2), np.random.default_rng(0)
        f = L.UnfoldFrom(lambda h: step(h, h), until_predicate=lambda h: C.greater(h[0], 0.9), length_increase=1.5)
        f = f(start, like)
        before = sum(len(p.executables) for p in programs)
        for lengths in rng.integers(5, 11, size=(15, 3)):
            sequences = [np.zeros((n, 2), np.float32) for n in lengths]
            values = f.eval({start: np.zeros((3, 2), np.float32), like: sequences})
            assert all(len(m) <= 1.5 * n + 1 for m, n in zip(values, lengths, strict=True))
        assert sum(len(p.executables) for p in programs) - before <= 4

    def test_a_function_inside_another_uses_its_arguments(self):
        _, decode, _ = self.decoder()
        assert [v.name for v in decode.signature] == ["history", "source"]


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_a_generator_has_the_shape_of_its_initial_state_if_nothing_else_tells_it(shape):
    x, steps = C.input_variable(shape), C.sequence.input_variable(2)
    generated = C.layers.UnfoldFrom(lambda state: C.tanh(state))(x, steps)
    (values,) = generated.eval({x: np.ones((1, *shape)), steps: [np.ones((2, 2))]})
    assert generated.shape == shape and values.shape == (2, *shape)
    np.testing.assert_allclose(values.reshape(2, -1)[:, 0], [np.tanh(1), np.tanh(np.tanh(1))], rtol=1e-6)
