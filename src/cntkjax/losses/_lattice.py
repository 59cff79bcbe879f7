"""Sequence training of speech models against lattices."""

from __future__ import annotations

from ..ops._blocks import node
from ..ops._operand import Operand, as_variables
from ..ops.functions import Function
from ..primitives.lattice import LatticeSequenceWithSoftmax


def lattice_sequence_with_softmax(
    label: Operand, prediction: Operand, loglikelihood: Operand, lattice: Operand, symListPath: str, phonePath: str,
    stateListPath: str, transProbPath: str, latticeConfigPath: str = "LatticeNode.config",
    hSmoothingWeight: float = 0.95, frameDropThresh: float = 1e-10, doReferenceAlign: bool = False,
    seqGammarUsesMBR: bool = False, seqGammarAMF: float = 14.0, seqGammarLMF: float = 14.0,
    seqGammarBMMIFactor: float = 0.0, seqGammarWordPen: float = 0.0, name: str = "",
) -> Function:
    """How much more probable the labels are than all that a recognizer took for possible, its lattice.

    The gradient leads uphill, and goes to `prediction` alone: what is learned is a larger value (see
    ``LatticeSequenceWithSoftmax`` for how it is made).

    Args:
        label: one state in each frame
        prediction: outputs of the network, of which the softmax is taken
        loglikelihood: of each state: the prediction without the logarithm of how frequent the state is
        lattice: the bytes of lattices, as ``LatticeDeserializer`` reads them
        symListPath, phonePath, stateListPath, transProbPath: text files with the units, their models, the states and
            the transitions (see ``units_of``)
        hSmoothingWeight: of the gradient; the cross entropy has the rest
        frameDropThresh: frames whose label is less probable than this have no gradient
        doReferenceAlign: an error when it is evaluated, as in CNTK
        seqGammarUsesMBR: the value is log p(labels) minus the expected number of right frames
        seqGammarAMF, seqGammarLMF, seqGammarWordPen: what divides all scores, what multiplies those of the language
            model, and what is added for each edge
        latticeConfigPath, seqGammarBMMIFactor: mean nothing, as in CNTK

    Shapes: label, prediction and loglikelihood [states], lattice [1], four bytes in a float32 -> one number for the
            minibatch.
    Errors: ShapeError if label, prediction and loglikelihood differ, AxisError for what is no sequence; RuntimeError
            when it is evaluated, for files or lattices that are damaged.
    """
    attributes = {
        "SymListPath": symListPath, "PhonePath": phonePath, "StateListPath": stateListPath,
        "TransProbPath": transProbPath, "LatticeConfigPath": latticeConfigPath,
        "HSmoothingWeight": float(hSmoothingWeight), "FrameDropThresh": float(frameDropThresh),
        "DoReferenceAlign": bool(doReferenceAlign), "SeqGammarUsesMBR": bool(seqGammarUsesMBR),
        "SeqGammarAMF": float(seqGammarAMF), "SeqGammarLMF": float(seqGammarLMF),
        "SeqGammarBMMIFactor": float(seqGammarBMMIFactor), "SeqGammarWordPen": float(seqGammarWordPen),
    }
    operands = as_variables(label, prediction, loglikelihood, lattice)
    return node(LatticeSequenceWithSoftmax, operands, attributes, name)
