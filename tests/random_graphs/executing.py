"""A random program executed in this process, by the package alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .program import Program
from .serve import new_names

# What computes a sample from others, or from its place in the minibatch.
MIXING = (
    "batch", "all_axes", "BatchNormalization", "negative_samples", "classification_error", "edit_distance", "ndcg",
    "lambda_rank", "fmeasure", "weighted_binary", "Dropout", "unpack", "random",
)


def is_mixing(program: Program) -> bool:
    return any(word in s.text for s in program.statements for word in MIXING)


def in_order(leaves: Sequence[Any]) -> list[Any]:
    """As they were created."""
    return sorted(leaves, key=lambda v: (len(v.uid), v.uid))


def executed(program: Program) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The names of a program whose graph is built, and its minibatches."""
    names: dict[str, Any] = new_names()
    for line in program.lines():
        if not line.startswith(("show(", "loss =")):
            exec(line, names)
    return names, [names[f"m{i}"] for i in range(len(program.minibatches))]


def chosen(minibatch: dict[str, Any], fed: set[str], order: Sequence[int]) -> dict[str, Any]:
    """Some of the sequences; what has no batch axis stays."""
    def some(v: Any) -> Any:
        return [v[i] for i in order] if isinstance(v, list) else v[list(order)]

    return {name: some(v) if name in fed else v for name, v in minibatch.items()}
