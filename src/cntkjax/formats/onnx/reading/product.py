"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import Any

from .... import ops
from ....variables import Constant
from .table import Node, reads


@reads("MatMul")
def _matmul(node: Node) -> Any:
    a, b = node.x(0), node.x(1)
    if not a.shape or not b.shape:
        raise node.fail("a scalar is no matrix")
    while len(b.shape) > 2 and b.shape[0] == 1 and len(a.shape) >= len(b.shape):
        b = ops.squeeze(b, [0])
    if len(b.shape) == 1:
        return ops.times(a, b, output_rank=0)
    if len(b.shape) == 2:
        return ops.times(a, b)
    return _batched(node, a, b)


def _batched(node: Node, a: Any, b: Any) -> Any:
    """Products of a matrix each: the axes ahead of the last two as the batch axis."""
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    vector = len(a.shape) == 1
    if vector:
        a = ops.expand_dims(a, -2)
    if lead_a and lead_a != lead_b:
        return _spread(node, a, b)
    made = ops.times(_as_batch(node, a), _as_batch(node, b))
    made = ops.unpack_batch(made)
    if len(lead_b) > 1 or lead_b[0] >= 0:
        made = _split(node, made, lead_b)
    return ops.squeeze(made, [len(made.shape) - 2]) if vector else made


def _as_batch(node: Node, x: Any) -> Any:
    lead = x.shape[:-2]
    if not lead:
        return x
    if len(lead) > 1:
        if sum(d < 0 for d in x.shape) > 1 and any(d < 0 for d in x.shape[-2:]):
            raise node.fail("a product of matrices of open size in a batch of several axes cannot be read")
        x = ops.reshape(x, (-1,), 0, len(lead))
    return ops.to_batch(x)


def _split(node: Node, x: Any, lead: Any) -> Any:
    if sum(d < 0 for d in lead) > 1:
        raise node.fail("a batch of several axes of open size cannot be read")
    return ops.reshape(x, tuple(-1 if d < 0 else d for d in lead), 0, 1)


def _spread(node: Node, a: Any, b: Any) -> Any:
    """Batches that broadcast: products of elements, summed."""
    left = ops.expand_dims(a, -1)
    right = ops.expand_dims(b, -3)
    return ops.reduce_sum(ops.element_times(left, right), axis=-2, keepdims=False)


@reads("Gemm")
def _gemm(node: Node) -> Any:
    a, b = node.x(0), node.x(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise node.fail("both operands have to be matrices")
    if node.whole("transA", 0):
        a = ops.transpose(a, (1, 0))
    made = ops.times_transpose(a, b) if node.whole("transB", 0) else ops.times(a, b)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if alpha != 1:
        made = ops.element_times(made, Constant(alpha, dtype=made.dtype))
    if node.has(2):
        c = node.x(2)
        made = ops.plus(made, c if beta == 1 else ops.element_times(c, Constant(beta, dtype=made.dtype)))
    return made


@reads("Einsum")
def _einsum(node: Node) -> Any:
    """Two operands or one, each letter once in each: as products of elements, summed."""
    terms, _, out = node.text("equation", "").replace(" ", "").partition("->")
    inputs, xs = terms.split(","), node.xs()
    letters = list(dict.fromkeys("".join(inputs)))
    pairs = list(zip(inputs, xs, strict=False))
    fits = len(inputs) == len(xs) <= 2 and all(len(set(t)) == len(t) == len(x.shape) for t, x in pairs)
    if not fits or not set(out) <= set(letters) or "." in terms or len(letters) > 12 or len(set(out)) != len(out):
        raise node.fail(f"the sum {node.text('equation', '')!r} cannot be read")
    order = [*out, *(c for c in letters if c not in out)]
    made: Any = None
    sizes = {c: d for t, x in pairs for c, d in zip(t, x.shape, strict=True)}
    if prod(max(sizes[c], 1) for c in order) > 2**26:
        raise node.fail("it would take too much memory")
    for term, x in pairs:
        mine = [c for c in order if c in term]
        if len(mine) > 1:
            x = ops.transpose(x, [term.index(c) for c in mine])
        for i, c in enumerate(order):
            if c not in term:
                x = ops.expand_dims(x, i - len(x.shape) - 1)
        made = x if made is None else ops.element_times(made, x)
    summed = list(range(len(out), len(order)))
    return ops.reduce_sum(made, axis=summed, keepdims=False) if summed else made
