"""Several batch sizes in one evaluation, joined by user functions. Numbers are CNTK's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.graph.errors import AxisError, ResultError, ShapeError
from cntkjax.ops.functions import UserFunction

X = np.arange(8, dtype=np.float32).reshape(4, 2) / 4
STEPS = [X[:3], np.array([[1, -1]], np.float32)]
W0, V0 = np.array([[0.5, -1], [0.25, 2]], np.float32), np.array([[1], [-0.5]], np.float32)


class Mapped(UserFunction):
    """`function(operand)`; its gradient is `vjp(operand, root gradient)`."""

    def __init__(self, x, function, vjp=None, axes=None, name="mapped"):
        super().__init__([x], name=name)
        self.function, self.vjp, self.axes, self.calls = function, vjp, axes, 0

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes if self.axes is None else self.axes)]

    def forward(self, argument, device=None, outputs_to_retain=None):
        self.calls += 1
        return argument, self.function(argument)

    def backward(self, state, root_gradients):
        return self.vjp(state, root_gradients)


class Resampled(UserFunction):
    """A sample of the first operand at all steps of each sequence of the second: every second one, or each twice."""

    def __init__(self, x, like, name="resampled"):
        super().__init__([x, like], name=name)
        self.forwards = self.backwards = 0

    def infer_outputs(self):
        x, like = self.inputs
        return [C.output_variable(x.shape, x.dtype, like.dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        self.forwards += 1
        x, like = arguments
        self.n = len(x)
        self.take = [i % len(x) for i in range(0, 2 * len(like), 2)] if len(like) < len(x) else [
            i // 2 for i in range(len(like))
        ]
        return None, [x[i : i + 1].repeat(len(s), axis=0) for i, s in zip(self.take, like, strict=True)]

    def backward(self, state, root_gradients, variables):
        self.backwards += 1
        summed = np.stack([g.sum(axis=0) for g in root_gradients])
        for v in variables:
            if v == self.inputs[0]:
                variables[v] = np.zeros((self.n, *summed.shape[1:]), summed.dtype)
                np.add.at(variables[v], self.take, summed)


def every_second(x):
    return C.user_function(Mapped(x, lambda a: a[::2], lambda a, g: np.stack([g, 0 * g], 1).reshape(-1, *g.shape[1:])))


def labels(n):
    return [np.full((1 + i % 2, 1), y, np.float32) for i, y in enumerate(np.linspace(-1, 1, n))]


def network():
    """A loss of samples and sequences, whose numbers may differ."""
    x = C.input_variable(2, needs_gradient=True)
    y = C.sequence.input_variable(1, sequence_axis=C.Axis("labels"))
    W, V = C.parameter((2, 2), init=W0), C.parameter((2, 1), init=V0)
    function = Resampled(C.tanh(C.times(x, W)), y)
    z = C.times(C.user_function(function), V)
    return x, y, W, V, function, z, C.squared_error(z, y)


def assert_close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("change, expected", [
    (lambda a: a[::2], [[-0.16863984], [0.21839291]]),
    (lambda a: a.repeat(2, axis=0)[1:4], [[-0.16863984], [0.03077298], [0.03077298]]),
])
def test_a_function_returns_fewer_or_more_samples(change, expected):
    x = C.input_variable(2)
    changed = C.user_function(Mapped(C.tanh(C.times(x, W0)), change))
    assert_close(C.times(changed, V0).eval({x: X}), expected)
    assert_close(changed.eval({x: X}) @ V0, expected)
    assert_close(C.combine(C.times(changed, V0), x).eval({x: X})[x], X)


def test_sequences_become_samples():
    x, y = C.sequence.input_variable(2), C.input_variable(1)
    lasts = Mapped(C.times(x, W0), lambda a: np.concatenate([s[-2:] for s in a]), axes=[C.Axis.default_batch_axis()])
    loss = C.squared_error(C.reduce_sum(C.tanh(C.user_function(lasts)), axis=0), y)
    assert_close(loss.eval({x: STEPS, y: [[1], [2], [3]]}), [0.02998586, 0.17967819, 14.063521])


def test_sequences_become_longer():
    x = C.sequence.input_variable(2)
    longer = C.user_function(Mapped(C.times(x, W0), lambda a: [s.repeat(2, axis=0) for s in a]))
    sums = C.sequence.reduce_sum(C.tanh(longer)).eval({x: STEPS})
    assert_close(sums, [[2.2899117, 4.257719], [0.48983732, -1.9901096]])
    assert_close(C.sequence.last(longer + C.sequence.past_value(longer)).eval({x: STEPS}), [[1.625, 3], [0.5, -6]])


def test_gradients_flow_back_through_the_stages():
    x, y, W, V, function, _, loss = network()
    gradients = loss.grad({x: X, y: labels(2)}, wrt=[x, W, V])
    assert_close(gradients[x], [[1.4819424, -0.89358205], [0, 0], [-1.1419435, 0.1352362], [0, 0]], 1e-5)
    assert_close(gradients[W], [[-1.7189205, 0.28248316], [-1.73459, 0.18964863]], 1e-5)
    assert_close(gradients[V], [[-1.9939455], [-2.0615096]])
    assert (function.forwards, function.backwards) == (1, 1)


def test_forward_and_backward_by_hand_call_the_function_once():
    x, y, W, V, function, _, loss = network()
    state, values = loss.forward({x: X, y: labels(2)}, [loss.output], {loss.output})
    assert_close(values[loss.output][1], [0.61090964, 0.61090964])
    gradients = loss.backward(state, {loss.output: [np.float32([1]), np.float32([1, 2])]}, {x, W, V})
    assert_close(gradients[x][2], [-1.712915, 0.20285428])
    assert_close(gradients[W], [[-2.5783806, 0.4237247], [-2.8089151, 0.36620057]])
    assert_close(gradients[V], [[-3.0428107], [-3.4764502]])
    assert (function.forwards, function.backwards) == (1, 1)


@pytest.mark.parametrize("n, momentum, losses, w, v, tested", [
    (2, 0, [0.63765967, 0.50311097, 0.43604787], [[0.62585908, -1.02060556], [0.36088875, 1.98934269]],
     [1.16562581, -0.3560539], 0.28783011),
    (8, 0.5, [0.21975398, 0.21710376, 0.21375914], [[0.52049541, -1.00093806], [0.25313672, 2.00652051]],
     [1.03895247, -0.4884764], 0.12455413),
])
def test_networks_are_trained(n, momentum, losses, w, v, tested):
    x, y, W, V, function, z, loss = network()
    trainer = C.Trainer(z, (loss, C.squared_error(2 * z, y)), C.momentum_sgd([W, V], 0.1, momentum))
    feed, steps, averages = {x: X, y: labels(n)}, n * 3 // 2, []
    for _ in range(3):
        assert trainer.train_minibatch(feed)
        averages.append(trainer.previous_minibatch_loss_average)
    assert_close(averages, losses)
    assert_close(W.value, w)
    assert_close(V.value.ravel(), v)
    assert (trainer.previous_minibatch_sample_count, trainer.total_number_of_samples_seen) == (steps, 3 * steps)
    assert (function.forwards, function.backwards) == (3, 3)
    assert_close(trainer.test_minibatch(feed), tested)


def test_embeddings_learn_by_rows_and_statistics_run_once_a_step():
    x = C.input_variable(5, is_sparse=True)
    y = C.sequence.input_variable(1, sequence_axis=C.Axis("labels"))
    E = C.parameter((5, 2), init=np.arange(10, dtype=np.float32).reshape(5, 2) / 8 - 0.5)
    V = C.parameter((2, 1), init=V0)
    h = C.layers.BatchNormalization(normalization_time_constant=10)(C.tanh(C.times(x, E)))
    z = C.times(C.user_function(Resampled(h, y)), V)
    trainer = C.Trainer(z, (C.squared_error(z, y), None), C.momentum_sgd(z.parameters, 0.1, 0.5))
    losses = []
    for ids, n, first in (([0, 1, 2, 3], 2, -1), ([1, 4, 4], 6, -0.5), ([2, 2, 1, 0], 4, 0)):
        one_hot = csr_matrix(np.eye(5, dtype=np.float32)[ids])
        trainer.train_minibatch({x: one_hot, y: [np.full((1 + i % 2, 1), first + i, np.float32) for i in range(n)]})
        losses.append(trainer.previous_minibatch_loss_average)
    assert_close(losses, [0.07076208, 6.50284068, 1.75366433])
    assert_close(E.value, [
        [-0.47390053, -0.38023922], [-0.3165558, -0.12299971], [0.02224407, 0.13557145], [0.26101208, 0.36983141],
        [0.50001001, 0.62499595],
    ])
    assert_close(V.value.ravel(), [1.22530222, -0.28918612])
    statistics = {c.name: np.asarray(c.value) for c in z.constants}
    assert_close(statistics["aggregate_mean"], [-0.07800508, 0.03841903])
    assert_close(statistics["aggregate_variance"], [0.08733709, 0.09440593])
    assert statistics["aggregate_count"] == 11


def test_gradients_of_several_stages_are_summed_in_double_precision():
    x = C.input_variable(2, np.float64, needs_gradient=True)
    y = C.sequence.input_variable(1, np.float64, sequence_axis=C.Axis("labels"))
    W = C.parameter((2, 2), init=W0.astype(np.float64), dtype=np.float64)
    scale = C.reduce_sum(C.square(W))
    g = C.user_function(Resampled(C.tanh(C.times(x, W)) * scale, y))
    loss = C.squared_error(C.reduce_sum(g, axis=0) * scale + C.reduce_sum(C.sequence.past_value(g), axis=0), y)
    feed = {x: X.astype(np.float64), y: [np.ones((2, 1)), np.ones((1, 1)) / 3]}
    values = loss.eval(feed)
    assert_close(values[0], [190.54479808, 275.24115647], 1e-10)
    assert_close(values[1], [1949.11899391], 1e-10)
    gradients = loss.grad(feed, wrt=[x, W])
    of_x = [[-545.6109302554064, 3446.8612616913615], [234.733295373344, 1243.1664693736004]]
    assert_close(gradients[x][::2], of_x, 1e-12)
    assert_close(gradients[W], [[3204.948834238358, -3219.364843609483], [3101.1821334274614, 8274.23612809388]], 1e-12)


def test_sequences_in_double_precision_get_gradients():
    """Not CNTK's numbers: it reports an error where a function changes the number of samples along its own axes."""
    x = C.sequence.input_variable(2, np.float64, needs_gradient=True)
    longer = Mapped(x * x, lambda a: [s.repeat(2, axis=0) for s in a], lambda a, g: [s[::2] + s[1::2] for s in g])
    z = C.sequence.reduce_sum(C.exp(C.user_function(longer) / 3))
    data = [s.astype(np.float64) for s in STEPS]
    for gradient, s in zip(z.grad({x: data}), data, strict=True):
        assert_close(gradient, 2 * np.exp(s * s / 3) * 2 * s / 3, 1e-14)


def test_random_numbers_are_drawn_once():
    def computed(make):
        x = C.input_variable(50, needs_gradient=True)
        z = make(C.dropout(x, 0.5, seed=7))
        data, arrays = np.ones((4, 50), np.float32), []
        for _ in range(2):
            state, values = z.forward({x: data}, [z.output], {z.output})
            arrays += [values[z.output], z.backward(state, {z.output: np.ones_like(values[z.output])}, {x})[x]]
        return arrays

    full, halved = computed(lambda d: 2 * d), computed(lambda d: 2 * every_second(d))
    assert not np.array_equal(full[0], full[2])
    for a, b in zip(full, halved, strict=True):
        np.testing.assert_array_equal(a[::2], b if len(b) == 2 else b[::2])


def test_batches_can_be_reshaped_into_static_axes():
    """Utterances into conversations, as in CNTK's test of thought vectors."""

    class Conversations(UserFunction):
        def __init__(self, x, like, name="conversations"):
            super().__init__([x, like], as_numpy=False, name=name)

        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable((C.FreeDimension, *x.shape), x.dtype, [C.Axis.default_batch_axis()])]

        def forward(self, arguments, device=None, outputs_to_retain=None):
            x, like = arguments
            n = like.shape()[0]
            return None, C.cntk_py.Value(x.data().as_shape((n, x.shape()[0] // n, 2)))

        def backward(self, state, root_gradients, variables):
            n, steps = root_gradients.shape()[:2]
            variables[self.inputs[0]] = C.cntk_py.Value(root_gradients.data().as_shape((n * steps, 2)))

    x = C.input_variable(2, needs_gradient=True)
    y = C.sequence.input_variable(1, sequence_axis=C.Axis("labels"))
    h = C.to_sequence_like(C.user_function(Conversations(x * x, C.sequence.last(y))), y)
    z = C.sequence.reduce_sum(h)
    feed = {x: X, y: [np.zeros((2, 1), np.float32), np.zeros((1, 1), np.float32)]}
    assert_close(z.eval(feed), [(X[:2] ** 2).sum(axis=0), X[2] ** 2])
    assert_close(z.grad(feed), [*2 * X[:3], [0, 0]])


def test_equal_sizes_stay_in_one_program():
    x, y, *_, loss = network()
    loss.grad({x: X[:2], y: labels(2)}, wrt=[x])
    assert "stages" not in vars(plan_of([loss.output]))
    loss.grad({x: X, y: labels(2)}, wrt=[x])
    assert "stages" in vars(plan_of([loss.output]))


def test_sizes_that_no_function_separates_raise():
    x, y = C.input_variable(2), C.input_variable(2)
    with pytest.raises(ShapeError, match="different numbers of sequences or samples: Input"):
        (x + y).eval({x: X, y: X[:2]})
    with pytest.raises(ShapeError, match="different numbers of sequences or samples: Input"):
        every_second(x + y).eval({x: X, y: X[:2]})
    h = C.tanh(x)
    with pytest.raises(ShapeError, match="Tanh"):
        (every_second(h) + h).eval({x: X})
    s = C.sequence.input_variable(2)
    longer = C.user_function(Mapped(s, lambda a: [q.repeat(2, axis=0) for q in a]))
    with pytest.raises(AxisError, match="other lengths"):
        (longer + s).eval({s: STEPS})


def test_invalid_results_raise_in_stages_too():
    x = C.input_variable(2, needs_gradient=True)
    wrong = C.user_function(Mapped(x, lambda a: a[::2], lambda a, g: g))
    with pytest.raises(ResultError, match=r"made data of shape \(2, 2\)"):
        wrong.grad({x: X})
    results = [X[:2], X[:0], None, "no", X[:2, :1]]
    f = C.user_function(Mapped(x, lambda a: results.pop(0)))
    assert f.eval({x: X}).shape == (2, 2)
    while results:
        with pytest.raises(ResultError, match="a user function made "):
            f.eval({x: X})


def test_features_that_stages_do_not_support_raise():
    x, y, W, V, _, z, loss = network()
    trainer = C.Trainer(z, (loss, None), C.sgd([W, V], 0.1), accumulate=2)
    with pytest.raises(ValueError, match="leave out accumulate="):
        trainer.train_minibatch({x: X, y: labels(2)})
    s = C.sequence.input_variable(2)
    longer = C.user_function(Mapped(C.sequence.past_value(s), lambda a: [q.repeat(2, axis=0) for q in a]))
    with pytest.raises(ValueError, match="sequences that are cut"):
        longer.eval(({s: STEPS}, [True, True]))
    f = every_second(x)
    with pytest.raises(ValueError, match="gradients inside of graphs"):
        C.gradient(C.reduce_sum(f * f), f).eval({x: X})


def test_assignments_take_effect_once_and_with_the_backward_pass():
    x, total = C.input_variable(2, needs_gradient=True), C.parameter(2, init=0)
    z = C.reduce_sum(every_second(2 * x) + C.assign(total, total + 1), axis=0)
    assert_close(z.eval({x: X}), [[2.5], [6.5]])
    z.grad({x: X})
    state, values = z.forward({x: X}, [z.output], {z.output})
    assert_close(total.value, [2, 2])
    z.backward(state, {z.output: np.ones_like(values[z.output])}, {x})
    assert_close(total.value, [3, 3])


def test_functions_in_loops_stay_in_their_stage_and_are_called_once_for_each_sample():
    calls = []

    class Doubled(Mapped):
        def __init__(self, x, name="doubled"):
            super().__init__(x, lambda a: calls.append(len(a)) or [2 * s for s in a], lambda a, g: [2 * s for s in g])

    def step(h, x):
        return C.user_function(Doubled(h)) + x

    x = C.sequence.input_variable(2, needs_gradient=True)
    r = C.layers.Recurrence(C.Function(step))(x)
    longer = Mapped(r, lambda a: [s.repeat(2, axis=0) for s in a], lambda a, g: [s[::2] + s[1::2] for s in g])
    gradients = C.sequence.reduce_sum(C.user_function(longer)).grad({x: STEPS})
    assert_close(gradients[0], np.float32([[14, 14], [6, 6], [2, 2]]))
    assert_close(gradients[1], [[2, 2]])
    assert sum(calls) == len(np.concatenate(STEPS))
