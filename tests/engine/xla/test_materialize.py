"""A materialized value is computed once, not by each of its readers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cntkjax.engine.xla.compiler import compiler_options
from cntkjax.engine.xla.materialize import materialized, stores_values, storing_values


@pytest.fixture(autouse=True)
def in_a_program():
    with storing_values(True):
        yield


def readers_that_add(keep):
    """The number of fusions of a compiled program that compute the sum that two of them read."""

    def readers(x):
        total = keep(x + 1.0)
        return jnp.transpose(total) * 2.0, total * 3.0

    compiled = jax.jit(readers, compiler_options=compiler_options()).lower(jnp.ones((64, 32))).compile()
    return len(re.findall(r"= f32\S+ add\(", compiled.as_text()))


def test_a_materialized_value_is_computed_once():
    assert (readers_that_add(lambda x: x), readers_that_add(materialized)) == (2, 1)


def test_a_kernel_that_reads_a_value_and_what_is_stored_of_it_does_not_write_over_them():
    def product(x, w):
        power = jnp.exp(x)
        return (power + materialized(power)[:, ::-1]) @ w

    x, w = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64), np.ones((64, 2), np.float32)
    value = jax.jit(product, compiler_options=compiler_options())(x, w)
    np.testing.assert_allclose(value, (np.exp(x) + np.exp(x)[:, ::-1]) @ w, rtol=1e-5)


def test_a_materialized_value_is_the_operand_also_under_derivatives():
    x = np.array([0, -0.0, 1e-45, -np.inf, 3.4e38, np.pi], np.float32)
    value, slope = jax.jvp(materialized, (x,), (2 * np.ones_like(x),))
    assert np.array_equal(value[3:], x[3:]) and np.array_equal(slope, 2 * np.ones_like(x))
    assert np.signbit(value[1])


def test_nothing_is_stored_in_what_others_compile():
    assert stores_values()
    with storing_values(False):
        assert not stores_values() and materialized(1) == 1
