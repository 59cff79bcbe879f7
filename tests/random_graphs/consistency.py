"""What holds of a program without CNTK: sequences compute the same alone, in another order, and in a loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .compare import TOLERANCE, UNKNOWN, problem
from .program import BATCH, HEADER, Program
from .serve import plain

# What computes a sample from others, or from its place in the minibatch.
MIXING = (
    "batch", "all_axes", "BatchNormalization", "negative_samples", "classification_error", "edit_distance", "ndcg",
    "lambda_rank", "fmeasure", "weighted_binary", "Dropout", "unpack", "random",
)
INFERRED = -1
Values = list[list[Any]]  # of each root, what each sample has


def problems(program: Program) -> list[str]:
    """What a program computes otherwise in another form; empty if all agree."""
    if any(word in s.text for s in program.statements for word in MIXING):
        return []
    if any(n in (UNKNOWN, INFERRED) for s in program.statements for n in s.type.shape):
        return []
    names, (minibatch, *_) = executed(program)
    roots = [names[r] for r in program.roots if BATCH in program[r].type.axes]
    fed = {s.name for s in program.statements if s.is_input and s.type.axes}
    if not roots or not fed:
        return []
    size = program.minibatches[0].size
    forms = {
        "alone": lambda: [evaluated(names, roots, chosen(minibatch, fed, [i])) for i in range(size)],
        "reversed": lambda: [evaluated(names, roots, chosen(minibatch, fed, range(size - 1, -1, -1)))],
        "loaded": lambda: [evaluated(names, [names["reload"](names["C"].combine(roots))], minibatch)],
    }
    whole = evaluated(names, roots, minibatch)
    found = (disagreement(form, whole, compute(), TOLERANCE[program.dtype]) for form, compute in forms.items())
    return [p for p in found if p]


def executed(program: Program) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The names of a program whose graph is built, and its minibatches."""
    names: dict[str, Any] = {}
    exec(compile(HEADER.read_text(), "header.py", "exec"), names)
    for line in program.lines():
        if not line.startswith(("show(", "loss =")):
            exec(line, names)
    return names, [names[f"m{i}"] for i in range(len(program.minibatches))]


def chosen(minibatch: dict[str, Any], fed: set[str], order: Sequence[int]) -> dict[str, Any]:
    """Some of the sequences; what has no batch axis stays."""
    def some(v: Any) -> Any:
        return [v[i] for i in order] if isinstance(v, list) else v[list(order)]

    return {name: some(v) if name in fed else v for name, v in minibatch.items()}


def evaluated(names: dict[str, Any], roots: list[Any], minibatch: dict[str, Any]) -> Values:
    return [list(values) for values in names["evaluate"](roots, minibatch)]


def disagreement(form: str, whole: Values, parts: list[Values], tolerance: float) -> str:
    """How the values of another form differ from those of the whole minibatch."""
    for root, expected in enumerate(whole):
        found = [sample for part in parts for sample in part[root]]
        if form == "reversed":
            found.reverse()
        if p := problem(plain(expected), plain(found), tolerance):
            return f"{form}: {p.replace('CNTK', 'the minibatch')}"
    return ""
