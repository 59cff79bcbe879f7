"""`eval` of arrays of known shapes goes straight to the executable, and answers as it would have on the long way."""

import threading

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.graph.errors import ShapeError

RUNS = 5  # the first ones are timed, and take the long way
DATA = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


def network():
    x = C.input_variable(3)
    return x, C.layers.Dense(2, activation=C.tanh, init=C.glorot_uniform(seed=1))(x)


def bound(function):
    direct = plan_of(function.outputs).direct
    return [] if direct is None else list(direct._bound)


def evaluated_often(function, feeds):
    for _ in range(RUNS):
        value = function.eval(feeds)
    return value


def test_the_answers_are_those_of_the_long_way():
    x, f = network()
    long = f.eval({x: DATA})
    np.testing.assert_array_equal(evaluated_often(f, {x: DATA}), long)
    assert bound(f) == [((2, 3),)]
    np.testing.assert_array_equal(f.eval(DATA), long)
    both = C.combine([f, C.exp(f)])
    value = evaluated_often(both, {x: DATA})
    assert list(value) == list(both.outputs) and bound(both)
    np.testing.assert_allclose(value[both.outputs[1]], np.exp(long), rtol=1e-6)


def test_other_shapes_and_types_take_the_long_way():
    x, f = network()
    expected = evaluated_often(f, {x: DATA})
    np.testing.assert_array_equal(f.eval({x: DATA.astype(np.float64)}), expected)
    np.testing.assert_array_equal(f.eval({x: DATA[:1]}), expected[:1])
    np.testing.assert_array_equal(f.eval({x: DATA[0]}), expected[:1])
    np.testing.assert_array_equal(f.eval({x: DATA.tolist()}), expected)
    np.testing.assert_array_equal(f.eval({x: np.asfortranarray(DATA)[::-1]}), expected[::-1])
    with pytest.raises(ShapeError):
        f.eval({x: np.ones((2, 4), np.float32)})


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
    lambda x: C.dropout(x, 0.5), lambda x: x + C.random.normal((3,)), lambda x: C.reduce_sum(x, axis=C.Axis.all_axes()),
    lambda x: C.assign(C.parameter((3,)), C.parameter((3,), init=1)) + x,
    lambda x: C.gather(C.parameter((4, 2)), x),
], ids=["random", "random_numbers", "reduction_over_samples", "assignment", "indices"])
def test_what_does_more_than_compute_samples_takes_the_long_way(make):
    x = C.input_variable(3)
    f = make(x)
    evaluated_often(f, {x: np.ones((2, 3), np.float32)})
    assert not bound(f)


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
