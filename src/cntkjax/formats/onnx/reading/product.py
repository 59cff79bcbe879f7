"""Matrix products."""

from __future__ import annotations

from functools import reduce
from math import prod

from .... import ops
from ....variables import Constant
from .table import OnnxNode, reads
from .values import Operand, Outputs


@reads("MatMul")
def _matmul(node: OnnxNode) -> Outputs:
    return matrix_product(node, node.operand(0), node.operand(1))


def matrix_product(node: OnnxNode, a: Operand, b: Operand) -> Operand:
    """The product of matrices or vectors, or of batches of them, as NumPy defines it."""
    if not a.shape or not b.shape:
        raise node.error("a scalar is no matrix")
    while len(b.shape) > 2 and b.shape[0] == 1 and len(a.shape) >= len(b.shape):
        b = ops.squeeze(b, [0])
    if len(b.shape) == 1:
        return ops.reduce_sum(ops.element_times(a, b), axis=-1, keepdims=False)
    if len(b.shape) == 2:
        return ops.times(a, b)
    return _batched(node, a, b)


def _batched(node: OnnxNode, a: Operand, b: Operand) -> Operand:
    """Products of matrices, with the axes before the last two as the batch axis, where they can be."""
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    vector = len(a.shape) == 1
    if vector:
        a = ops.expand_dims(a, -2)
    in_scan, several_open = a.dynamic_axes or b.dynamic_axes, sum(d < 0 for d in lead_b) > 1
    if (lead_a and lead_a != lead_b) or in_scan or several_open:
        product = _broadcast_product(a, b)
    else:
        product = ops.unpack_batch(ops.times(_as_batch(node, a), _as_batch(node, b)))
        if len(lead_b) > 1 or lead_b[0] >= 0:
            product = ops.reshape(product, tuple(-1 if d < 0 else d for d in lead_b), 0, 1)
    return ops.squeeze(product, [len(product.shape) - 2]) if vector else product


def _as_batch(node: OnnxNode, x: Operand) -> Operand:
    lead = x.shape[:-2]
    if not lead:
        return x
    if len(lead) > 1:
        if sum(d < 0 for d in x.shape) > 1 and any(d < 0 for d in x.shape[-2:]):
            raise node.error("a product of matrices of open size in a batch of several axes cannot be read")
        x = ops.reshape(x, (-1,), 0, len(lead))
    return ops.to_batch(x)


def _broadcast_product(a: Operand, b: Operand) -> Operand:
    """The product of batches of matrices that broadcast, by sums of element-wise products."""
    left = ops.expand_dims(a, -1)
    right = ops.expand_dims(b, -3)
    return ops.reduce_sum(ops.element_times(left, right), axis=-2, keepdims=False)


@reads("Gemm")
def _gemm(node: OnnxNode) -> Outputs:
    a, b = node.operand(0), node.operand(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise node.error("both operands have to be matrices")
    if node.integer("transA", 0):
        a = ops.transpose(a, (1, 0))
    product = ops.times_transpose(a, b) if node.integer("transB", 0) else ops.times(a, b)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if alpha != 1:
        product = ops.element_times(product, Constant(alpha, dtype=product.dtype))
    if node.has(2):
        c = node.operand(2)
        product = ops.plus(product, c if beta == 1 else ops.element_times(c, Constant(beta, dtype=product.dtype)))
    return product


@reads("Einsum")
def _einsum(node: OnnxNode) -> Outputs:
    """A sum of element-wise products of operands without repeated letters."""
    xs = node.operands()
    inputs, out = _terms(node, [len(x.shape) for x in xs])
    pairs = list(zip(inputs, xs, strict=True))
    letters = list(dict.fromkeys("".join(inputs)))
    if any(len(set(t)) < len(t) for t in (*inputs, out)) or not set(out) <= set(letters) or len(letters) > 12:
        raise node.error(f"the sum {node.string('equation', '')!r} cannot be read")
    order = [*out, *(c for c in letters if c not in out)]
    sizes = {c: d for t, x in pairs for c, d in zip(t, x.shape, strict=True)}
    if prod(max(sizes[c], 1) for c in order) > 2**26:
        raise node.error("it would take too much memory")
    factors: list[Operand] = []
    for term, x in pairs:
        letters_of_term = [c for c in order if c in term]
        if len(letters_of_term) > 1:
            x = ops.transpose(x, [term.index(c) for c in letters_of_term])
        for i, c in enumerate(order):
            if c not in term:
                x = ops.expand_dims(x, i - len(x.shape) - 1)
        factors.append(x)
    product = reduce(ops.element_times, factors)
    summed_axes = list(range(len(out), len(order)))
    return ops.reduce_sum(product, axis=summed_axes, keepdims=False) if summed_axes else ops.alias(product)


def _terms(node: OnnxNode, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the output: digits stand for the axes of an ellipsis, the last one is 0.

    Without an arrow, the output has the letters that occur once, in alphabetical order.
    """
    terms, arrow, out = node.string("equation", "").replace(" ", "").partition("->")
    inputs = terms.split(",")
    if len(inputs) != len(ranks):
        raise node.error(f"{len(ranks)} operands for the sum {terms!r}")
    extra = [rank - len(t.replace("...", "")) for t, rank in zip(inputs, ranks, strict=True)]
    if any(n < 0 or (n and "..." not in t) or n > 9 for t, n in zip(inputs, extra, strict=True)):
        raise node.error(f"operands of ranks {ranks} for the sum {terms!r}")
    if not arrow:
        once = sorted(c for c in set(terms) - set(",.") if terms.count(c) == 1)
        out = "..." * ("..." in terms) + "".join(once)
    digits = "9876543210"
    inputs = [t.replace("...", digits[len(digits) - n :]) for t, n in zip(inputs, extra, strict=True)]
    return inputs, out.replace("...", digits[len(digits) - max(extra) :])
