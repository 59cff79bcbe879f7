"""Factored and binary layers compute their formulas; numbers without a formula are CNTK 2.7's."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.contrib import netopt
from cntkjax.contrib.netopt import factorization, quantization
from cntkjax.ops._user_functions import from_file

X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def network():
    x = C.input_variable(5, name="x")
    return C.layers.Sequential([
        C.layers.Dense(5, activation=C.relu, init_bias=0.1, name="first"), C.layers.Dense(3, name="second")
    ])(x)


def blocks(model, op):
    return C.logging.graph.depth_first_search(model, lambda f: getattr(f, "op_name", "") == op)


def test_all_singular_vectors_give_the_same_network():
    model = network()
    factored = factorization.factor_dense(model, projection_function=len)
    assert [b.name for b in blocks(factored, "DenseFactored")] == ["second", "first"]
    expected = model.eval({model.arguments[0]: X})
    np.testing.assert_allclose(factored.eval({factored.arguments[0]: X}), expected, rtol=1e-4, atol=1e-5)


def test_fewer_singular_vectors_give_smaller_layers_if_the_filter_matches():
    factored = factorization.factor_dense(network(), lambda W: 2, filter_function=lambda block: block.name == "second")
    assert {(p.name, p.shape) for p in factored.parameters} == {
        ("W1", (5, 2)), ("W2", (2, 3)), ("b", (3,)), ("W", (5, 5)), ("b", (5,))
    }


def test_user_defined_factors_and_their_errors():
    model = network()
    factored = factorization.factor_dense(model, factor_function=lambda W: (W, np.eye(W.shape[1])))
    np.testing.assert_allclose(
        factored.eval({factored.arguments[0]: X}), model.eval({model.arguments[0]: X}), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="projection_function"):
        factorization.factor_dense(model)
    with pytest.raises(ValueError, match=r"factors of shapes \(5, 2\) and \(3, 3\)"):
        factorization.factor_dense(model, factor_function=lambda W: (W[:, :2], np.eye(3)))
    with pytest.raises(ValueError, match=r"factors of shapes \(5, 0\) and \(0, 5\)"):
        factorization.factor_dense(model, projection_function=lambda W: 0)


def test_a_factored_layer():
    layer = factorization.dense_factored((2, 3), activation=C.tanh, name="f")
    values = layer(C.input_variable(5))
    assert (values.root_function.op_name, values.name) == ("DenseFactored", "f")
    W1, W2, b = values.W1.value, values.W2.value, values.b.value
    np.testing.assert_allclose(values.eval(X), np.tanh(X @ W1 @ W2 + b), rtol=1e-5)
    for init in ({"W1": None}, {"W": 1}):
        with pytest.raises(ValueError, match="W1 and W2"):
            factorization.dense_factored((2, 3), init=init)


VALUES = np.float32([0.1, -0.2, 1.2, 2.5, -3.1, 0, 5, -1.9])
BITS = {
    1: ([1.75, -1.75, 1.75, 1.75, -1.75, -1.75, 1.75, -1.75], [1, 1, 0, 0, 0, 1, 0, 0]),
    2: ([0.375, -0.375, 0.375, 3.125, -3.125, -0.375, 3.125, -3.125], [1, 1, 1, 0, 0, 1, 0, 1]),
    3: ([-0.3, 0.3, 1.05, 2.45, -2.45, 0.3, 3.8, -2.45], [1, 1, 1, 1, 0, 1, 0, 1]),
}


@pytest.mark.parametrize("bits", BITS)
def test_bits_of_values_and_their_gradients(bits):
    w = C.parameter(8, init=VALUES)
    values = quantization.CustomMultibit(w, bits)
    np.testing.assert_allclose(values.eval(), BITS[bits][0], rtol=1e-5)
    np.testing.assert_array_equal(values.grad({}, [w]), BITS[bits][1])


def test_bits_may_differ_by_element():
    values = quantization.CustomMultibit(C.constant(VALUES), np.array([1, 1, 2, 2, 1, 1, 2, 1])).eval()
    np.testing.assert_allclose(values, [1.75, -1.75, 0.2333333, 3.266667, -1.75, -1.75, 3.266667, -1.75], rtol=1e-5)
    two = quantization.CustomMultibit(C.constant(VALUES), 1, mean_bits=2).eval()
    np.testing.assert_allclose(two, BITS[2][0], rtol=1e-5)


@pytest.mark.parametrize("bits", [0, 1.5, [1, 2]])
def test_invalid_maps_of_bits(bits):
    with pytest.raises(ValueError, match="bits"):
        quantization.CustomMultibit(C.constant(VALUES), bits)


def test_each_sample_and_each_kernel_has_its_own_scale():
    x = C.input_variable(4)
    values = quantization.CustomMultibit(x, 1).eval({x: VALUES.reshape(2, 4)})
    np.testing.assert_allclose(values, [[1, -1, 1, 1], [-2.5, -2.5, 2.5, -2.5]], rtol=1e-6)
    kernels = quantization.CustomMultibitKernel(C.constant(VALUES.reshape(2, 4)), 1).eval()
    np.testing.assert_allclose(kernels, values, rtol=1e-6)


def test_the_gradient_of_the_sign():
    y = C.input_variable(3, needs_gradient=True)
    data = np.float32([[-2, -1, -0.3], [0, 0.5, 1], [1.5, 3, -0.0]])
    signs = quantization.CustomPySign(y)
    np.testing.assert_array_equal(signs.eval({y: data}), np.where(data > 0, 1, -1))
    np.testing.assert_array_equal(signs.grad({y: data}), [[0, 1, 1], [1, 1, 1], [0, 0, 1]])


def convolutions():
    x = C.input_variable((1, 8, 8), name="x")
    first = C.layers.Convolution2D((3, 3), 4, activation=C.relu, pad=True, name="first")(x)
    return C.layers.Convolution2D((3, 3), 2, strides=2, bias=False, name="second")(first)


def test_convolutions_become_binary_and_keep_bias_and_activation(tmp_path):
    model = convolutions()
    binary = quantization.convert_to_binary_convolution(model)
    assert len(blocks(binary, "BinaryConvolution")) == 2 and len(blocks(binary, "ReLU")) == 1
    assert [(p.name, p.shape) for p in binary.parameters] == [
        ("filter", (2, 4, 3, 3)), ("filter", (4, 1, 3, 3)), ("b", (4, 1, 1))
    ]
    only = quantization.convert_to_binary_convolution(model, lambda block: block.name == "second")
    assert len(blocks(only, "BinaryConvolution")) == 1
    data = np.random.default_rng(1).normal(size=(2, 1, 8, 8)).astype(np.float32)
    before = C.combine([model.find_by_name("first").output]).eval({model.arguments[0]: data})
    W = model.second.W.value
    scale = np.abs(before).mean((1, 2, 3), keepdims=True) * np.abs(W).mean()
    signs = C.convolution(np.where(W > 0, 1, -1).astype(np.float32), C.input_variable((4, 8, 8)),
                          auto_padding=[False], strides=(2, 2, 2))
    expected = signs.eval(np.where(before > 0, 1, -1).astype(np.float32)) * scale
    binary = only.eval({only.arguments[0]: data})
    np.testing.assert_allclose(binary, expected, rtol=1e-4, atol=1e-5)
    only.save(tmp_path / "m")
    loaded = C.load_model(tmp_path / "m")
    np.testing.assert_allclose(loaded.eval({loaded.arguments[0]: data}), binary, rtol=1e-5)


def test_binary_networks_learn():
    binary = quantization.convert_to_binary_convolution(convolutions())
    y = C.input_variable(binary.shape)
    loss = C.reduce_mean(C.square(binary - y))
    trainer = C.Trainer(binary, (loss, None), [C.adam(binary.parameters, 0.05, 0.9)])
    random = np.random.default_rng(2)
    data = random.normal(size=(8, 1, 8, 8)).astype(np.float32)
    goal = random.normal(size=(8, *binary.shape)).astype(np.float32)
    losses = []
    for _ in range(30):
        trainer.train_minibatch({binary.arguments[0]: data, y: goal})
        losses.append(trainer.previous_minibatch_loss_average)
    assert losses[-1] < 0.9 * losses[0]


def test_binary_layer_and_names_of_the_native_library():
    layer = quantization.binary_convolution((3, 3), num_filters=2, channels=1, pad=True)
    function = layer(C.input_variable((1, 4, 4)))
    assert function.shape == (2, 4, 4) and function.root_function.op_name == "BinaryConvolution"
    trained = []
    model = convolutions()
    assert quantization.binarize_convolution(model, trained.append) is trained[0]
    assert netopt.native_convolve_function_registered is False
    netopt.try_register_native_convolve_function()


def test_the_names_of_cntks_classes_are_functions_that_user_function_takes():
    x = C.input_variable(3, name="x")
    data = np.array([[1, -2, 4]], np.float32)
    ops = netopt.custom_convolution_ops
    for operation, expected in ((ops.SignWithEstimation(x, name="s"), [[1, -1, 1]]), (ops.pySign(x), [[1, -1, 1]]),
                                (ops.Multibit(x, np.array([1, 1, 1])), [[7 / 3, -7 / 3, 7 / 3]])):
        np.testing.assert_allclose(C.user_function(operation).eval({x: data}), expected, rtol=1e-6)
    assert ops.SignWithEstimation(x, name="s").name == "s"
    kernel = C.constant(np.array([[1, -2], [3, 5]], np.float32))
    np.testing.assert_allclose(ops.MultibitKernel(kernel, np.ones((2, 2), int)).eval(), [[1.5, -1.5], [4, 4]])


def test_few_bits_in_a_model_of_cntk_are_loaded():
    record = {"module": "cntk.contrib.netopt.custom_convolution_ops", "class": "Multibit",
              "state": {"bit_map": np.array([2, 2, 2], np.float32)}}  # as CNTK 2.7 writes it
    function = from_file(record, [C.input_variable(3)], "bits")
    np.testing.assert_allclose(
        C.combine([function]).eval([[-1, 0, 1]]), [[-1.1111112, -0.22222227, 1.1111112]], rtol=1e-6
    )


def test_convolutions_of_onnx_files_are_left_as_they_are(tmp_path):
    """Their kernels are operands, and their padding is no automatic one."""
    pytest.importorskip("onnx")
    path = str(tmp_path / "model.onnx")
    C.layers.Convolution2D((3, 3), 2, pad=True)(C.input_variable((1, 5, 5))).save(path, format=C.ModelFormat.ONNX)
    model = C.Function.load(path, format=C.ModelFormat.ONNX)
    image = np.ones((1, 1, 5, 5), np.float32)
    values = quantization.convert_to_binary_convolution(model).eval({model.arguments[0]: image})
    np.testing.assert_array_equal(values, model.eval({model.arguments[0]: image}))
