"""Connectionist temporal classification: the sum over all alignments of a short sequence of labels with many frames.

Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, section 4; the format of labels, the blank
and the delay constraint are those of CNTK 2.7, inferred by enumerating all alignments of short sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array
from ..engine.data.layout import Layout
from ..engine.lower.values import Context, Traced
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.shape import Shape
from ..graph.variable import Edge
from .base import Attrs, Int, Primitive, Size, primitive

BOUNDARY = 2  # the value in a frame where a label begins
IMPOSSIBLE = -1e30  # log(0) as a number that can be added to itself
NO_ALIGNMENT = 1e11  # the loss of a sequence with more labels than frames
LAST_TOKEN = 2**64 - 1  # as a blank id: the last token


@primitive("LabelsToGraph", 63)
class LabelsToGraph(Primitive):
    """Labels as an operand of ForwardBackward: a label's element is 2 in the frame where it begins, 1 in its others."""

    elementwise = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """The shape of the labels."""
        return inputs[0].shape

    def lower(self, attrs: Attrs, labels: Array) -> Array:
        """The labels."""
        return labels


@primitive("ForwardBackward", 66)
class ForwardBackward(Primitive):
    """-log of the probability of the labels, summed over all alignments and over the sequences of the minibatch.

    Operands: the graph of the labels, and a score for each token in each frame (the softmax is the probability).
    With `DelayConstraint` d >= 0 a label may be aligned up to d frames after the beginning of the next one, and, for
    0 < d < frames, blanks follow the last label only in the first d frames and in the last frame.
    """

    attributes = {"BlankTokenId": Size, "DelayConstraint": Int(-1)}
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        graph, features = inputs
        operands = {"graph": graph, "features": features}
        tokens = prod(features.shape)
        if prod(graph.shape) != tokens:
            raise ShapeError(explain(
                f"{self.name}: labels and features differ in their number of tokens", operands,
                "the blank is a token of both",
            ))
        merged_axes(self.name, inputs)
        if any(v.dynamic_axes and v.sequence_axis is None for v in inputs):
            raise AxisError(explain(
                f"{self.name}: labels and features have to be sequences", operands,
                "declare them with cntk.sequence.input_variable",
            ))
        blank = attrs["BlankTokenId"]
        if tokens > 0 and blank != LAST_TOKEN and not 0 <= blank < tokens:
            raise ShapeError(explain(
                f"{self.name}: blankTokenId = {blank} is not a token", operands, f"give a number from 0 to {tokens - 1}"
            ))
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, graph: Traced, features: Traced) -> Traced:
        """The forward pass of all sequences at once, in float32 at least; its gradient is the backward pass."""
        layout = ctx.layout(max(graph.axes, features.axes, key=len))
        labels, scores = (_by_sequence(ctx, layout, v) for v in (graph, features))
        dtype = scores.dtype
        scores = jax.nn.log_softmax(scores.astype(jnp.promote_types(dtype, jnp.float32)), axis=-1)
        blank = attrs["BlankTokenId"] if attrs["BlankTokenId"] != LAST_TOKEN else scores.shape[-1] - 1
        tokens, begins, count = _labels(labels, blank, layout.length)
        total = _log_probability(scores, tokens, begins, count, layout.length, blank, attrs["DelayConstraint"])
        loss = jnp.where(total > IMPOSSIBLE / 2, -total, NO_ALIGNMENT)
        return Traced(jnp.sum(jnp.where(layout.length > 0, loss, 0)).astype(dtype), ())


def _by_sequence(ctx: Context, layout: Layout, value: Traced) -> Array:
    """[time, sequences, tokens]; after the end of a sequence its last frame is repeated."""
    if not value.axes:
        flat = ctx.array(value).reshape(-1)
        return jnp.broadcast_to(flat, (layout.time, layout.size, flat.size))
    data = ctx.array(value)
    data = data.reshape(*data.shape[:2], -1)
    return data if layout.simple else layout.at(data, jnp.arange(layout.time)[:, None])


def _labels(labels: Array, blank: int, length: Array) -> tuple[Array, Array, Array]:
    """The tokens [sequences, time] moved to the front, the frames in which they begin, and their number."""
    time = labels.shape[0]
    marked = labels == BOUNDARY
    tokens = jnp.argmax(marked, -1).T
    is_label = jnp.any(marked, -1).T & (tokens != blank) & (jnp.arange(time) < length[:, None])
    order = jnp.argsort(~is_label, axis=1, stable=True).astype(jnp.int32)
    return jnp.take_along_axis(tokens, order, 1), order, jnp.sum(is_label, 1)


def _log_sum(*terms: Array) -> Array:
    return reduce(jnp.logaddexp, terms)


def _log_probability(
    scores: Array, tokens: Array, begins: Array, count: Array, length: Array, blank: int, delay: int
) -> Array:
    """log of the sum over all alignments, [sequences].

    The states are the labels and the blanks around them: blank i is before label i, the last one after all labels.
    """
    time, size, width = scores.shape
    frames = jnp.arange(time)
    chosen = jax.nn.one_hot(jnp.where(frames < count[:, None], tokens, -1), width, dtype=scores.dtype)
    label_scores = jnp.einsum("tbn,bln->tbl", scores, chosen, precision=lax.Precision.HIGHEST)
    blank_scores = scores[:, :, blank]
    last = jnp.maximum(count - 1, 0)
    repeats = jnp.concatenate([jnp.ones((size, 1), bool), tokens[:, 1:] == tokens[:, :-1]], 1)
    no_label = jnp.full((size, 1), IMPOSSIBLE, scores.dtype)
    is_final = jnp.arange(time + 1) == count[:, None]  # the blank after all labels
    # A label has to end at most `delay` frames after the beginning of the next one.
    due = jnp.concatenate([begins[:, 1:], jnp.full((size, 1), time, begins.dtype)], 1) + delay
    due = jnp.where(frames < last[:, None], due, time)

    def step(states: tuple[Array, Array], now: tuple[Array, Array, Array]) -> tuple[Any, None]:
        blanks, labels = states
        t, blank_score, label_score = now
        previous = jnp.concatenate([no_label, labels], 1)
        new_blanks = _log_sum(blanks, previous) + blank_score[:, None]
        skipped = jnp.where(repeats, IMPOSSIBLE, previous[:, :-1])
        new_labels = _log_sum(labels, blanks[:, :-1], skipped) + label_score
        ends = (t == length - 1)[:, None]
        if delay >= 0:
            new_labels = jnp.where(t <= due, new_labels, IMPOSSIBLE)
        if delay > 0:
            # At the end CNTK's gradient treats the blank as the last label; so does this one.
            bound = ends & is_final & (delay < length)[:, None] & (count > 0)[:, None]
            last_score = jnp.take_along_axis(label_score, last[:, None], 1)
            difference = lax.stop_gradient(blank_score[:, None] - last_score)
            as_label = new_blanks - blank_score[:, None] + last_score + difference
            new_blanks = jnp.where(bound, as_label, new_blanks)
            new_blanks = jnp.where(~is_final | (count == 0)[:, None] | (t < delay) | ends, new_blanks, IMPOSSIBLE)
        is_active = (t < length)[:, None]
        return (jnp.where(is_active, new_blanks, blanks), jnp.where(is_active, new_labels, labels)), None

    start = jnp.where(jnp.arange(time + 1) == 0, 0, IMPOSSIBLE).astype(scores.dtype)
    states = jnp.broadcast_to(start, (size, time + 1)), jnp.full((size, time), IMPOSSIBLE, scores.dtype)
    (blanks, labels), _ = lax.scan(step, states, (frames, blank_scores, label_scores))
    at_blank = jnp.take_along_axis(blanks, count[:, None], 1)[:, 0]
    at_label = jnp.take_along_axis(labels, last[:, None], 1)[:, 0]
    return jnp.where(count > 0, _log_sum(at_blank, at_label), at_blank)
