"""Networks that generate sequences which end by themselves, what they compute, and in how many steps."""

import numpy as np

import cntkjax as C
from cntkjax import layers as L
from cntkjax.engine.plan.parts import Loop
from cntkjax.engine.plan.plan import Plan
from cntkjax.ops.functions import UserFunction

S = C.sequence
LIMIT = 9


class Counting(UserFunction):
    """The identity, which counts the steps at which it is called."""

    steps = 0

    def __init__(self, argument, name="counting"):
        super().__init__([argument], as_numpy=True, name=name)

    def infer_outputs(self):
        return [C.output_variable(v.shape, v.dtype, v.dynamic_axes) for v in self.inputs]

    def forward(self, argument, device=None, outputs_to_retain=None):
        Counting.steps += 1
        return None, argument

    def backward(self, state, root_gradients):
        return root_gradients


def steps_of(f, feeds):
    """How many steps are computed, and the values."""
    Counting.steps = 0
    values = f.eval(feeds)
    return Counting.steps, values


def counter(start, like, **options):
    """start + 1, start + 2, ... up to the first that is at least LIMIT."""
    return L.UnfoldFrom(
        lambda h: C.user_function(Counting(h + 1)),
        until_predicate=lambda h: C.greater_equal(h, LIMIT), **options,
    )(start, like)


def counted(start, length):
    """The values of the counter, in a sequence of at most that length."""
    numbers = start + 1 + np.arange(length)
    ends = np.flatnonzero(numbers >= LIMIT)
    return numbers[: ends[0] + 1] if len(ends) else numbers


def inputs(dtype=np.float32):
    return C.input_variable(1, dtype, needs_gradient=True), S.input_variable(1, dtype)


def fed(start, like, starts, lengths, dtype=np.float32):
    return {start: np.array(starts, dtype)[:, None], like: [np.zeros((n, 1), dtype) for n in lengths]}


def assert_equal(actual, expected, **tolerance):
    assert [len(m) for m in actual] == [len(e) for e in expected]
    for m, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(m).reshape(np.shape(e)), e, **{"rtol": 1e-6} | tolerance)


def early_exits(*outputs):
    """Loops that may stop early, of a graph with these outputs."""
    return [p for p in Plan([v for f in outputs for v in f.outputs]).parts if isinstance(p, Loop) and p.fused_parts]
