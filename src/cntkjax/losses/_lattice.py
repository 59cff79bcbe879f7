"""Sequence training of speech models."""

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
    """The sequence criterion of CNTK's speech tools, for building and loading models; it cannot be evaluated.

    Shapes: label, prediction and loglikelihood [states], a sequence of lattice bytes -> one number for the minibatch.
    Errors: ShapeError if label and prediction differ; RuntimeError when it is evaluated, for there is no reader of
            lattices.
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
