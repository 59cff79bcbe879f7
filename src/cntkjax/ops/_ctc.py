"""Connectionist temporal classification."""

from __future__ import annotations

from ..graph.arguments import public_operation
from ..primitives import ctc
from ._blocks import node
from ._operand import Operand, as_variable, as_variables
from .functions import Function

__all__ = [
    "forward_backward", "labels_to_graph",
]


@public_operation
def labels_to_graph(labels: Operand, name: str = "") -> Function:
    """Convert labels to the graph that `forward_backward` takes.

    Shapes: labels [tokens], a sequence as long as the features: one-hot rows with the value 2 in the frame where a
            label begins, any other value (1 in CNTK's readers) in the remaining frames. Without a delay constraint,
            only the order of the labels matters.

    >>> import cntkjax as C
    >>> features, labels = C.sequence.input_variable(4), C.sequence.input_variable(4)
    >>> loss = C.forward_backward(labels_to_graph(labels), features, blankTokenId=3)
    """
    return node(ctc.LabelsToGraph, [as_variable(labels)], name=name)


@public_operation
def forward_backward(
    graph: Operand, features: Operand, blankTokenId: int, delayConstraint: int = -1, name: str = ""
) -> Function:
    """Connectionist temporal classification loss: the negative log likelihood of the labels over all alignments.

    `blankTokenId` is the index of the blank token. With `delayConstraint` d >= 0 a label must be emitted at most d
    frames after the next one begins, which trains a low-latency recognizer.

    Shapes: graph and features [tokens], sequences of the same lengths -> one number for the minibatch: the sum over
            its sequences. The features are logits.
    Errors: ShapeError if the numbers of tokens differ, or the blank is not one of them. A sequence with more labels
            than its frames can hold has a loss of 1e11 and no gradient.
    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006; values of CNTK 2.7.

    >>> from cntkjax import sequence
    >>> labels, scores = sequence.input_variable(3), sequence.input_variable(3)
    >>> loss = forward_backward(labels_to_graph(labels), scores, blankTokenId=2)
    >>> one_label_in_two_frames = [[2, 0, 0], [1, 0, 0]]
    >>> loss.eval({labels: [one_label_in_two_frames], scores: [[[0, 0, 0], [0, 0, 0]]]}) # log(9 / 3 alignments)
    array(1.0986123, dtype=float32)
    """
    attributes = {"BlankTokenId": int(blankTokenId), "DelayConstraint": int(delayConstraint)}
    return node(ctc.ForwardBackward, as_variables(graph, features), attributes, name)
