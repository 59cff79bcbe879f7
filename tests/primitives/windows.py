"""Windows of images in NumPy, and gradients against differences."""

import itertools

import numpy as np

import cntkjax as C
from cntkjax.primitives._window import place

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape)


def windows(x, sizes, strides, auto, fill, dilation=1, ceil=False):
    """All windows of [n, *axes]: [n, *positions, *sizes], and how many of their cells lie inside: [*positions]."""
    axes = [place(n, k, s, dilation, a, ceil) for n, k, s, a in zip(x.shape[1:], sizes, strides, auto, strict=True)]
    cells = np.full((len(x), *(w.count for w in axes), *sizes), fill)
    inside = np.zeros([w.count for w in axes])
    for position in itertools.product(*(range(w.count) for w in axes)):
        for cell in itertools.product(*map(range, sizes)):
            at = [p * w.stride - w.before + c * dilation for p, c, w in zip(position, cell, axes, strict=True)]
            if all(0 <= i < n for i, n in zip(at, x.shape[1:], strict=True)):
                cells[(slice(None), *position, *cell)] = x[(slice(None), *at)]
                inside[position] += 1
    return cells, inside


def variable(value, sequence=False):
    make = C.sequence.input_variable if sequence else C.input_variable
    return make(value.shape[1:], dtype=np.float64, needs_gradient=True)


def check_gradient(f, feeds, wrt, eps=1e-5):
    """The gradient of a weighted sum of f, against central differences along a random direction."""
    weights = normal(*np.shape(f.eval(feeds)))
    target = C.input_variable(f.shape, dtype=np.float64)
    loss = C.reduce_sum(f * target)
    feeds = {**feeds, target: weights}
    gradients = loss.grad(feeds, wrt=list(wrt))
    gradients = gradients if isinstance(gradients, dict) else {wrt[0]: gradients}
    for v in wrt:
        before = v.value if v.is_parameter else feeds[v]
        direction = normal(*before.shape)
        totals = []
        for sign in (1, -1):
            moved = before + sign * eps * direction
            if v.is_parameter:
                v.value = moved
                totals.append(np.sum(loss.eval(feeds)))
                v.value = before
            else:
                totals.append(np.sum(loss.eval({**feeds, v: moved})))
        difference = (totals[0] - totals[1]) / (2 * eps)
        np.testing.assert_allclose(np.sum(gradients[v] * direction), difference, rtol=1e-6, atol=1e-7)
