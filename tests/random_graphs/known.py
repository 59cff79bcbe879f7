"""Differences from CNTK 2.7 that are meant: what they look like, and where docs/compatibility.md says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .compare import Difference


@dataclass(frozen=True)
class Known:
    """`row` begins a row of docs/compatibility.md; the others are patterns of what differs and of a program."""

    row: str
    details: str
    program: str = ""


def refused(row: str, *messages: str) -> list[Known]:
    """What CNTK refuses, and is accepted here."""
    return [Known(row, m) for m in messages]


KNOWN: Sequence[Known] = [
    *refused("a window larger than the operand", r"kernel dim \d+ <= input dim", r"must be >= ROI window"),
    *refused("`classification_error` of values without the batch axis", r"Expected MBLayout in Input"),
    *refused("gradients of `classification_error`", r"needs input type \(no gradient\)", r"used for evaluation only",
             r"does not support gradient propgation"),
    *refused("a function combined with one that was loaded from a file", r"Duplicated name for Input"),
    *refused("a slice or gather that leaves nothing of a sequence", r"Sequences must be a least one frame long"),
    *refused("adam, fsadagrad, rmsprop with sparse gradients", r"Function: \w+Update  -> Feature Not Implemented"),
    *refused("`cosine_distance` of operands of different shapes", r"InnerProduct: "),
    *refused("a number as the initial state, or a factor, of a delayed value", r"with different DataTypes"),
    *refused("`sequence.gather` and `scatter` of a constant", r"are you missing a ReconcileDynamicAxis operation"),
    *refused("one value per sequence combined with its steps", r"Operation 'Splice': Operand .* has dynamic axes"),
    *refused("sparse operands of operations that CNTK computes with dense ones", r"TensorOp: Tensor operations are",
             r"must be in SparseCSC format", r"MultiplyAndWeightedAdd  -> Feature Not", r"must have same storage type"),
    Known("nesterov with the sparse gradient", "", r"is_sparse=True(.|\n)*C\.nesterov"),
    Known("`sequence.unpack` of a gather", "^shape", r"C\.sequence\.unpack"),
    Known("`weighted_binary_cross_entropy` of sequences", r"^\[", r"C\.weighted_binary"),
    Known("cosines of zero vectors", r"^\[.*nan", r"C\.cosine_distance"),
    Known("pooling with `ceil_out_dim`", "", r"C\.AVG_POOLING.*ceil_out_dim=True"),
    Known("`times` of a vector and a one-column matrix", "", r"input_variable\(\([^()]*, 1\)(.|\n)*C\.times\("),
    Known("gradients that flow through a `lambda_rank`", "", r"lambda_rank"),
    Known("gradients of `tan`, of `pow`", "", r"roipooling"),
]


def marked(found: Sequence[Difference], lines: Sequence[str]) -> list[Difference]:
    """The differences of a program, those that are known as such, with their row."""
    return [_marked(d, "\n".join(lines)) for d in found]


def _marked(d: Difference, program: str) -> Difference:
    for known in KNOWN:
        kinds = ("value",) if known.program else ("accepted",)
        if d.kind in kinds and re.search(known.details, d.details) and re.search(known.program, program):
            return replace(d, kind="known", details=f"{known.row} | {d.details}")
    return d
