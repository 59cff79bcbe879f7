"""Chains of operations, and how much XLA makes of them: `python -m tests.engine.lower.chains` prints a table.

A link maps an array [batch, time, *SHAPE] to one of the same shape. Links are grouped by what they are lowered to; the
first of each group stands for it in pairs.
"""

import itertools
import sys
from typing import NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import cntk as C
from cntkjax.engine.lower.boundaries import bounded
from cntkjax.engine.plan import repeats
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.pure_function import random_key, run
from cntkjax.engine.xla.compiler import loop_barrier_options, quick_options
from cntkjax.engine.xla.materialize import storing_values
from cntkjax.graph.variable import value_of

SHAPE, BATCH, STEPS = (4, 4, 4), 2, 3
SAME = [False, True, True]
MOST = 2.5  # 2 is linear, 4 is quadratic; short chains are repeated as a whole, so a little more than 2 is right


def w(*shape):
    return C.parameter(shape, init=0.5)


def batch_normalization(h):
    state = C.constant(0, 4), C.constant(1, 4)
    return C.batch_normalization(h, w(4), w(4), *state, spatial=True, running_count=C.constant(0))


def attention(h):
    rows = C.reshape(h, (16, 4))
    return C.reshape(C.times(C.softmax(C.times_transpose(rows, C.times(rows, w(4, 4)))), rows), SHAPE)


def depth_and_space(h):
    return C.space_to_depth(C.depth_to_space(h, 2) + 1, 2)


LINKS = {
    "cheap": {
        "plus": lambda h: h + w(4), "minus": lambda h: w(4) - h, "element_times": lambda h: h * w(4), "abs": C.abs,
        "relu": C.relu, "leaky_relu": C.leaky_relu, "param_relu": lambda h: C.param_relu(w(4), h),
        "clip": lambda h: C.clip(h, -0.8, 0.8), "element_max": lambda h: C.element_max(h, w(4)), "floor": C.floor,
        "hard_sigmoid": lambda h: C.hard_sigmoid(h, 0.3, 0.4), "less": lambda h: h * C.less(h, w(4)),
        "element_select": lambda h: C.element_select(C.greater(h, 0.3), h, w(4)), "stop_gradient": C.stop_gradient,
        "element_and": lambda h: h + C.element_and(h, w(4)),
    },
    "reused": {
        "tanh": C.tanh, "sigmoid": C.sigmoid, "elu": C.elu, "selu": C.selu, "softplus": C.softplus, "sin": C.sin,
        "softsign": C.softsign, "cos": C.cos, "tan": C.tan, "asin": lambda h: C.asin(h / 4), "atan": C.atan,
        "acos": lambda h: C.acos(h / 4), "sinh": C.sinh, "cosh": C.cosh, "asinh": C.asinh, "exp": C.exp,
        "atanh": lambda h: C.atanh(h / 4), "log": lambda h: C.log(1 + h * h), "sqrt": lambda h: C.sqrt(C.abs(h)),
        "pow": lambda h: C.pow(C.abs(h), w(4)), "reciprocal": C.reciprocal, "divide": lambda h: h / w(4),
        "log_add_exp": lambda h: C.log_add_exp(h, w(4)),
    },
    "reduction": {
        "reduce_mean": lambda h: h - C.reduce_mean(h, -1), "reduce_sum": lambda h: h * C.reduce_sum(h, 0),
        "reduce_max": lambda h: h - C.reduce_max(h, 1), "reduce_min": lambda h: h - C.reduce_min(h),
        "reduce_prod": lambda h: h + C.reduce_prod(h, 1), "reduce_l1": lambda h: h / C.reduce_l1(h, 0),
        "reduce_l2": lambda h: h / C.reduce_l2(h, -1), "argmax": lambda h: h + C.argmax(h, -1),
        "reduce_sum_square": lambda h: h + C.reduce_sum_square(h, 0),
        "reduce_log_sum_exp": lambda h: h - C.reduce_log_sum_exp(h, 1),
    },
    "product": {
        "times": lambda h: C.times(h, w(4, 4)), "times_transpose": lambda h: C.times_transpose(h, w(4, 4)),
        "times_from_left": lambda h: C.times(w(4, 4), h, output_rank=2), "attention": attention,
        "dense": lambda h: C.layers.Dense(SHAPE, activation=C.tanh)(h),
    },
    "structure": {
        "splice": lambda h: C.splice(h[1:], h[:1], axis=0), "transpose": lambda h: C.transpose(h, (2, 0, 1)),
        "reshape": lambda h: C.reshape(C.reshape(h, (2, 32)) + 1, SHAPE), "swapaxes": lambda h: C.swapaxes(h, 0, 1),
        "pad": lambda h: C.pad(h, [(0, 0), (0, 0), (1, 0)])[:, :, :4], "top_k": lambda h: C.top_k(h, 4)[0],
        "gather": lambda h: C.gather(h, [2, 0, 1, 3], axis=1), "depth_to_space": depth_and_space,
        "flatten": lambda h: C.reshape(C.flatten(h, 1) * w(16), SHAPE),
        "expand_dims": lambda h: C.squeeze(C.expand_dims(h, 0) + w(4)),
    },
    "normalization": {
        "layer_normalization": lambda h: C.layers.LayerNormalization()(h), "batch_normalization": batch_normalization,
        "mean_variance_normalization": C.mean_variance_normalization,
        "local_response_normalization": lambda h: C.local_response_normalization(h, 1, 1.0, 0.3, 0.75),
    },
    "softmax": {
        "softmax": C.softmax, "softmax_along_axis": lambda h: C.softmax(h, 0), "log_softmax": C.log_softmax,
        "hardmax": lambda h: h + C.hardmax(h), "squared_error": lambda h: h + C.squared_error(h, w(*SHAPE)),
        "cross_entropy_with_softmax": lambda h: h + C.cross_entropy_with_softmax(h, w(*SHAPE), 0),
        "binary_cross_entropy": lambda h: h + C.binary_cross_entropy(C.sigmoid(h), C.sigmoid(w(*SHAPE))),
    },
    "window": {
        "convolution": lambda h: C.convolution(w(4, 4, 3, 3), h, auto_padding=SAME),
        "convolution_transpose": lambda h: C.convolution_transpose(w(4, 4, 3, 3), h, auto_padding=SAME),
        "max_pooling": lambda h: C.pooling(h, C.MAX_POOLING, (3, 3), auto_padding=[True]),
        "average_pooling": lambda h: C.pooling(h, C.AVG_POOLING, (3, 3), auto_padding=[True]),
    },
    "random": {"dropout": lambda h: C.dropout(h, 0.3), "normal_like": lambda h: h + C.random.normal_like(h)},
    "sequence": {
        "past_value": C.sequence.past_value, "future_value": C.sequence.future_value,
        "first": lambda h: h + C.sequence.broadcast_as(C.sequence.first(h), h),
        "sum_of_steps": lambda h: h - C.sequence.broadcast_as(C.sequence.reduce_sum(h), h),
        "softmax_of_steps": C.sequence.softmax,
    },
    "recurrence": {
        "sums": lambda h: C.layers.Recurrence(C.plus)(h),
        "gru": lambda h: C.reshape(C.layers.Recurrence(C.layers.GRU(64))(C.reshape(h, 64)), SHAPE),
    },
}
ALL = {name: link for group in LINKS.values() for name, link in group.items()}
GROUP = {name: group for group, links in LINKS.items() for name in links}
REPRESENTATIVES = [next(iter(links)) for links in LINKS.values()]
PAIRS = list(itertools.combinations(REPRESENTATIVES, 2))

CHAINS = [*((name,) for name in ALL), *PAIRS]
NOT_IN_LOOPS = {"batch_normalization", *LINKS["sequence"], *LINKS["recurrence"]}
IN_LOOPS = [names for names in CHAINS if not NOT_IN_LOOPS.intersection(names)]

FORMS = {
    "alone": lambda link, h: link(h),
    "gated": lambda link, h: C.sigmoid(h * w(4)) * h + link(h) * w(4),
    "residual": lambda link, h: h + link(h),
}


class Size(NamedTuple):
    """What XLA makes of a program: instructions in all computations after fusion, and the length of their text."""

    instructions: int
    characters: int


def size(names, form, depth, training=True, looped=False):
    """The size of a chain whose links are compiled each by itself, as if none were equal.

    `looped`: the chain is the step of a recurrence.
    """
    x, before = C.sequence.input_variable(SHAPE), C.placeholder(SHAPE)
    h = C.sequence.past_value(before, 0.1) + x if looped else x
    for name in itertools.islice(itertools.cycle(names), depth):
        h = FORMS[form](ALL[name], h)
    chain = C.combine(h)
    plan = Plan([(chain.replace_placeholders({before: h}) if looped else chain).output])
    key, data = random_key(plan), jnp.full((BATCH, STEPS, *SHAPE), 0.5)

    def total(leaves, data):
        return jnp.sum(run(plan, leaves, [(data, None)], key, training)[0][0])

    leaves = [jnp.asarray(np.asarray(value_of(leaf))) for leaf in plan.leaves]
    function = jax.grad(total, (0, 1)) if training else total
    with patch.object(repeats, "LEAST_PIECES", depth + 1), storing_values(True):
        function = bounded(jax.jit(function).trace(leaves, data)) or function
        options = quick_options() | (loop_barrier_options() if looped else {})
        text = jax.jit(function, compiler_options=options).lower(leaves, data).compile().as_text()
    return Size(text.count(" = "), len(text))


def growth(names, form, depth, training=True, looped=False):
    """By how much a chain of twice as many links is larger: 2 if linear, 4 if quadratic.

    More than `MOST` may come from boundaries, which only the longer one needs: then what another doubling adds, to what
    this one has added, is 2 or 4.
    """
    short, long = (size(names, form, depth * times, training, looped) for times in (1, 2))
    once = max(after / before for before, after in zip(short, long, strict=True))
    if once <= MOST:
        return once
    longer = size(names, form, depth * 4, training, looped)
    return max((c - b) / (b - a) for a, b, c in zip(short, long, longer, strict=True))


def main(names):
    """Print a table of sizes of chains of operations, or of pairs `a+b`; of all, if none is given."""
    print("| operations | form | | 10 | 20 | 40 | instructions a link |\n|---|---|---|---|---|---|---|")
    for chain in names or [*ALL, *map("+".join, PAIRS)]:
        for form, training in itertools.product(FORMS, (False, True)):
            sizes = [size(chain.split("+"), form, depth, training).instructions for depth in (10, 20, 40)]
            row = chain, form, "training" if training else "evaluation", *sizes, round((sizes[2] - sizes[1]) / 20)
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
