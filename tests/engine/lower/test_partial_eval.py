"""What a step that is split saves, stacks and defers: each residual once, and what is cheap not at all."""

import jax.numpy as jnp
import numpy as np

from cntkjax.engine.lower import scans
from cntkjax.engine.xla.platform import lowering_for
from tests.engine.lower.test_scans import ROWS, SIZE, arguments, lstm, product, weight_used_twice


def attend(weights, invariants, carry, inputs, taps):
    (h, c), (x, _) = carry, inputs
    z = product(h, weights[0], taps)
    scores = jnp.sum(jnp.tanh(invariants["keys"] + z[:, None, :SIZE]), -1)
    h = jnp.tanh(x[:, :SIZE] * jnp.sum(scores, 1)[:, None])
    return (h, c), [h], [(h, z)]


def test_an_lstm_saves_its_gates_and_states_each_once():
    split, _ = scans.split_step(lstm, *arguments())
    _, *stacked = split.forward.outvars[1:]
    assert len(stacked) == len(["h", "h before", "c before", "i", "f", "o", "tanh of the last gate", "tanh of c"])
    assert not any(v.aval.dtype == bool for v in stacked)  # where sequences begin is an input


def test_only_invariants_that_have_a_gradient_are_summed_over_the_steps():
    weight, _, scale = range(3)  # the weight's gradient is computed after the loop, integers have none
    assert scans.split_step(lstm, *arguments())[0].differentiated_invariants == [scale]
    assert scans.split_step(weight_used_twice, *arguments())[0].differentiated_invariants == [weight, scale]


def test_on_gpus_gradients_that_follow_from_what_is_stacked_are_computed_after_the_loop():
    scale = 2
    with lowering_for("gpu"):
        split, _ = scans.split_step(lstm, *arguments())
    assert (split.differentiated_invariants, split.deferred_invariants) == ([], [scale])
    stacked = split.deferred_operands
    assert stacked == ([], split.product_gradients)  # the gradient of the products; their inputs need not be stacked


def test_on_gpus_the_backward_loop_stacks_nothing_that_the_forward_loop_has_stacked():
    """What is added to the keys is recomputed after the loop, which took one more kernel an iteration."""
    weights, _, *others = arguments()
    with lowering_for("gpu"):
        split, _ = scans.split_step(attend, weights, {"keys": np.ones((ROWS, 16, SIZE), np.float32)}, *others)
    query, gradient_of_scores = split.deferred_operands
    assert (len(query), len(gradient_of_scores), len(split.deferred_invariants)) == (1, 1, 1)
