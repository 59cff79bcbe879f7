"""Traces without calls: the same outputs, whatever functions a trace calls."""

import jax
import jax.numpy as jnp
import numpy as np

from cntkjax.engine.lower.inlining import CALLS, Inlined, inline_calls

SCALE = np.arange(3, dtype=np.float32)


@jax.jit
def scaled(x):
    return x * SCALE


@jax.jit
def inner(x, y):
    return scaled(x) + y, 2.0


def outer(x, y):
    a, two = inner(x, y)
    return jax.nn.relu(a) * two, y, 7.0


X, Y = np.float32([1, -2, 3]), np.float32([1, 1, -9])


def traced():
    return jax.make_jaxpr(outer)(X, Y)


def called(jaxpr):
    return {eqn.primitive.name for eqn in jaxpr.eqns} & set(CALLS)


def test_nothing_is_called_and_the_outputs_are_the_same():
    assert called(traced().jaxpr)
    inlined = jax.make_jaxpr(lambda *arrays: inline_calls(traced(), arrays))(X, Y)
    assert not called(inlined.jaxpr)
    for a, b in zip(inline_calls(traced(), [X, Y]), outer(X, Y), strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_are_numbered_in_the_order_of_computation_the_inputs_first():
    inlined = Inlined(traced())
    outputs = [number for operation in inlined.operations for number in operation.outputs]
    assert outputs == sorted(outputs) and min(outputs) > 1 and inlined.count > max(outputs)
    for operation in inlined.operations:
        assert all(i < min(operation.outputs) for i in operation.inputs if isinstance(i, int))
    assert inlined.outputs[1] == 1  # an input


def test_chosen_values_pass_through_a_function_before_anything_reads_them():
    inlined = Inlined(traced())
    (product, *_) = (o.outputs[0] for o in inlined.operations if o.eqn.primitive.name == "mul")
    (result, *_) = inlined([jnp.asarray(X), jnp.asarray(Y)], {product}, lambda value: value * 0)
    np.testing.assert_array_equal(result, 2 * np.maximum(Y, 0))
