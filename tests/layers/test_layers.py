"""Layers: parameters and graphs are those of CNTK 2.7, values and gradients are compared with NumPy."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.graph.function import nodes

S = C.sequence
x, image, s = C.input_variable(5), C.input_variable((3, 8, 8)), S.input_variable(5)


def parameters(layer, operand):
    return [(p.name, p.shape) for p in layer(operand).parameters]


def graph(f):
    """Names of operations, operands first, with blocks expanded."""
    return " ".join(n.op_name for n in nodes([f.root_function], into_blocks=True))


# Names and shapes as CNTK 2.7 has them, in its order.
PARAMETERS = {
    "Dense": (L.Dense((4, 2)), image, [("W", (3, 8, 8, 4, 2)), ("b", (4, 2))]),
    "Dense, map_rank": (L.Dense(4, map_rank=1), image, [("W", (8, 8, 4)), ("b", (4,))]),
    "Dense, input_rank": (L.Dense(4, input_rank=1), image, [("W", (8, 4)), ("b", (4,))]),
    "Dense without bias": (L.Dense(4, bias=False), x, [("W", (5, 4))]),
    "Embedding": (L.Embedding(3), x, [("E", (5, 3))]),
    "Embedding of given weights": (L.Embedding(weights=np.ones((5, 3))), x, []),
    "Convolution2D": (L.Convolution2D(3, 4), image, [("W", (4, 3, 3, 3)), ("b", (4, 1, 1))]),
    "Convolution2D, one filter": (L.Convolution2D((3, 3)), image, [("W", (1, 3, 3, 3)), ("b", (1, 1, 1))]),
    "Convolution, no channels": (
        L.Convolution2D(3, 4, reduction_rank=0), C.input_variable((8, 8)), [("W", (4, 1, 3, 3)), ("b", (4, 1, 1))]
    ),
    "ConvolutionTranspose2D": (L.ConvolutionTranspose2D(3, 4), image, [("W", (3, 4, 3, 3)), ("b", (4, 1, 1))]),
    "Convolution along a sequence": (
        L.Convolution((3, 3), 4, sequential=True), S.input_variable((2, 8)), [("W", (4, 2, 3, 3)), ("b", (4, 1, 1))]
    ),
    "SequentialConvolution": (
        L.SequentialConvolution((3, 3), 4), S.input_variable((2, 8)), [("W", (4, 2, 3, 3)), ("b", (4, 1))]
    ),
    "BatchNormalization": (L.BatchNormalization(map_rank=1), image, [("scale", (3,)), ("bias", (3,))]),
    "LayerNormalization": (L.LayerNormalization(), x, [("scale", (5,)), ("bias", (5,))]),
    "Stabilizer": (L.Stabilizer(), x, [("alpha", ())]),
    "LSTM": (L.Recurrence(L.LSTM(4)), s, [("b", (16,)), ("W", (5, 16)), ("H", (4, 16))]),
    "GRU": (L.Recurrence(L.GRU(4)), s, [("b", (12,)), ("W", (5, 12)), ("H", (4, 8)), ("H1", (4, 4))]),
    "RNNStep": (L.Recurrence(L.RNNStep(4)), s, [("W", (5, 4)), ("H", (4, 4)), ("b", (4,))]),
    "LSTM, all options": (
        L.Recurrence(L.LSTM(4, cell_shape=6, use_peepholes=True, enable_self_stabilization=True)), s,
        [("P", (6, 4)), ("alpha", ()), ("b", (24,)), ("W", (5, 24)), ("H", (4, 24)), ("alpha", ()), ("Co", (6,)),
         ("alpha", ()), ("Cf", (6,)), ("alpha", ()), ("Ci", (6,))],
    ),
    "Sequential": (
        L.Sequential([L.Dense(3), L.Dense(2)]), x, [("W", (3, 2)), ("b", (2,)), ("W", (5, 3)), ("b", (3,))]
    ),
}

# Layers against NumPy: a constructor, the shape of a sample, and the output for a sample and the parameters by name.
# A new layer gets a row here: its values, gradients, and what a model file restores are checked.
REFERENCES = {
    "Dense": (lambda: L.Dense(2, activation=C.tanh), (3,), lambda x, W, b: np.tanh(x @ W + b)),
    "Embedding": (lambda: L.Embedding(2), (3,), lambda x, E: x @ E),
    "LayerNormalization": (
        lambda: L.LayerNormalization(epsilon=0.5), (3,),
        lambda x, scale, bias: (x - x.mean()) / (x.std() + 0.5) * scale + bias,
    ),
    "Stabilizer": (lambda: L.Stabilizer(steepness=3), (3,), lambda x, alpha: x * np.log1p(np.exp(3 * alpha)) / 3),
    "ResNetBlock": (lambda: L.ResNetBlock(L.Dense(3)), (3,), lambda x, W, b: x @ W + b + x),
}

# Operations from the operands to the root, as in CNTK 2.7.
GRAPHS = {
    "Dense": (L.Dense(4, activation=C.relu)(x), "Times Plus ReLU Dense"),
    "Dense without activation": (L.Dense(4)(x), "Times Plus Dense"),
    "Activation of nothing": (L.Activation()(x), "Combine Activation"),
    "Dropout": (L.Dropout(0.5)(x), "Dropout Dropout"),
    "MaxPooling": (L.MaxPooling((2, 2), strides=2)(image), "Pooling MaxPooling"),
    "GlobalAveragePooling": (L.GlobalAveragePooling()(image), "Pooling GlobalAveragePooling"),
    "Label": (L.Label("here")(x), "NoOp"),
    "Delay": (L.Delay(-2)(s), "FutureValue Delay"),
    "Delay by nothing": (L.Delay(0)(s), "Combine Delay"),
    "ResNetBlock": (L.ResNetBlock(L.Dense(5))(x), "Times Plus Dense Plus"),
    "SequentialClique": (
        L.SequentialClique([L.Dense(5), L.Dense(5)])(x), "Times Plus Dense Plus Times Plus Dense"
    ),
    "Recurrence": (L.Recurrence(C.plus)(s), "PastValue Plus Combine"),
    "named Recurrence": (
        L.Recurrence(L.RNNStep(3), name="here")(s), "PastValue Times Times Plus Plus StableSigmoid RNNStep NoOp"
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_have_the_names_and_shapes_of_cntk(name):
    layer, operand, expected = PARAMETERS[name]
    assert parameters(layer, operand) == expected


@pytest.mark.parametrize("name", REFERENCES)
class TestReferences:
    def layer_and_samples(self, name):
        make, shape, reference = REFERENCES[name]
        with C.default_options(dtype=np.float64):
            f = make()(C.input_variable(shape, np.float64, name="x"))
        rng = np.random.default_rng(1)
        for p in f.parameters:
            p.value = p.value + 0.1 * rng.standard_normal(p.shape)
        samples = rng.standard_normal((4, *shape))
        return f, samples, lambda values: np.stack([reference(sample, **values) for sample in samples])

    def test_values_match_numpy_and_survive_a_file(self, name, tmp_path):
        f, samples, reference = self.layer_and_samples(name)
        values = f.eval({f.arguments[0]: samples})
        np.testing.assert_allclose(values, reference({p.name: p.value for p in f.parameters}), rtol=1e-9)
        f.save(str(tmp_path / "model"))
        loaded = C.load_model(str(tmp_path / "model"))
        np.testing.assert_array_equal(loaded.eval({loaded.arguments[0]: samples}), values)

    def test_gradients_match_finite_differences(self, name):
        f, samples, reference = self.layer_and_samples(name)
        gradients = f.grad({f.arguments[0]: samples}, wrt=f.parameters, as_numpy=True)
        gradients = gradients if isinstance(gradients, dict) else {f.parameters[0]: gradients}
        values = {p.name: p.value for p in f.parameters}
        for p in f.parameters:
            expected = np.zeros(p.shape)
            for index in np.ndindex(p.shape):
                step = np.zeros(p.shape)
                step[index] = 1e-6
                up, down = (reference({**values, p.name: values[p.name] + s}).sum() for s in (step, -step))
                expected[index] = (up - down) / 2e-6
            np.testing.assert_allclose(gradients[p], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph_is_that_of_cntk(name):
    f, expected = GRAPHS[name]
    assert sorted(graph(f).split()) == sorted(expected.split())


def test_dense_is_an_affine_map_and_an_activation():
    layer = L.Dense(2, activation=C.tanh, init_bias=0.5)(x)
    W, b = layer.parameters
    data = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(layer.eval({x: data}), np.tanh(data @ W.value + b.value), rtol=1e-5)


def test_embedding_looks_up_rows():
    indices = C.input_variable(5, is_sparse=True)
    layer = L.Embedding(3)(indices)
    one_hot = np.eye(5, dtype=np.float32)[[4, 0]]
    np.testing.assert_array_equal(layer.eval({indices: one_hot}), layer.E.value[[4, 0]])


def test_scales_and_biases_of_normalizations_have_initializers():
    """The numbers are those that CNTK draws."""
    x, scale = C.input_variable(4), C.initializer.uniform(1, seed=2)
    drawn = [0.8072081, 0.7004723, 0.567641, 0.8506342]
    layers = L.BatchNormalization(init_scale=scale)(x), L.LayerNormalization(scale, initial_bias=scale)(x)
    for parameter in (layers[0].scale, layers[1].scale, layers[1].bias):
        np.testing.assert_allclose(parameter.value, drawn, rtol=1e-5)


def test_layer_normalization_adds_epsilon_to_the_deviation():
    layer = L.LayerNormalization(initial_scale=2, initial_bias=1, epsilon=0.5)(x)
    data = np.arange(10, dtype=np.float32).reshape(2, 5) ** 2
    centered = data - data.mean(1, keepdims=True)
    expected = centered / (np.sqrt((centered**2).mean(1, keepdims=True)) + 0.5) * 2 + 1
    np.testing.assert_allclose(layer.eval({x: data}), expected, rtol=1e-5)


def test_stabilizer_is_the_identity_at_first():
    data = np.ones((1, 5), np.float32)
    np.testing.assert_allclose(L.Stabilizer(steepness=3)(x).eval({x: data}), data, rtol=1e-6)
    assert L.Stabilizer(enable_self_stabilization=False) is L.identity


def test_global_pooling_takes_all_axes_but_the_channels():
    data = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    for layer, reduce in ((L.GlobalAveragePooling(), np.mean), (L.GlobalMaxPooling(), np.max)):
        expected = reduce(data, axis=(2, 3), keepdims=True)
        np.testing.assert_allclose(layer(image).eval({image: data}), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", [C.sin, C.relu])
def test_global_pooling_of_scalars_leaves_them(activation):
    x = C.input_variable((), needs_gradient=True)
    of = activation(x)
    data = np.array([1, -2], np.float32)
    for layer in (L.GlobalAveragePooling(), L.GlobalMaxPooling()):
        np.testing.assert_array_equal(layer(of).eval({x: data}), of.eval({x: data}))
        np.testing.assert_array_equal(C.combine([layer(of)]).grad({x: data}), of.grad({x: data}))


class TestDefaults:
    def test_options_apply_to_all_layers_in_their_scope(self):
        with C.default_options(activation=C.relu, bias=False, init=1):
            assert graph(L.Dense(2)(x)) == "Times ReLU Dense"
            assert parameters(L.Convolution2D(3, 4), image) == [("W", (4, 3, 3, 3))]

    def test_options_for_one_layer_do_not_apply_to_others(self):
        with C.default_options_for(L.Convolution2D, pad=True):
            assert L.Convolution2D(3, 4)(image).shape == (4, 8, 8)
            assert L.MaxPooling((3, 3))(image).shape == (3, 6, 6)

    def test_an_argument_takes_precedence(self):
        with C.default_options(bias=False):
            assert len(L.Dense(2, bias=True)(x).parameters) == 2


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda: L.Dense(3, input_rank=1, map_rank=1), ValueError, "input_rank and map_rank"),
        (lambda: L.Embedding(), ValueError, "output shape must be specified"),
        (lambda: L.Embedding(3, weights=np.ones((2, 3))), ValueError, "must not be specified when weights"),
        (lambda: L.Embedding(init=0, weights=np.ones((2, 3))), ValueError, "mutually exclusive"),
        (lambda: L.Dropout(), ValueError, "either dropout_rate or keep_prob"),
        (lambda: L.Dropout(0.1, keep_prob=0.5), ValueError, "at the same time"),
        (lambda: L.Dropout(1.2), ValueError, r"interval \[0,1\)"),
        (lambda: L.Convolution2D((3, 3, 3), 4), ValueError, "filter_shape must be a scalar or a 2D tuple"),
        (lambda: L.Convolution((3, 3), 4, strides=(1, 2, 3)), ValueError, "strides parameter"),
        (lambda: L.Convolution((3, 3), 4, reduction_rank=2), NotImplementedError, "reduction_rank must be 0 or 1"),
        (lambda: L.Convolution2D((3, 3), 6, groups=3), ValueError, "groups > 1"),
        (lambda: L.BatchNormalization(map_rank=2), NotImplementedError, "map_rank can only be 1 or None"),
        (lambda: L.LSTM((2, 3)), ValueError, "must be vectors"),
        (lambda: L.AttentionModel(4, attention_span=3), ValueError, "attention_axis cannot be None"),
        (lambda: L.blocks._initializer_for(None), ValueError, "init parameter cannot be None"),
        (lambda: L.Sequence[3], TypeError, "the type of a step"),
    ],
)
def test_invalid_options_are_errors(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize("make", [
    lambda: L.Dense(2, activation=C.relu), lambda: L.LayerNormalization(), lambda: L.BatchNormalization(),
    lambda: L.Dropout(0.5), lambda: L.Embedding(2), lambda: L.Sequential([L.Dense(3), C.tanh, L.Dense(2)]),
])
def test_layers_are_double_by_default_option(make):
    with C.default_options(dtype=np.float64):
        layer = make()(C.input_variable(5))
    assert {v.dtype for v in (*layer.parameters, *layer.outputs)} == {np.float64}
    assert layer.eval({layer.arguments[0]: np.ones((2, 5))}).dtype == np.float64
