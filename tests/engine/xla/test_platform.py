"""What is lowered in one way for CPUs and in another for GPUs has the same values and gradients."""

import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import cntk as C
from benchmarks.tracing import trace_for
from cntkjax.engine.lower.rows import sum_rows
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla.platform import LOWERINGS, lowering, lowering_for, platform

L = C.layers


def image(*shape):
    return C.input_variable(shape, needs_gradient=True), np.random.default_rng(1).normal(size=(5, *shape))


def sequences(width):
    random = np.random.default_rng(2)
    x = C.sequence.input_variable(width, needs_gradient=True)
    return x, [random.normal(size=(n, width)).astype(np.float32) for n in (6, 3, 7, 1)]


def pooled(**options):
    x, data = image(4, 9, 8)
    return C.pooling(x, C.MAX_POOLING, (3, 2), **options), data


def tied_maxima():
    x = C.input_variable((1, 6, 6), needs_gradient=True)
    return C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2)), np.ones((2, 1, 6, 6))


def rectified(**options):
    """Most windows have negative values only."""
    x, data = image(4, 9, 8)
    return C.pooling(C.relu(x), C.MAX_POOLING, (2, 2), **options), np.round(data - 1, 1)


def grouped(groups, channels):
    x, data = image(8, 6, 7)
    w = C.parameter((channels, 8 // groups, 3, 3), init=C.glorot_uniform(seed=1))
    return C.convolution(w, x, groups=groups, auto_padding=[False, True, True]), data


def three_dimensions():
    x, data = image(2, 5, 6, 7)
    w = C.parameter((3, 2, 3, 3, 2), init=C.glorot_uniform(seed=1))
    return C.convolution(w, x, auto_padding=[False, True, True, True]), data


def transposed():
    x, data = image(3, 4, 5)
    w = C.parameter((3, 2, 4, 2), init=C.glorot_uniform(seed=1))
    return C.convolution_transpose(w, x, strides=(2, 2), auto_padding=[False, True, True]), data


def normalized():
    x, data = image(3, 5, 4)
    data = data + 10  # the mean is not 0
    return C.layers.BatchNormalization(map_rank=1)(x), data


def recurrent(layer):
    x, data = sequences(4)
    return L.Sequential([layer, L.Recurrence(L.GRU(3, init=C.glorot_uniform(seed=2)), go_backwards=True)])(x), data


def both(layer, other=None, seed=4):
    """One layer in both directions, or two of equal structure in one."""
    initial = C.constant(np.linspace(-1, 1, 3, dtype=np.float32))

    def recurrence(cell, backwards, seed):
        cell = cell(3, init=C.glorot_uniform(seed=seed), enable_self_stabilization=True)
        return L.Recurrence(cell, go_backwards=backwards, initial_state=initial if backwards else 0.5)

    return (recurrence(layer, False, seed), recurrence(other or layer, other is None, seed + 1)), C.splice


def side_by_side(*layers, equal=False):
    x, data = sequences(4)
    data = [data[2], data[2] + 1] if equal else data
    return L.Sequential(list(layers))(x), data


def attentive():
    """A GRU whose steps read all steps of its input, weighted by its state."""
    x, data = sequences(4)
    attend, cell = (layer(6, init=C.glorot_uniform(seed=8)) for layer in (L.AttentionModel, L.GRU))

    @C.Function
    def network(x):
        @C.Function
        def step(state, now):
            return cell(state, C.splice(now, attend(x, state)))

        return L.Recurrence(step)(x)

    return network(x), data


def biased():
    """A recurrence whose bias, peephole and scale are the same in each step."""
    x, data = sequences(4)
    w, b, p, s = (C.parameter(shape, init=C.normal(0.5, seed=9)) for shape in ((4, 4), 4, 4, ()))

    @C.Function
    def step(state, now):
        return C.tanh(C.times(state, w) + b + p * state + s * now)

    return L.Recurrence(step)(x), data


def stack(cell, equal=False, **options):
    x, data = sequences(4)
    data = [data[2], data[2] + 1] if equal else data
    weights = C.parameter((C.InferredDimension, 5), init=C.glorot_uniform(seed=3))
    return C.optimized_rnnstack(x, weights, 5, 2, recurrent_op=cell, **options), data


def long_rows():
    x, data = image(5000)
    return C.reduce_sum(x, axis=C.Axis.all_axes()), data


CASES = {
    "pooling": pooled,
    "pooling with strides": lambda: pooled(strides=(2, 3)),
    "pooling with padding": lambda: pooled(strides=(2, 2), auto_padding=[True, False]),
    "pooling with ceil": lambda: pooled(strides=(2, 2), ceil_out_dim=True),
    "pooling of equal values": tied_maxima,
    "pooling of relu": rectified,
    "pooling of relu with padding": lambda: rectified(strides=(2, 2), auto_padding=[True, True]),
    "groups": lambda: grouped(4, 12),
    "depthwise": lambda: grouped(8, 16),
    "3-d convolution": three_dimensions, "transposed convolution": transposed,
    "batch normalization": normalized,
    "LSTM": lambda: recurrent(L.Recurrence(L.LSTM(3, init=C.glorot_uniform(seed=1)))),
    "LSTMs in both directions": lambda: side_by_side(*both(L.LSTM), *both(L.LSTM, seed=6)),
    "GRUs in both directions, equal lengths": lambda: side_by_side(*both(L.GRU), equal=True),
    "two GRUs in one direction": lambda: side_by_side(*both(L.GRU, L.GRU)),
    "an LSTM beside a GRU": lambda: side_by_side(*both(L.LSTM, L.GRU)),
    "attention": attentive, "a bias in each step": biased,
    "stack of LSTMs": lambda: stack("lstm"),
    "stack of GRUs in both directions": lambda: stack("gru", bidirectional=True),
    "stack of LSTMs in both directions, equal lengths": lambda: stack("lstm", equal=True, bidirectional=True),
    "sum of long rows": long_rows,
}


def values_and_gradients(name, on):
    """The value in training, and the gradients of the input and all parameters for some gradient of the value."""
    programs.clear()
    with lowering_for(on):
        f, data = CASES[name]()
        (x,) = f.arguments
        feed = {x: data if isinstance(data, list) else data.astype(np.float32)}
        state, values = f.forward(feed, [f.output], keep_for_backward=[f.output])
        root = jax.tree.map(lambda v: np.sin(np.arange(v.size, dtype=np.float32)).reshape(v.shape), values[f.output])
        gradients = f.backward(state, {f.output: root}, {x, *f.parameters})
        ordered = [gradients[x], *(gradients[p] for p in f.parameters)]
    programs.clear()
    return [values[f.output], *ordered]


@pytest.mark.parametrize("name", CASES)
def test_both_lowerings_have_equal_values_and_gradients(name):
    for a, b in zip(values_and_gradients(name, "cpu"), values_and_gradients(name, "gpu"), strict=True):
        assert jax.tree.structure(a) == jax.tree.structure(b)
        for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * max(1, np.abs(one).max()))


def filters():
    """A network with filters and batch normalization, its input, and what makes data."""
    x, init = C.input_variable((2, 6, 6)), C.glorot_uniform(seed=1)

    def filtered():
        return L.Convolution2D(3, 4, init=init, pad=True, bias=False), L.BatchNormalization(map_rank=1), C.relu

    z = L.Sequential([*filtered(), *filtered(), L.Dense(3, init=init)])(x)
    return z, x, lambda random: random.random((8, 2, 6, 6), np.float32)


def embedding():
    """The same of an embedding."""
    x, init = C.sequence.input_variable(20, is_sparse=True), C.glorot_uniform(seed=1)
    z = L.Sequential([L.Embedding(5, init=init), C.sequence.last, L.Dense(3, init=init)])(x)
    return z, x, lambda random: C.Value.one_hot([random.integers(20, size=n).tolist() for n in range(1, 9)], 20)


def trained(on, network, learner):
    """Parameters, statistics and losses after three steps."""
    programs.clear()
    with lowering_for(on):
        z, x, data = network()
        y = C.input_variable(3)
        trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [learner(z.parameters)])
        random, losses = np.random.default_rng(3), []
        for _ in range(3):
            labels = np.eye(3, dtype=np.float32)[random.integers(3, size=8)]
            trainer.train_minibatch({x: data(random), y: labels})
            losses.append(trainer.previous_minibatch_loss_average)
        leaves = [*z.parameters, *z.constants]
    programs.clear()
    return [*losses, *(np.asarray(p.value) for p in leaves)]


@pytest.mark.parametrize("network, counts", [(filters, 2), (embedding, 0)])
@pytest.mark.parametrize("learner", [
    lambda p: C.momentum_sgd(p, 0.1, 0.9), lambda p: C.adam(p, 0.01, 0.9), lambda p: C.sgd(p, 0.1),
], ids=["momentum", "adam", "sgd"])
def test_both_lowerings_train_alike(network, counts, learner):
    ours, others = trained("cpu", network, learner), trained("gpu", network, learner)
    assert sum(np.all(a == 3 * 8) for a in ours) == counts  # of minibatches' samples
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("height", [4, 300])
def test_both_lowerings_sum_the_same_rows(height):
    """Repeated ones, all the same, and padding."""
    indices = np.random.default_rng(4).integers(height + 9, size=60).astype(np.int32)
    for some in (indices, indices[:1], np.full(5, 2, np.int32), np.full(3, height, np.int32)):
        values = np.arange(2 * len(some), dtype=np.float32).reshape(-1, 2)
        ours = sum_rows(jnp.array(some), jnp.array(values), height)
        with lowering_for("gpu"):
            others = sum_rows(jnp.array(some), jnp.array(values), height)
        np.testing.assert_array_equal(others.indices, ours.indices)
        kept = ours.indices < height  # rows of padding are never read
        np.testing.assert_array_equal(others.values[kept], ours.values[kept])


@pytest.mark.parametrize("name", [name for name in CASES if "direction" in name])
def test_both_lowerings_evaluate_alike(name):
    def value(on):
        programs.clear()
        with lowering_for(on):
            f, data = CASES[name]()
            return f.eval({f.arguments[0]: data})

    for one, other in zip(value("cpu"), value("gpu"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    programs.clear()


@pytest.fixture
def float32():
    yield
    C.device.set_matmul_precision("float32")


def precisions_of_products():
    """What the program of a product asks of a GPU."""
    programs.clear()
    x = C.input_variable(3)
    f = C.times(x, C.parameter((3, 2), init=1))
    device = SingleDeviceSharding(jax.devices()[0])
    traced = trace_for("gpu", device, lambda: f.eval({x: np.ones((1, 3), np.float32)})).traced
    return re.findall(r"precision = \[(.*?)\]", traced.lower().as_text())


def test_products_on_gpus_are_float32_unless_the_user_chooses_tf32(float32):
    assert precisions_of_products() == ["HIGHEST, HIGHEST"]
    C.device.set_matmul_precision("tf32")
    assert precisions_of_products() == ["HIGH, HIGH"]
    with jax.default_matmul_precision("bfloat16"):  # the user's own setting of jax comes first
        assert precisions_of_products() in ([], ["DEFAULT, DEFAULT"])
    with pytest.raises(ValueError, match="'fp8' is none of 'float32', 'tf32'"):
        C.device.set_matmul_precision("fp8")


def test_the_platform_is_that_of_the_device_in_use():
    assert platform() == "cpu" and lowering() is LOWERINGS["cpu"]
    with jax.default_device(jax.devices("cpu")[0]):
        assert platform() == "cpu"
    with lowering_for("gpu"):
        assert lowering() is LOWERINGS["gpu"]
    assert lowering() is LOWERINGS["cpu"]
