"""`eval` of data of known sizes goes straight to the executable, and answers as it would have on the long way."""

import threading

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.lower.carry import Memory
from cntkjax.engine.run.direct import results
from cntkjax.engine.run.executables import Executables
from cntkjax.engine.run.minibatch import arguments_in_order
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.graph.errors import ShapeError

RUNS = 6  # the first ones are timed, and take the long way
ROUNDING = 1e-6  # of the largest number, between NumPy and XLA
DATA = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


def network():
    x = C.input_variable(3)
    return x, C.layers.Dense(2, activation=C.tanh, init=C.glorot_uniform(seed=1))(x)


def bound(function):
    direct = plan_of(function.outputs).direct
    return [] if direct is None else [key for key, bound in direct._bound.items() if bound is not None]


@pytest.fixture
def long_way(monkeypatch):
    """Evaluates on the long way."""
    def evaluate(function, feeds):
        with monkeypatch.context() as patch:
            for way in ("_run", "_by_numpy"):
                patch.setattr(f"cntkjax.engine.run.direct.{way}", lambda *_: None)
            return function.eval(feeds)

    return evaluate


def evaluated_often(function, feeds):
    for _ in range(RUNS):
        value = function.eval(feeds)
    return value


def test_the_answers_are_those_of_the_long_way():
    x, f = network()
    long = f.eval({x: DATA})
    np.testing.assert_allclose(evaluated_often(f, {x: DATA}), long, atol=ROUNDING)
    assert len(bound(f)) == 1
    np.testing.assert_allclose(f.eval(DATA), long, atol=ROUNDING)
    both = C.combine([f, C.exp(f)])
    value = evaluated_often(both, {x: DATA})
    assert list(value) == list(both.outputs) and bound(both)
    np.testing.assert_allclose(value[both.outputs[1]], np.exp(long), rtol=1e-6)


def test_other_shapes_and_types_take_the_long_way():
    x, f = network()
    expected = evaluated_often(f, {x: DATA})
    np.testing.assert_array_equal(f.eval({x: DATA.astype(np.float64)}), expected)
    np.testing.assert_allclose(f.eval({x: DATA[:1]}), expected[:1], atol=ROUNDING)
    np.testing.assert_allclose(f.eval({x: DATA[0]}), expected[:1], atol=ROUNDING)
    np.testing.assert_array_equal(f.eval({x: DATA.tolist()}), expected)
    np.testing.assert_array_equal(f.eval({x: np.asfortranarray(DATA)[::-1]}), expected[::-1])
    with pytest.raises(ShapeError):
        f.eval({x: np.ones((2, 4), np.float32)})


@pytest.fixture
def runs(monkeypatch):
    """A list with an item for each call of XLA."""
    calls, run = [], Executables.run
    monkeypatch.setattr(Executables, "run", lambda *a, **k: [calls.append(1), run(*a, **k)][1])
    return calls


@pytest.mark.parametrize("as_numpy", [True, False])
def test_dense_layers_for_a_few_samples_take_no_executable(runs, as_numpy):
    x, f = network()
    evaluated_often(f, {x: DATA})
    runs.clear()
    for feed in (DATA, DATA.tolist(), np.asfortranarray(DATA)):
        value = f.eval({x: feed}, as_numpy=as_numpy)
        np.testing.assert_allclose(
            value if as_numpy else value.asarray(), np.tanh(DATA @ f.W.value + f.b.value), atol=ROUNDING)
    assert not runs
    f.eval({x: DATA.repeat(100, 0)})
    assert runs


def test_evaluations_between_steps_do_not_change_the_training():
    losses = []
    for evaluates in (False, True):
        x, f = network()
        y = C.input_variable(2)
        trainer = C.Trainer(f, C.squared_error(f, y), C.adam(f.parameters, 0.01, 0.9))
        for _ in range(2 * RUNS):
            if evaluates:
                value = f.eval({x: DATA})
                np.testing.assert_allclose(value, np.tanh(DATA @ f.W.value + f.b.value), atol=ROUNDING)
            trainer.train_minibatch({x: DATA, y: np.ones((2, 2), np.float32)})
            losses.append(trainer.previous_minibatch_loss_average)
    assert losses[: 2 * RUNS] == losses[2 * RUNS :]


def test_assignments_and_training_show_at_once():
    x, f = network()
    evaluated_often(f, {x: DATA})
    f.W.value = np.ones((3, 2), np.float32)
    np.testing.assert_allclose(f.eval({x: DATA}), np.tanh(DATA.sum(1, keepdims=True).repeat(2, 1)), rtol=1e-6)
    y = C.input_variable(2)
    trainer = C.Trainer(f, C.squared_error(f, y), C.sgd(f.parameters, C.learning_parameter_schedule_per_sample(1.0)))
    before = f.eval({x: DATA})
    trainer.train_minibatch({x: DATA, y: np.zeros((2, 2), np.float32)})
    after = f.eval({x: DATA})
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, np.tanh(DATA @ f.W.value + f.b.value), rtol=1e-5)


def test_an_edited_graph_computes_what_it_is_now():
    x, f = network()
    g = C.plus(f, C.constant(1.0, (2,), name="more"))
    value = evaluated_often(g, {x: DATA})
    g.find_by_name("more").value = np.full(2, 3, np.float32)
    np.testing.assert_allclose(g.eval({x: DATA}), value + 2, rtol=1e-6)


def test_results_are_arrays_of_their_own():
    x = C.input_variable(3)
    f = C.combine([C.alias(x), x * 1])
    data = DATA.copy()
    first = evaluated_often(f, {x: data})
    second = f.eval({x: data})
    for value in second.values():
        value += 1
    data[:] = 0
    for value in first.values():
        np.testing.assert_array_equal(value, DATA)


def test_values_of_the_last_evaluation_are_erased():
    x, f = network()
    evaluated_often(f, {x: DATA})
    value = f.eval({x: DATA}, as_numpy=False)
    f.eval({x: DATA})
    with pytest.raises(RuntimeError, match="no longer valid"):
        value.asarray()


def test_checked_mode_finds_nan_after_many_evaluations():
    x, f = network()
    evaluated_often(f, {x: DATA})
    C.debugging.set_checked_mode(True)
    try:
        with pytest.raises(RuntimeError, match="NaN"):
            f.eval({x: np.full((2, 3), np.nan, np.float32)})
    finally:
        C.debugging.set_checked_mode(False)


@pytest.mark.parametrize("make", [
    lambda x: C.assign(C.parameter((3,)), C.parameter((3,), init=1)) + x,
    lambda x: C.gather(C.parameter((4, 2)), x),
], ids=["assignment", "indices"])
def test_what_writes_or_checks_more_than_sizes_takes_the_long_way(make):
    x = C.input_variable(3)
    f = make(x)
    evaluated_often(f, {x: np.ones((2, 3), np.float32)})
    assert not bound(f)


def tagger(dim=3, **options):
    words = C.sequence.input_variable(dim, **options)
    layers = [C.layers.Recurrence(C.layers.LSTM(4, init=C.glorot_uniform(seed=1))), C.layers.Dense(2, init=0.1)]
    return words, C.layers.Sequential(layers)(words)


STEPS = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def same(a, b):
    if not isinstance(b, list):
        a, b = [a], [b]
    return len(a) == len(b) and all(np.array_equal(p, q) and p.dtype == q.dtype for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("data", [
    STEPS, [STEPS], np.stack([STEPS, -STEPS]), [STEPS, -STEPS, STEPS + 1], [STEPS, STEPS[:1], STEPS[:3]],
    [STEPS[:, :] for _ in range(5)],
], ids=["steps", "list_of_one", "array", "equal_lengths", "lengths", "five"])
@pytest.mark.parametrize("then", [C.alias, C.sequence.last, C.sequence.softmax], ids=["each", "last", "softmax"])
def test_sequences_answer_as_on_the_long_way(long_way, data, then):
    words, network = tagger()
    f = then(network)
    value = evaluated_often(f, {words: data})
    assert len(bound(f)) == 1 and same(value, long_way(f, {words: data}))
    other = [2 * a for a in data] if isinstance(data, list) else 2 * data
    assert same(f.eval({words: other}), long_way(f, {words: other}))
    assert same(f.eval(other), f.eval({words: other})) and len(bound(f)) == 1


def test_sequences_of_other_lengths_have_a_binding_of_their_own(long_way):
    words, f = tagger()
    sentences = [[STEPS[:n], STEPS[:k]] for n, k in ((4, 2), (2, 4), (3, 3), (4, 2))]
    for sentence in sentences:
        assert same(evaluated_often(f, {words: sentence}), long_way(f, {words: sentence}))
    assert len(bound(f)) == 3


def several_arguments():
    """Functions of several arguments, and data for them."""
    axis, batch = C.Axis("steps"), np.stack([STEPS, -STEPS])
    x, y, words, others = *(C.input_variable(3) for _ in "xy"), *(
        C.sequence.input_variable(3, sequence_axis=axis) for _ in "wo")
    constant = C.input_variable(3, dynamic_axes=[])
    last = C.sequence.last(C.layers.Recurrence(C.layers.GRU(3))(words))
    return {
        "samples": (C.layers.Dense(3)(C.splice(x, y)), {x: DATA, y: 2 * DATA}),
        "a product of samples": (C.reduce_sum(x * y, axis=0), {x: DATA, y: 2 * DATA}),
        "sequences": (C.layers.Recurrence(C.layers.RNNStep(3))(words + others), {words: batch, others: batch}),
        "a sequence and a sample": (C.layers.Dense(2)(C.splice(last, x)), {words: batch, x: DATA}),
        "one without a batch": (x * constant, {x: DATA, constant: DATA[0]}),
    }


@pytest.mark.parametrize("name", several_arguments())
def test_several_arguments_go_straight_to_what_computes_them(name, long_way):
    f, data = several_arguments()[name]
    long = long_way(f, data)
    np.testing.assert_allclose(evaluated_often(f, data), long, atol=ROUNDING)
    plan = plan_of(f.outputs)
    values = results(f.outputs, plan, arguments_in_order(plan, f._feeds(data, f.outputs)), Memory())
    np.testing.assert_allclose(values[0].numpy(), long, atol=ROUNDING)


def test_samples_of_several_numbers_are_refused_as_at_first():
    x, y = C.input_variable(3), C.input_variable(3)
    f = C.layers.Dense(2)(C.splice(x, y))
    evaluated_often(f, {x: DATA, y: DATA})
    for wrong in ({x: DATA, y: DATA[:1]}, {x: DATA[:1], y: DATA}):
        with pytest.raises(ValueError, match="samples|batch"):
            f.eval(wrong)


@pytest.mark.parametrize("data", [
    C.Value.one_hot([[1, 2, 0], [3, 3, 1]], 5), [csr_matrix(np.eye(5, dtype=np.float32)[[1, 4]])],
    [csr_matrix(np.array([[0, 2, 0, 1, 1], [0, 0, 0, 0, 3]], np.float32))],
], ids=["value", "one_hot_rows", "rows"])
def test_sparse_sequences_answer_as_before(data):
    words, f = tagger(5, is_sparse=True)
    first = f.eval({words: data})
    for value in (evaluated_often(f, {words: data}), f.eval({words: data})):
        for a, b in zip(value, first, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(bound(f)) == 1
    with pytest.raises(ValueError):
        f.eval({words: [csr_matrix(np.ones((2, 4), np.float32))]})


def test_pieces_of_sequences_are_continued_on_the_long_way():
    words, f = tagger()
    whole = evaluated_often(f, {words: [STEPS]})[0]
    first = f.eval(({words: [STEPS[:2]]}, [True]))
    second = f.eval(({words: [STEPS[2:]]}, [False]))
    np.testing.assert_allclose(np.concatenate([first[0], second[0]]), whole, rtol=1e-6)


@pytest.mark.parametrize("wrong", [
    [np.ones((2, 4), np.float32)], [], [np.ones((0, 3), np.float32)], [STEPS, np.ones((2, 4), np.float32)], np.ones(2),
])
def test_wrong_sequences_fail_as_they_do_at_first(wrong):
    words, f = tagger()
    with pytest.raises(Exception) as at_first:
        f.eval({words: wrong})
    evaluated_often(f, {words: [STEPS]})
    with pytest.raises(type(at_first.value)) as later:
        f.eval({words: wrong})
    assert str(later.value) == str(at_first.value)


def test_dropout_and_random_numbers_go_on_as_on_the_long_way(long_way):
    def values(evaluate):
        x = C.input_variable(3)
        f = C.dropout(C.layers.Dense(2, init=0.5)(x), 0.5, seed=3) + C.random.normal((2,), seed=5)
        drawn = [evaluate(f, {x: DATA}) for _ in range(2 * RUNS)]
        trained = f.forward({x: DATA}, keep_for_backward=[f.output])[1][f.output]  # with dropout's numbers
        assert bound(f)
        return [*drawn, trained]

    shortly, at_length = values(lambda f, feeds: f.eval(feeds)), values(long_way)
    assert len(np.unique(np.stack(shortly)[:-1], axis=0)) == 2 * RUNS
    np.testing.assert_array_equal(shortly, at_length)


def test_a_reduction_over_samples_counts_no_padding():
    x = C.input_variable(3)
    f = C.reduce_sum(x, axis=C.Axis.all_axes())
    data = np.ones((9, 3), np.float32)
    assert evaluated_often(f, {x: data}) == f.eval({x: data}) == 27


def test_many_sizes_are_not_all_kept():
    words, f = tagger()
    evaluated_often(f, {words: [STEPS]})
    for i in range(1, 300):
        for _ in range(2):
            f.eval({words: [np.ones((1 + i % 4, 3), np.float32), np.ones((1 + i // 4, 3), np.float32)]})
    assert len(plan_of(f.outputs).direct._bound) <= 256


def test_threads_answer_side_by_side():
    x, f = network()
    inputs = [DATA + i for i in range(4)]
    expected = [evaluated_often(f, {x: data}) for data in inputs]
    different = []

    def evaluate(i):
        for _ in range(50):
            if not np.array_equal(f.eval({x: inputs[i]}), expected[i]):
                different.append(i)

    threads = [threading.Thread(target=evaluate, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different
