"""A materialized value is computed once, not by each of its readers."""

import re

import jax
import jax.numpy as jnp

from cntkjax.engine.xla.compiler import compiler_options
from cntkjax.engine.xla.materialize import materialized


def readers_that_add(keep):
    """The number of fusions of a compiled program that compute the sum that two of them read."""

    def readers(x):
        total = keep(x + 1.0)
        return jnp.transpose(total) * 2.0, total * 3.0

    compiled = jax.jit(readers, compiler_options=compiler_options()).lower(jnp.ones((64, 32))).compile()
    return len(re.findall(r"= f32\S+ add\(", compiled.as_text()))


def test_a_materialized_value_is_computed_once():
    assert (readers_that_add(lambda x: x), readers_that_add(materialized)) == (2, 1)
