"""Programs are compiled with those options that XLA knows."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from cntkjax.engine.xla import compiler


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    known = {"xla_disable_hlo_passes": "cse_barrier_expander"}
    monkeypatch.setattr(compiler, "OPTIONS", {**known, "xla_no_such_option": "1"})
    assert compiler._options.__wrapped__() == known


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the options are for the CPU")
def test_convolutions_and_their_gradients_go_to_eigen():
    def gradient(x, w):
        def loss(w):
            return jnp.sum(lax.conv(x, w, (1, 1), "SAME"))

        return jax.grad(loss)(w)

    jitted = jax.jit(gradient, compiler_options=compiler.compiler_options())
    text = jitted.lower(jnp.ones((2, 8, 9, 9)), jnp.ones((8, 8, 3, 3))).compile().as_text()
    assert " convolution(" in text.partition("ENTRY")[2]
