"""Sequence training against lattices of a speech recognizer: as a node of saved models only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.values import Context, Value
from ..graph.build import Spec
from ..graph.errors import ShapeError, explain
from ..graph.shape import broadcast
from ..graph.variable import Variable
from .base import Attrs, Bool, Float, Primitive, String, primitive


@primitive("LatticeSequenceWithSoftmax", 90)
class LatticeSequenceWithSoftmax(Primitive):
    """The sequence criterion of CNTK's speech tools.

    Operands: labels, predictions, log likelihoods (all of one size), lattice. It can be built, saved and loaded, so
    that the network below can be taken out; it cannot be evaluated, for lattices come only from HTK's archives.
    """

    attributes = {
        "SymListPath": String, "PhonePath": String, "StateListPath": String, "TransProbPath": String,
        "LatticeConfigPath": String("LatticeNode.config"), "HSmoothingWeight": Float(0.95),
        "FrameDropThresh": Float(1e-10), "DoReferenceAlign": Bool(False), "SeqGammarUsesMBR": Bool(False),
        "SeqGammarAMF": Float(14.0), "SeqGammarLMF": Float(14.0), "SeqGammarBMMIFactor": Float(0.0),
        "SeqGammarWordPen": Float(0.0),
    }
    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        label, prediction = inputs[:2]
        if broadcast([label.shape, prediction.shape]) is None:
            raise ShapeError(explain(
                f"{self.name}: labels and predictions differ in shape", {"label": label, "predicted": prediction}
            ))
        return Spec((), axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Value) -> Any:
        """An error: there are no lattices to evaluate it on."""
        assert ctx.node is not None
        raise RuntimeError(explain(
            f"{self.name} cannot be evaluated: it needs the lattices, phone models and symbol lists of HTK, which are "
            "not read here",
            {"label": ctx.node.node_inputs[0], "predicted": ctx.node.node_inputs[1]},
            "take the network out of the model by the name of its output (cntk.combine), and train it with "
            "cross_entropy_with_softmax or forward_backward",
        ))
