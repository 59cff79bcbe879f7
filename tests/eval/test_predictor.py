"""Predictors: the numbers of `Function.eval`, whatever happens to the function, and whoever asks at the same time."""

import gc
import os
import queue
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cntkjax as C

RNG = np.random.default_rng(7)


def mlp(dtype=np.float32):
    with C.default_options(dtype=dtype):
        x = C.input_variable(6, dtype=dtype, name="x")
        return C.layers.Sequential([C.layers.Dense(8, activation=C.tanh), C.layers.Dense(3)])(x)


def tagger():
    x = C.sequence.input_variable(5, name="words")
    return C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(7)), C.layers.Dense(4)])(x)


def images():
    x = C.input_variable((2, 8, 8), name="image")
    return C.layers.Sequential([
        C.layers.Convolution((3, 3), 4, pad=True, bias=False), C.layers.BatchNormalization(map_rank=1), C.relu,
        C.layers.Dense(3),
    ])(x)


def data(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def words(*lengths):
    return [data(n, 5) for n in lengths]


def close(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())


BACKENDS = ["jax", "onnxruntime", "fastest"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_are_those_of_eval(backend):
    for f, batches in (
        (mlp(), [data(n, 6) for n in (1, 5, 1, 8)]), (images(), [data(n, 2, 8, 8) for n in (1, 3)]),
        (tagger(), [words(3), words(2, 7, 4)]),
    ):
        predict = C.Predictor(f, backend=backend)
        for batch in batches * 2:  # the second time by what the first one has bound
            close(predict(batch), f.eval(batch))
            close(predict({f.arguments[0]: batch}), f.eval(batch))
            close(predict({f.arguments[0].name: batch}), f.eval(batch))


def test_double_precision_is_kept():
    f, batch = mlp(np.float64), data(3, 6, dtype=np.float64)
    for _ in range(2):
        answer = (predict := C.Predictor(f))(batch)
        assert answer.dtype == np.float64
        np.testing.assert_allclose(answer, f.eval(batch), rtol=1e-14)
        np.testing.assert_allclose(predict(batch), answer, rtol=0)


def test_answers_are_the_callers_own():
    f = mlp()
    predict, batch = C.Predictor(f), data(2, 6)
    expected = f.eval(batch)
    for _ in range(3):
        answer = predict(batch)
        close(answer, expected)
        answer += 1


def test_later_training_changes_nothing():
    f = mlp()
    predict, batch = C.Predictor(f), data(4, 6)
    before = predict(batch)
    x, y = f.arguments[0], C.input_variable(3)
    trainer = C.Trainer(f, C.squared_error(f, y), C.sgd(f.parameters, C.learning_parameter_schedule(0.5)))
    trainer.train_minibatch({x: batch, y: data(4, 3)})
    assert not np.allclose(f.eval(batch), before)
    np.testing.assert_array_equal(predict(batch), before)


def test_several_inputs_and_chosen_outputs():
    a, b = C.input_variable(2, name="a"), C.input_variable(2, name="b")
    total = C.plus(a, b, name="total")
    both = C.combine([total, a * b])
    predict = C.Predictor(both)
    answer = predict({a: [[1, 2]], b: [[3, 4]]})
    assert list(answer) == list(both.outputs)
    close(list(answer.values()), [[[4, 6]], [[3, 8]]])
    close(C.Predictor(both, outputs=total)({"a": [[1, 2]], "b": [[3, 4]]}), [[4, 6]])
    with pytest.raises(ValueError, match="not part of the graph"):
        C.Predictor(total, outputs=C.sigmoid(C.input_variable(1)))


@pytest.mark.parametrize("backend", ["jax", "onnxruntime", "fastest"])
def test_several_inputs_are_told_apart_in_each_call(backend):
    a, b = C.input_variable(2, name="a"), C.input_variable(2, name="b")
    second, first = C.layers.Dense(3)(b), C.layers.Dense(3)(a)  # the graph reads b before a
    f = C.minus(second, first)
    predict = C.Predictor(f, backend=backend)
    for size in (1, 3, 1, 1):
        x, y = data(size, 2), data(size, 2)
        expected = f.eval({a: x, b: y})
        for feeds in ({a: x, b: y}, {b: y, a: x}, {"a": x, "b": y}, {a: x.tolist(), b: y}):
            close(predict(feeds), expected)
            close(predict.submit(feeds).result(), expected)
    for sizes in ((2, 3), (1, 3)):  # ONNX broadcasts one sample
        with pytest.raises(ValueError, match="different numbers of sequences or samples"):
            predict({v: data(n, 2) for v, n in zip((a, b), sizes, strict=True)})
    with pytest.raises(ValueError):
        predict(data(1, 2))


def test_warm_compiles_what_requests_need(monkeypatch):
    monkeypatch.setattr("cntkjax.engine.run.few_rows.library", lambda: None)
    monkeypatch.setattr("cntkjax.engine.run.few_sequences.library", lambda: None)
    predict = C.Predictor(images())
    predict.warm(batch=[1, 8])
    program = predict._program.program
    number = len(program.executables)
    predict(data(1, 2, 8, 8))
    predict(data(8, 2, 8, 8))
    assert len(program.executables) == number > 0
    sequences = C.Predictor(tagger())
    sequences.warm(batch=2, lengths=[3, 6])
    number = len(sequences._program.program.executables)
    sequences(words(6, 6))
    assert len(sequences._program.program.executables) == number


def test_warm_names_an_input_of_a_free_dimension():
    x = C.input_variable(C.FreeDimension, name="any")
    with pytest.raises(ValueError, match="'any'.*free dimension"):
        C.Predictor(C.relu(x)).warm()


def test_outputs_that_are_computed_as_sparse_samples_are_those_of_eval():
    f = C.one_hot(C.input_variable(2), 3, sparse_output=True)
    predict, batch = C.Predictor(f), np.float32([[0, 2], [1, 1], [2, 0]])
    for _ in range(2):
        np.testing.assert_array_equal(predict(batch), f.eval(batch))


def test_wrong_data_are_reported_as_by_eval():
    predict = C.Predictor(mlp())
    for _ in range(2):
        with pytest.raises(ValueError, match="'x'"):
            predict(data(2, 5))
        with pytest.raises(ValueError, match="'x'"):
            predict.submit(data(2, 5))
        predict(data(2, 6))
    with pytest.raises(ValueError, match="called 'z'"):
        predict({"z": data(2, 6)})
    x = C.input_variable(1)
    with pytest.raises(ValueError, match="there is no backend 'tpu'|tpu"):
        C.Predictor(x + 1, backend="tpu")


@pytest.mark.parametrize("f, request_of", [(mlp(), lambda: data(2, 6)), (tagger(), lambda: words(3, 1))])
def test_threads_share_a_predictor(f, request_of):
    predict = C.Predictor(f)
    requests = [request_of() for _ in range(24)]
    expected = [f.eval(r) for r in requests]
    with ThreadPoolExecutor(6) as threads:
        for answer, right in zip(threads.map(predict, requests), expected, strict=True):
            close(answer, right)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f, request_of", [
    (mlp(), lambda n: data(n, 6)), (tagger(), lambda n: words(*range(1, n + 1))),
])
def test_submitted_requests_are_joined_and_divided_again(f, request_of, backend):
    predict = C.Predictor(f, max_batch=8, max_delay=0.05, backend=backend)
    requests = [request_of(n) for n in (1, 3, 2, 1, 9, 2)]
    answers = [predict.submit(r) for r in requests]
    for answer, r in zip(answers, requests, strict=True):
        close(answer.result(), f.eval(r))
    predict.close()
    with pytest.raises(RuntimeError, match="closed"):
        predict.submit(requests[0])


def test_what_depends_on_the_batch_is_not_joined():
    x = C.input_variable(1)
    mean = C.reduce_mean(x, axis=C.Axis.default_batch_axis())
    predict = C.Predictor(x - mean, max_delay=0.05)
    answers = [predict.submit([[1], [3]]), predict.submit([[10], [20]])]
    close([a.result().ravel() for a in answers], [[-1, 1], [-5, 5]])


def test_samples_that_others_or_their_places_decide_on_are_not_joined():
    x = C.input_variable(3)
    negatives = C.cosine_distance_with_negative_samples(x, x * [1, 2, 3], 1, 1)
    for f in (C.eye_like(x, sparse_output=False) + x, negatives):
        predict = C.Predictor(f, max_delay=0.05)
        requests = [data(2, 3), data(3, 3)]
        answers = [predict.submit(r) for r in requests]
        for answer, r in zip(answers, requests, strict=True):
            close(answer.result(), f.eval(r))


def test_requests_whose_longest_sequences_decide_on_the_answer_are_not_joined():
    x = C.sequence.input_variable(2)
    f = C.reduce_mean(C.sequence.unpack(x, 0, no_mask_output=True), axis=0)
    predict = C.Predictor(f, max_delay=0.05)
    answers = [predict.submit(np.ones((1, n, 2), np.float32)) for n in (3, 6, 3)]
    np.testing.assert_array_equal([a.result().ravel() for a in answers], np.ones((3, 2)))


def test_functions_of_the_user_whose_clone_is_another_are_those_of_eval():
    class Scaled(C.ops.functions.UserFunction):
        def __init__(self, x, scale, name="scaled"):
            super().__init__([x], name=name)
            self.scale = scale

        def infer_outputs(self):
            return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

        def forward(self, x, device=None, outputs_to_retain=None):
            return None, self.scale * x

    class WithDefault(Scaled):
        def __init__(self, x, scale=1, name="scaled"):
            super().__init__(x, scale, name)

    x = C.input_variable(2)
    for kind in (Scaled, WithDefault):  # the `clone` of one fails, that of the other forgets the scale
        inner = C.placeholder()
        f = C.as_block(C.user_function(kind(inner, 3)) + 1, [(inner, x)], "Block")
        np.testing.assert_array_equal(C.Predictor(f)([[1, 2]]), [[4, 7]])


def test_functions_of_the_user_are_called_in_each_run():
    class Scaled(C.ops.functions.UserFunction):
        calls = 0

        def __init__(self, x, name="Scaled"):
            super().__init__([x], name=name)

        def infer_outputs(self):
            return [C.output_variable(v.shape, v.dtype, v.dynamic_axes) for v in self.inputs]

        def forward(self, argument, device=None, outputs_to_retain=None):
            Scaled.calls += 1
            return None, 2 * argument

        def backward(self, state, root_gradients):
            raise NotImplementedError

    f = C.user_function(Scaled(C.layers.Dense(3)(C.input_variable(6))))
    predict, batch = C.Predictor(f), data(2, 6)
    for calls in (1, 2):
        close(predict(batch), f.eval(batch))
        assert Scaled.calls == 2 * calls


def test_a_request_at_fault_fails_alone():
    x = C.input_variable(1)
    table = C.constant(np.arange(3, dtype=np.float32))
    predict = C.Predictor(C.gather(table, x), max_delay=0.2)
    good, bad, other = (predict.submit([[i]]) for i in (1, 5, 2))
    close([good.result().ravel(), other.result().ravel()], [[1], [2]])
    with pytest.raises(IndexError):
        bad.result()


def test_a_full_queue_refuses():
    predict = C.Predictor(mlp(), max_batch=1, max_queue=1)
    futures = []
    with pytest.raises(queue.Full):
        for _ in range(10_000):
            futures.append(predict.submit(data(1, 6)))
    for future in futures:
        assert future.result().shape == (1, 3)


@pytest.mark.parametrize("options", [{"max_batch": 0}, {"max_queue": 0}, {"max_delay": -1}, {"max_delay": np.inf}])
def test_sizes_and_delays_with_which_nothing_can_be_joined_are_refused(options):
    with pytest.raises(ValueError, match="a batch and a queue of at least 1"):
        C.Predictor(C.input_variable(2) * 2, **options)


def test_a_predictor_is_freed_with_its_last_reference():
    predict = C.Predictor(mlp())
    predict.submit(data(1, 6)).result()
    reference = weakref.ref(predict)
    del predict
    gc.collect()
    assert reference() is None


def test_a_stream_carries_states_from_piece_to_piece():
    f = tagger()
    predict, (sequence,) = C.Predictor(f), words(7)
    (whole,) = f.eval([sequence])
    first, second = predict.stream(), predict.stream()
    for begin, end in ((0, 1), (1, 2), (2, 5), (5, 7)):
        close(first([sequence[begin:end]])[0], whole[begin:end])
        close(second([sequence[begin:end]])[0], whole[begin:end])
    with pytest.raises(ValueError, match="a stream is one"):
        first(words(2, 2))
    with pytest.raises(ValueError, match="piece by piece"):
        C.Predictor(mlp()).stream()


def test_what_looks_ahead_is_no_stream():
    x = C.sequence.input_variable(5)
    for f in (C.sequence.future_value(x), C.layers.Recurrence(C.layers.GRU(2), go_backwards=True)(x)):
        with pytest.raises(ValueError, match=r"FutureValue.* looks ahead"):
            C.Predictor(f).stream()


def test_what_needs_all_steps_is_no_stream_but_the_last_one_is():
    x = C.sequence.input_variable(5)
    for f in (
        C.sequence.reduce_sum(x), C.sequence.reduce_max(x), C.sequence.first(x), C.sequence.softmax(x),
        C.sequence.unpack(x, 0, no_mask_output=True), C.sequence.slice(x, 1, 0),
        C.layers.SequentialConvolution(2, 4)(x),
    ):
        with pytest.raises(ValueError, match="needs all steps at once"):
            C.Predictor(f).stream()
    (sequence,) = words(6)
    last = C.sequence.last(C.layers.Recurrence(C.layers.GRU(2))(x))
    step = C.Predictor(last).stream()
    for end in (4, 6):
        close(step([sequence[0 if end == 4 else 4 : end]]), last.eval([sequence[:end]]))


def test_random_numbers_go_on_from_call_to_call_as_those_of_eval_do():
    x = C.input_variable(3)
    f = C.random.normal_like(x, seed=5) + x
    predict = C.Predictor(f)
    for batch in (1, 1, 2, 1, 1, 2):
        data = np.ones((batch, 3), np.float32)
        np.testing.assert_allclose(predict(data), f.eval({x: data}), rtol=1e-5, atol=1e-6)


def test_threads_draw_different_random_numbers():
    predict = C.Predictor(C.random.uniform_like(C.input_variable(2), seed=5))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: predict(np.ones((1, 2), np.float32)).tobytes(), range(60)))
    assert len(set(answers)) == 60


def test_the_fastest_backend_computes_what_onnx_cannot():
    x = C.input_variable(3, is_sparse=True)
    f = C.layers.Dense(2)(x)
    predict = C.Predictor(f, backend="fastest")
    close(predict({x: C.Value.one_hot([1, 2], 3)}), f.eval({x: C.Value.one_hot([1, 2], 3)}))


def unpacked():
    x = C.sequence.input_variable(2)
    return C.reduce_mean(C.sequence.unpack(x, 0, no_mask_output=True), axis=0), [data(3, 2), data(5, 2)]


def sum_of_sequences():
    x = C.sequence.input_variable(2)
    return C.reduce_sum(C.sequence.reduce_sum(x), axis=C.Axis.all_axes()), [data(3, 2), data(5, 2)]


@pytest.mark.parametrize("f, sequences", [unpacked(), sum_of_sequences()])
def test_sequences_that_cannot_be_computed_one_by_one_are_left_to_jax(f, sequences):
    close(C.Predictor(f, backend="fastest")(sequences).ravel(), f.eval(sequences).ravel())
    predict = C.Predictor(f, backend="onnxruntime")
    close(predict(sequences[:1]).ravel(), f.eval(sequences[:1]).ravel())
    with pytest.raises(ValueError, match="one by one"):
        predict(sequences)


def test_what_onnx_runtime_does_not_implement_is_reported_or_left_to_jax():
    x = C.input_variable((2, 5, 5), dtype=np.float64)
    f = C.convolution(C.parameter((3, 2, 3, 3), dtype=np.float64, init=0.1), x)
    images = data(1, 2, 5, 5, dtype=np.float64)
    close(C.Predictor(f, backend="fastest")(images), f.eval(images))
    with pytest.raises(ValueError, match=r"does not take .*Convolution[\s\S]*NOT_IMPLEMENTED"):
        C.Predictor(f, backend="onnxruntime")


@pytest.mark.parametrize("backend", ["jax", "onnxruntime", "fastest"])
def test_data_of_arguments_that_the_outputs_do_not_depend_on_may_be_given_or_left_out(backend):
    a, b = C.input_variable(1, name="a"), C.input_variable(1, name="b")
    f = C.Function(lambda x, y: (y - x, y))(a, b).outputs[1] * 2
    x = np.array([[1], [3]], np.float32)
    predict = C.Predictor(f, backend=backend)
    for data in ({a: x, b: x}, {b: x}, {b: 2 * x, a: x}):
        np.testing.assert_array_equal(predict(data), 2 * data[b])
        np.testing.assert_array_equal(predict.submit(data).result(), 2 * data[b])
    with pytest.raises(ValueError, match="has 2 arguments"):
        predict(x)


def test_the_fastest_backend_is_chosen_once_for_each_shape():
    f = images()
    predict = C.Predictor(f, backend="fastest")
    answers = [predict(np.ones((n, 2, 8, 8), np.float32)) for n in (1, 3, 1)]
    assert list(predict._direct) == [((1, 2, 8, 8),), ((3, 2, 8, 8),)]
    np.testing.assert_array_equal(answers[0], answers[2])


def test_a_user_function_along_an_axis_that_the_graph_creates_is_predicted():
    class Squared(C.ops.functions.UserFunction):
        def __init__(self, operand, name="squared"):
            super().__init__([operand], name=name)

        def infer_outputs(self):
            (operand,) = self.inputs
            return [C.output_variable(operand.shape, operand.dtype, operand.dynamic_axes)]

        def forward(self, values, device=None, outputs_to_retain=None):
            return None, [v * v for v in values]

    steps = C.sequence.input_variable(1)
    positive = C.sequence.gather(steps, C.greater(C.reduce_sum(steps), 0))
    f = C.user_function(Squared(positive)) + 1
    data = [np.array([[1], [-2], [3]], np.float32), np.array([[-1], [2]], np.float32)]
    for values in (f.eval({steps: data}), C.Predictor(f)({steps: data})):
        assert [v.tolist() for v in values] == [[[2], [10]], [[5]]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_forked_process_answers_what_is_submitted_there():
    predict, batch = C.Predictor(mlp(), max_queue=1), data(1, 6)
    expected = predict.submit(batch).result()
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(predict.submit(batch).result(60), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(predict.submit(batch).result(), expected)
