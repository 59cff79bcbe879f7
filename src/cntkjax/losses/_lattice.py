"""Sequence-discriminative training of speech models with lattices."""

from __future__ import annotations

from ..graph.arguments import public_operation
from ..ops._blocks import node
from ..ops._operand import Operand, as_variables
from ..ops.functions import Function
from ..primitives.lattice import LatticeSequenceWithSoftmax


@public_operation
def lattice_sequence_with_softmax(
    label: Operand, prediction: Operand, loglikelihood: Operand, lattice: Operand, symListPath: str, phonePath: str,
    stateListPath: str, transProbPath: str, latticeConfigPath: str = "LatticeNode.config",
    hSmoothingWeight: float = 0.95, frameDropThresh: float = 1e-10, doReferenceAlign: bool = False,
    seqGammarUsesMBR: bool = False, seqGammarAMF: float = 14.0, seqGammarLMF: float = 14.0,
    seqGammarBMMIFactor: float = 0.0, seqGammarWordPen: float = 0.0, name: str = "",
) -> Function:
    """The log probability of the labels relative to all hypotheses of a recognizer, which form a lattice.

    As in CNTK, the gradient is that of the value, which a learner would have to maximize, and it flows only into
    `prediction` (see ``LatticeSequenceWithSoftmax``).

    Args:
        label: the state of each frame, one-hot
        prediction: outputs of the network before the softmax (logits)
        loglikelihood: for each state, the prediction minus the log prior of the state
        lattice: serialized lattices, as ``LatticeDeserializer`` reads them
        symListPath, phonePath, stateListPath, transProbPath: text files with the units, their models, the states and
            the transitions (see ``units_of``)
        hSmoothingWeight: weight of this criterion in the gradient; the remainder is the weight of the cross entropy
        frameDropThresh: frames whose label has a lower probability than this get no gradient
        doReferenceAlign: not supported; raises an error on evaluation, as in CNTK
        seqGammarUsesMBR: the value is log p(labels) minus the expected number of correct frames
        seqGammarAMF, seqGammarLMF, seqGammarWordPen: divisor of all scores, factor of the language model scores, and
            penalty added for each edge
        latticeConfigPath, seqGammarBMMIFactor: ignored, as in CNTK

    Shapes: label, prediction and loglikelihood [states]; lattice [1], with four bytes in each float32 -> one number for
            the minibatch.
    Errors: ShapeError if label, prediction and loglikelihood differ in shape, AxisError for an operand without a
            sequence axis; on evaluation, RuntimeError for corrupt files or lattices.
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
