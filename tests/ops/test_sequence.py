"""Sequence operations against NumPy for one sequence, and their gradients against finite differences of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import softmax

import cntkjax as C
from cntkjax import sequence as S


@dataclass
class Case:
    """`build` creates the function of a sequence x of vectors, `reference` computes it for one sequence [steps, 3]."""

    name: str
    build: Any
    reference: Any
    gradient: bool = True

    def __str__(self):
        return self.name


def positive(x):
    return C.greater(C.slice(x, 0, 0, 1), 0)


def flags(x):
    return (x[:, :1] > 0).astype(x.dtype)


def chosen(x):
    return x[np.flatnonzero(np.asarray(x)[:, 0] > 0)]


CASES = [
    Case("first", S.first, lambda x: x[0]),
    Case("last", S.last, lambda x: x[-1]),
    Case("is_first", S.is_first, lambda x: np.arange(len(x)) == 0, gradient=False),
    Case("is_last", S.is_last, lambda x: np.arange(len(x)) == len(x) - 1, gradient=False),
    Case("slice from 1", lambda x: S.slice(x, 1, 0), lambda x: x[1:]),
    Case("slice to -1", lambda x: S.slice(x, 0, -1), lambda x: x[:-1]),
    Case("slice of the first two", lambda x: S.slice(x, 0, 2), lambda x: x[:2]),
    Case("slice of the last two", lambda x: S.slice(x, -2, 0), lambda x: x[-2:]),
    Case("slice inside", lambda x: S.slice(x, 1, -1), lambda x: x[1:-1]),
    Case("the second step", lambda x: S.slice(x, 1, 2), lambda x: x[1]),
    Case("the last step but one", lambda x: S.slice(x, -2, -1), lambda x: x[-2]),
    Case("slices of one length added", lambda x: S.slice(x, 1, 0) * S.slice(x, 0, -1), lambda x: x[1:] * x[:-1]),
    Case("where", lambda x: S.where(positive(x)), lambda x: np.flatnonzero(x[:, 0] > 0), gradient=False),
    Case("gather", lambda x: S.gather(x, positive(x)), chosen),
    Case("scatter", lambda x: S.scatter(S.gather(x, positive(x)), positive(x)), lambda x: x * flags(x)),
    Case("scatter of one step", lambda x: S.scatter(S.last(x), S.is_first(x), (0, 1)),
         lambda x: np.concatenate([x[-1:], 0 * x[1:]])),
    Case("broadcast_as", lambda x: S.broadcast_as(S.last(x), x), lambda x: np.broadcast_to(x[-1], x.shape)),
    Case("broadcast_as of a constant", lambda x: S.broadcast_as(2, x), lambda x: np.full(len(x), 2.0), gradient=False),
    Case("reduce_sum", S.reduce_sum, lambda x: x.sum(0)),
    Case("reduce_max", S.reduce_max, lambda x: x.max(0)),
    Case("softmax", S.softmax, lambda x: softmax(x, axis=0)),
    Case("steps repeated", lambda x: S.gather(x, S.broadcast_as(C.constant(1.5), x)),
         lambda x: np.repeat(x, np.diff(np.ceil(1.5 * np.arange(len(x) + 1))).astype(int), axis=0)),
    Case("past_value by two", lambda x: S.past_value(x, 0.5, 2),
         lambda x: np.concatenate([np.full((2, 3), 0.5), x[:-2]])),
    Case("future_value", S.future_value, lambda x: np.concatenate([x[1:], np.zeros((1, 3))])),
    Case("delay by -1", lambda x: S.delay(x, 0, -1), lambda x: np.concatenate([x[1:], np.zeros((1, 3))])),
    Case("recurrence over a slice", lambda x: C.layers.Recurrence(C.plus)(S.slice(x, 1, 0)),
         lambda x: np.cumsum(x[1:], 0)),
]


XS = [np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32) for n in (5, 2, 3, 2, 7, 4)]


def difference(reference, x, step=1e-5):
    """Central differences of the sum of squares, in double precision."""
    changes = step * np.eye(x.size).reshape(x.size, *x.shape)
    sums = [[np.sum(reference(x.astype(np.float64) + sign * c) ** 2) for sign in (1, -1)] for c in changes]
    return (np.diff(sums)[:, 0] / (-2 * step)).reshape(x.shape)


def assert_equal(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def results():
    """Values of all cases, and gradients of their squares, from one program for each kind of grid."""
    return {}


def computed(results, kind):
    if kind not in results:
        inputs = [S.input_variable(3, needs_gradient=True) for _ in CASES]
        outputs = [case.build(x).output for case, x in zip(CASES, inputs, strict=True)]
        squares = [C.reduce_sum(C.square(v)) for v in outputs]
        total = C.mean(*(S.reduce_sum(v) if v.output.sequence_axis else v for v in squares)) * len(CASES)
        gradients, values = total.grad(dict.fromkeys(inputs, XS), wrt=inputs, outputs=outputs)
        results[kind] = [(values[v], gradients[x]) for v, x in zip(outputs, inputs, strict=True)]
    return results[kind]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: CASES[n].name)
class TestEveryOperation:
    def test_values_match_the_reference(self, number, grid, results, request):
        value, _ = computed(results, request.node.callspec.params["grid"])[number]
        assert_equal(value, [CASES[number].reference(x) for x in XS])

    def test_gradients_match_the_reference(self, number, grid, results, request):
        case = CASES[number]
        _, gradient = computed(results, request.node.callspec.params["grid"])[number]
        assert_equal(gradient, [difference(case.reference, x) if case.gradient else np.zeros_like(x) for x in XS])


class TestAxes:
    x, v = S.input_variable(2), C.input_variable(2)

    @pytest.mark.parametrize(
        "begin, end, name",  # as CNTK 2.7 names them
        [
            (1, 3, "fixedSliceOf_2"), (0, -1, "times_1_minus_1"), (1, 0, "times_1_minus_1"), (-2, 0, "fixedSliceOf_2"),
            (2, -2, "times_1_minus_4"), (3, 1, "times_1_minus_2"), (-1, -3, "times_1_minus_2"),
            (-3, 2, "fixedSliceOf_5"),
        ],
    )
    def test_slices_are_named_after_the_change_of_length(self, begin, end, name):
        assert S.slice(self.x, begin, end).dynamic_axes[1] == C.Axis(f"defaultDynamicAxis_{name}")

    def test_a_slice_of_one_step_has_the_batch_axis_alone(self):
        assert S.slice(self.x, 2, 3).dynamic_axes == (C.Axis.default_batch_axis(),)

    def test_typeinfo_names_the_axis_of_a_gather(self):
        c = S.input_variable(())
        names = [S.gather(self.x, c, t).dynamic_axes[-1].name for t in ((1, 0), (2, 1), (2, 0), (0, 3))]
        suffixes = "", "_times_2_plus_1", "_times_2_minus_0", "_fixedSliceOf_3"
        assert names == ["defaultDynamicAxis" + suffix for suffix in suffixes]

    def test_a_gather_from_another_condition_has_another_axis(self):
        one, other = (S.gather(self.x, S.input_variable(())) for _ in range(2))
        assert one.dynamic_axes != other.dynamic_axes

    @pytest.mark.parametrize(
        "f", [S.first, S.is_last, S.reduce_sum, S.softmax, lambda v: S.unpack(v, 0), lambda v: S.where(v[0])]
    )
    def test_operands_without_a_sequence_are_rejected_when_the_graph_is_built(self, f):
        with pytest.raises((ValueError, RuntimeError), match="sequence axis"):
            f(self.v)

    def test_broadcast_as_needs_dynamic_axes(self):
        with pytest.raises(ValueError, match="no dynamic axes"):
            S.broadcast_as(self.v, C.constant(1))

    def test_reconciled_sequences_of_other_lengths_are_rejected(self):
        other = S.input_variable(1, sequence_axis=C.Axis("other"))
        f = C.reconcile_dynamic_axes(self.x, other)
        assert_equal(f.eval({self.x: [np.ones((2, 2))], other: [np.zeros((2, 1))]}), [np.ones((2, 2))])
        with pytest.raises(ValueError, match="differ in length"):
            f.eval({self.x: [np.ones((2, 2))], other: [np.zeros((3, 1))]})


def test_first_of_sparse_sequences_stays_sparse_until_it_is_multiplied():
    x = S.input_variable(4, is_sparse=True)
    W = np.arange(8, dtype=np.float32).reshape(4, 2)
    xs = [np.eye(4, dtype=np.float32)[[1, 2]], np.eye(4, dtype=np.float32)[[3]]]
    np.testing.assert_array_equal(C.times(S.last(x), W).eval({x: xs}), W[[2, 3]])


@pytest.mark.parametrize("time_step", [1, 2, 3])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("own_axis", [False, True])
def test_initial_states_that_are_a_sequence(time_step, ahead, own_axis, grid):
    """Source: CNTK 2.7: the last states precede a sequence, the first ones follow it."""
    x, i = S.input_variable(1), S.input_variable(1, **({"sequence_axis": C.Axis("states")} if own_axis else {}))
    xs = [np.arange(1, 5, dtype=np.float32)[:, None], np.arange(5, 9, dtype=np.float32)[:, None]]
    states = [-np.arange(*ends, dtype=np.float32)[:, None] for ends in ((1, 5 - own_axis), (4, 8 - own_axis))]
    f = (S.future_value if ahead else S.past_value)(x, i, time_step)
    expected = [
        np.concatenate([s[time_step:], t[:time_step]] if ahead else [t[-time_step:], s[:-time_step]])
        for s, t in zip(xs, states, strict=True)
    ]
    assert_equal(f.eval({x: xs, i: states}), expected)


@pytest.mark.parametrize(
    ("delay", "node"), [(S.past_value, "PastValue"), (S.future_value, "FutureValue"), (S.delay, "NoOp")]
)
@pytest.mark.parametrize("state", ["a number", "one for each sequence"])
def test_a_delay_by_no_step_has_the_values_of_the_sequence(delay, node, state, grid, tmp_path):
    """Source: CNTK 2.7."""
    x, i = S.input_variable(1, needs_gradient=True), C.input_variable(1)
    f = delay(x, 9 if state == "a number" else i, 0, name="now")
    xs = [np.array([[1], [2]], np.float32), np.array([[3]], np.float32)]
    feed = {v: xs if v is x else np.ones((2, 1), np.float32) for v in f.arguments}
    assert (f.name, f.root_function.op_name) == ("now", node)
    assert_equal(f.eval(feed), xs)
    assert_equal(f.grad(feed, wrt=[x]), [np.ones((2, 1)), np.ones((1, 1))])
    f.save(str(tmp_path / "f"))
    assert C.load_model(str(tmp_path / "f")).root_function.op_name == node


def test_a_delay_by_no_step_without_a_name_is_its_operand():
    """Source: CNTK 2.7."""
    x = S.input_variable(1)
    assert S.delay(x, 9, 0) is x


def test_root_gradients_along_a_computed_axis(grid):
    x = S.input_variable(3, needs_gradient=True)
    f = S.gather(x, positive(x))
    state, values = f.forward({x: XS}, [f.output], {f.output})
    arriving = [np.arange(v.size, dtype=np.float32).reshape(v.shape) + 1 for v in values[f.output]]
    gradients = f.backward(state, {f.output: arriving}, {x})[x]
    for m, s, a in zip(gradients, XS, arriving, strict=True):
        expected = np.zeros_like(s)
        expected[s[:, 0] > 0] = a
        np.testing.assert_array_equal(m, expected)


def test_products_of_all_steps_are_summed():
    x, y = S.input_variable(1), S.input_variable(3)
    f = C.times(x, y, infer_input_rank_to_map=C.TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK)
    assert f.dynamic_axes == (C.Axis.default_batch_axis(),)
    weights = [s[:, :1] for s in XS]
    expected = [w.T @ s for w, s in zip(weights, XS, strict=True)]
    np.testing.assert_allclose(f.eval({x: weights, y: XS}), np.stack(expected), rtol=1e-5)


def test_training_counts_the_steps_of_a_slice():
    """The next word predicted from those before it. Losses and counts are those of CNTK 2.7."""
    x = S.input_variable(6, is_sparse=True)
    memory = C.layers.Recurrence(C.layers.LSTM(4, init=0.2))
    model = C.layers.Sequential([C.layers.Embedding(3, init=0.3), memory, C.layers.Dense(6, init=0.1)])(x)
    scores, following = S.slice(model, 0, -1), S.slice(x, 1, 0)
    criterion = C.cross_entropy_with_softmax(scores, following), C.classification_error(scores, following)
    learner = C.sgd(model.parameters, C.learning_parameter_schedule_per_sample(0.1))
    trainer = C.Trainer(model, criterion, [learner])
    words = C.Value.one_hot([[0, 1, 2, 3, 4], [1, 2, 3], [5, 4, 3, 2], [0, 1]], 6)
    for loss, error in ((1.79176, 1.0), (1.70265, 0.7), (1.64022, 0.7)):
        trainer.train_minibatch({x: words})
        assert trainer.previous_minibatch_sample_count == 10
        np.testing.assert_allclose(trainer.previous_minibatch_loss_average, loss, rtol=1e-5)
        np.testing.assert_allclose(trainer.previous_minibatch_evaluation_average, error, rtol=1e-6)


@pytest.mark.parametrize("train", [False, True])
def test_the_number_of_scattered_steps_must_match_the_condition(train):
    """Two steps for two places; with another number of either CNTK 2.7 raises a ValueError too."""
    few = S.input_variable(1, sequence_axis=C.Axis("few"), needs_gradient=True)
    places = S.input_variable(1, sequence_axis=C.Axis("places"))
    f = S.scatter(few, places)
    feed = {few: [np.float32([[1], [2]])], places: [np.float32([[1], [0], [1]])]}
    np.testing.assert_array_equal(f.eval(feed)[0].ravel(), [1, 0, 2])
    for steps in ([[1]], [[1], [2], [3]]):
        wrong = {**feed, few: [np.float32(steps)]}
        with pytest.raises(ValueError, match=rf"differ in length: \[{len(steps)}\] against \[2\]"):
            f.grad(wrong, [few]) if train else f.eval(wrong)


@pytest.mark.parametrize("lengths", [(1, 3), (1, 1), (1,)], ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_slice_behind_the_end_has_neither_steps_nor_a_gradient(lengths, sparse):
    """CNTK 2.7 refuses such a sequence."""
    x, w = S.input_variable(2, is_sparse=sparse), C.parameter((2, 1), init=1)
    sequences = [csr_matrix(np.eye(n, 2, dtype="f")) if sparse else np.eye(n, 2, dtype="f") for n in lengths]
    f = C.times(S.slice(x, 1, 0), w)
    assert [len(steps) for steps in f.eval({x: sequences})] == [n - 1 for n in lengths]
    assert S.reduce_sum(f).grad({x: sequences}, wrt=[w]).sum() == (max(lengths) > 1)


def test_a_single_step_that_a_sequence_does_not_have_is_zero():
    """CNTK 2.7 refuses such a sequence."""
    x = S.input_variable((), needs_gradient=True)
    f = C.combine([S.slice(x, 1, 2) * 2])
    sequences = [np.float32([3]), np.float32([1, 2, 4])]
    assert f.eval({x: sequences}).tolist() == [0, 4]
    assert [g.tolist() for g in f.grad({x: sequences})] == [[0], [0, 2, 0]]


@pytest.mark.parametrize("value", [1, 3], ids=["one-hot", "sparse"])
@pytest.mark.parametrize("step", [
    lambda x: S.slice(x, 1, 2), lambda x: S.first(S.slice(x, 1, 0)), lambda x: S.last(S.slice(x, 1, 0)),
], ids=["single step", "first", "last"])
def test_a_step_that_a_sequence_of_sparse_samples_does_not_have_is_zero(step, value):
    """CNTK 2.7 refuses such a sequence."""
    x, w = S.input_variable(3, is_sparse=True), C.parameter((3, 1), init=1)
    f = C.times(step(x), w)
    sequences = [csr_matrix(value * np.eye(n, 3, dtype="f")) for n in (1, 2)]
    assert f.eval({x: sequences}).tolist() == [[0], [value]]
    assert f.grad({x: sequences}, wrt=[w]).tolist() == [[0], [value], [0]]


@pytest.mark.parametrize("end", [S.first, S.last, C.layers.Fold(C.plus)], ids=["first", "last", "Fold"])
@pytest.mark.parametrize("shorten", [
    C.layers.SequentialConvolution(2, init=1, pad=False, reduction_rank=0), lambda x: S.slice(x, 1, 0),
], ids=["convolution", "slice"])
def test_the_ends_of_a_sequence_without_steps_are_zero_whatever_is_beside_it(shorten, end):
    """CNTK 2.7 refuses such a sequence."""
    x = S.input_variable((), needs_gradient=True)
    f = end(shorten(x)) * 2
    sequences = [np.float32([3]), np.float32([1, 2, 4])]
    together, gradients = f.eval({x: sequences}), f.grad({x: sequences})
    assert together[0] == f.eval({x: sequences[:1]})[0] == gradients[0] == 0
    assert together[1] != 0
    assert gradients[1].any()
