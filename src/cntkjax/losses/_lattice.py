"""Sequence training of speech models with lattices."""

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
    """The log probability of the labels relative to all hypotheses of a recognizer, which are given as a lattice.

    As in CNTK, the gradient is that of the value, which a learner would have to maximize, and it flows only into
    `prediction` (see ``LatticeSequenceWithSoftmax``).

    Args:
        label: one state in each frame
        prediction: outputs of the network, before the softmax
        loglikelihood: of each state: the prediction without the logarithm of the state's prior
        lattice: the bytes of lattices, as ``LatticeDeserializer`` reads them
        symListPath, phonePath, stateListPath, transProbPath: text files with the units, their models, the states and
            the transitions (see ``units_of``)
        hSmoothingWeight: weight of this criterion in the gradient; the rest is that of the cross entropy
        frameDropThresh: frames whose label is less probable than this have no gradient
        doReferenceAlign: an error when it is evaluated, as in CNTK
        seqGammarUsesMBR: the value is log p(labels) minus the expected number of correct frames
        seqGammarAMF, seqGammarLMF, seqGammarWordPen: divisor of all scores, factor of the language model's scores, and
            an addend for each edge
        latticeConfigPath, seqGammarBMMIFactor: ignored, as in CNTK

    Shapes: label, prediction and loglikelihood [states], lattice [1], four bytes in a float32 -> one number for the
            minibatch.
    Errors: ShapeError if label, prediction and loglikelihood differ, AxisError for an operand without a sequence
            axis; RuntimeError when it is evaluated, for files or lattices that are damaged.
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
