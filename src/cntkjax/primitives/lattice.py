"""Sequence training of speech models with the lattices of a recognizer.

Source: Su et al., "Error back propagation for sequence training of context-dependent deep networks", ICASSP 2013, for
smoothing with the cross entropy and for dropping frames; CNTK 2.7 for the values, which were recorded from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array
from ..engine.lower.values import Context, Traced
from ..engine.run.python_callbacks import callback
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import Spec, merged_axes
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.shape import broadcast
from ..graph.variable import Edge
from ._lattices import ScoreWeights, parse, units_of
from .base import Attrs, Bool, Float, Primitive, String, primitive


@primitive("LatticeSequenceWithSoftmax", 90)
class LatticeSequenceWithSoftmax(Primitive):
    """log p(labels) - log p(all paths of the lattice), or with `SeqGammarUsesMBR` minus the expected correct frames.

    Operands: labels, predictions, log likelihoods of the states (all of one size), and sequences of the bytes of
    lattices, four in a float32 (see `_lattices.parse`). Lattices are parsed and evaluated on the host.

    The gradient has the sign for training: its descent increases p(labels) and the number of correct frames. It is with
    respect to the predictions only: that of the cross entropy, weighted by 1 - `HSmoothingWeight`, plus that of the
    sequences (posteriors of states minus labels), weighted by `HSmoothingWeight`. It is 0 in frames whose label is less
    probable in the lattice than `FrameDropThresh`. `SeqGammarBMMIFactor` and `LatticeConfigPath` are ignored, as in
    CNTK.
    """

    attributes = {
        "SymListPath": String, "PhonePath": String, "StateListPath": String, "TransProbPath": String,
        "LatticeConfigPath": String("LatticeNode.config"), "HSmoothingWeight": Float(0.95),
        "FrameDropThresh": Float(1e-10), "DoReferenceAlign": Bool(False), "SeqGammarUsesMBR": Bool(False),
        "SeqGammarAMF": Float(14.0), "SeqGammarLMF": Float(14.0), "SeqGammarBMMIFactor": Float(0.0),
        "SeqGammarWordPen": Float(0.0),
    }
    packed = True
    calls_python = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        label, prediction, likelihood, lattice = inputs
        operands = {"label": label, "predicted": prediction, "log likelihood": likelihood}
        if broadcast([label.shape, prediction.shape]) is None or broadcast([label.shape, likelihood.shape]) is None:
            raise ShapeError(explain(f"{self.name}: labels, predictions and log likelihoods differ in shape", operands))
        merged_axes(self.name, inputs[:3])
        if any(v.dynamic_axes != UNKNOWN_AXES and v.sequence_axis is None for v in inputs):
            raise AxisError(explain(
                f"{self.name}: all operands have to be sequences", {**operands, "lattice": lattice},
                "declare them with cntk.sequence.input_variable, the lattice with a sequence_axis of its own",
            ))
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> Traced:
        """A callback for the value, or for the value and the errors of states, which are the gradient.

        Errors: RuntimeError for other types than float32, for alignment with the reference, and for damaged lattices.
        """
        if attrs["DoReferenceAlign"]:
            raise RuntimeError(f"{self.name}: training with alignment is not supported; leave out doReferenceAlign")
        labels, predicted, likelihood, lattice = (ctx.array(v) for v in values)
        if lattice.dtype != jnp.float32:
            raise RuntimeError(f"{self.name} has to be float32, as it reads the bytes of lattices from such numbers")
        layout, lattice_layout = ctx.layout(values[1].axes), ctx.layout(values[3].axes)
        assert ctx.batch is not None
        where = [(part.row, part.start, part.length) for part in (layout, lattice_layout)]
        flat = [data.reshape(*data.shape[:2], -1) for data in (labels, predicted, likelihood)]
        host = partial(_evaluated, attrs)
        total = jax.ShapeDtypeStruct((), np.float32)
        errors = jax.ShapeDtypeStruct(flat[2].shape, np.float32), jax.ShapeDtypeStruct(flat[2].shape[:2], np.bool_)
        weight = attrs["HSmoothingWeight"]

        @jax.custom_vjp
        def run(labels: Array, predicted: Array, *known: Array) -> Array:
            return callback(partial(host, False), total, jnp.argmax(labels, -1), *known)

        def forward(labels: Array, predicted: Array, *known: Array) -> Any:
            value, saved = callback(partial(host, True), (total, errors), jnp.argmax(labels, -1), *known)
            return value, (labels, predicted, saved, known)

        def backward(saved: Array, gradient: Array) -> tuple[Array | None, ...]:
            labels, predicted, (of_sequence, is_used), known = saved
            of_frames = jax.nn.softmax(predicted) - jax.nn.one_hot(jnp.argmax(labels, -1), labels.shape[-1])
            error = jnp.where(is_used[..., None], (1 - weight) * of_frames + weight * of_sequence, 0)
            of_labels = jnp.where(layout.mask[..., None], -jax.nn.log_softmax(predicted), 0)
            return gradient * of_labels, gradient * error, *(None for _ in known)

        run.defvjp(forward, backward)
        value = run(*flat[:2], jax.lax.stop_gradient(flat[2]), lattice, where, ctx.batch.count)
        return Traced(value, ())


def _evaluated(
    attrs: Attrs,
    with_errors: bool,
    labels: AnyArray,
    likelihood: AnyArray,
    lattice: AnyArray,
    where: Sequence[tuple[AnyArray, AnyArray, AnyArray]],
    count: AnyArray,
) -> np.float32 | tuple[np.float32, tuple[np.ndarray, np.ndarray]]:
    """The sum over the sequences of a minibatch; with errors also those of all states, and a mask of their frames."""
    paths = (attrs[name] for name in ("SymListPath", "PhonePath", "StateListPath", "TransProbPath"))
    units = units_of(*paths)
    criterion = ScoreWeights(
        attrs["SeqGammarAMF"], attrs["SeqGammarLMF"], attrs["SeqGammarWordPen"], attrs["SeqGammarUsesMBR"]
    )
    labels, likelihood, lattice = map(np.asarray, (labels, likelihood, lattice))
    places, lattices = (
        [np.s_[s : s + n, r] for r, s, n in zip(*map(np.asarray, part), strict=True)][: int(count)] for part in where
    )
    total = 0.0
    errors, is_used = np.zeros(likelihood.shape, np.float32), np.zeros(labels.shape, np.bool_)
    for place, lattice_place in zip(places, lattices, strict=True):
        graph = parse(lattice[lattice_place].tobytes())
        value, state_errors, certainty = criterion.of(graph, units, likelihood[place], labels[place])
        total += value
        errors[place], is_used[place] = state_errors, certainty >= attrs["FrameDropThresh"]
    return (np.float32(total), (errors, is_used)) if with_errors else np.float32(total)
