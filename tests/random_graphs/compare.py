"""How two runs of a program differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from .processes import Shown

TOLERANCE = {"float32": 1e-3, "float64": 1e-6}  # of the largest value
UNKNOWN = -2  # a size, as CNTK and this package report it


@dataclass(frozen=True)
class Difference:
    """`kind`: "value", "type", "refused" (by ours alone), "accident", "crash", "accepted" (by ours alone), "known",
    "both refuse" (so that the rest is not compared), "not asked" (CNTK refuses; ours was not tried).

    `place`: which of the values that were observed together differs; -1: all of them.
    """

    kind: str
    what: str
    details: str
    place: int = -1

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("accepted", "known", "both refuse", "not asked")

    @property
    def is_refused_root(self) -> bool:
        """Whether CNTK refuses to compute one of the roots, so that it shows none."""
        return not self.is_fault and self.place < 0 and not self.what.startswith("line") and self.what != "fed oddly"


def is_refusal(value: Any) -> bool:
    return isinstance(value, dict) and "error" in value


def compare(cntk: Shown, ours: Shown, dtype: str) -> list[Difference]:
    """Where ours is not as CNTK's; nothing if CNTK crashed."""
    if "crash" in ours:
        return [Difference("crash", "", ours["crash"])]
    accidents = [
        Difference("accident", what, f"{v['error']}: {v['message']} ({v['place']})")
        for what, v in ours.items() if is_refusal(v) and v["accident"]
    ]
    if accidents or "crash" in cntk:
        return accidents
    both_refuse = any(is_refusal(v) and is_refusal(ours.get(w, v)) for w, v in cntk.items() if w != "fed oddly")
    return _refusals(cntk, ours) + [
        d for what in _known_parameters(cntk) if what in ours and not (is_refusal(cntk[what]) or is_refusal(ours[what]))
        for d in _values(what, cntk[what], ours[what], dtype) if not (both_refuse and _is_unknown(what, ours[what]))
    ]


def _known_parameters(cntk: Shown) -> Iterable[str]:
    """What CNTK shows before a training that it refuses, perhaps in the midst, which moves the parameters."""
    return takewhile(lambda what: not (what.startswith("training") and is_refusal(cntk[what])), cntk)


def _is_unknown(what: str, shown: Any) -> bool:
    """Whether it is a type without a known shape or axes: of what neither computes, it does not matter."""
    return what.startswith("type") and (UNKNOWN in shown[0] or shown[1] == ["new"])


def _refusals(cntk: Shown, ours: Shown) -> list[Difference]:
    """One of the two stopped where the other went on."""
    theirs = {w: v for w, v in cntk.items() if is_refusal(v)}
    mine = {w: v for w, v in ours.items() if is_refusal(v)}
    refused = {w: v for w, v in mine.items() if not theirs or (w in cntk and w not in theirs)}
    if refused:
        return [Difference("refused", w, f"{v['error']}: {v['message']}") for w, v in refused.items()]
    return [Difference(_refused_kind(w, ours, mine), w, v["message"]) for w, v in theirs.items()]


def _refused_kind(what: str, ours: Shown, mine: Shown) -> str:
    if what in mine or (mine and what not in ours):
        return "both refuse"
    return "accepted" if what in ours or what.startswith("line") else "not asked"


def _values(what: str, cntk: Any, ours: Any, dtype: str) -> list[Difference]:
    if what.startswith("type"):
        # Shapes of loops that CNTK leaves unknown are inferred: docs/compatibility.md.
        known = cntk == ours or (isinstance(cntk, list) and UNKNOWN in cntk[0] and cntk[1:] == ours[1:])
        return [] if known else [Difference("type", what, f"{cntk} in CNTK, {ours} here")]
    if not (isinstance(cntk, list) and isinstance(ours, list) and len(cntk) == len(ours)):
        cntk, ours = [cntk], [ours]
    problems = [problem(a, b, TOLERANCE[dtype]) for a, b in zip(cntk, ours, strict=True)]
    return [Difference("value", what, p, i) for i, p in enumerate(problems) if p]


def problem(cntk: Any, ours: Any, tolerance: float) -> str:
    """How two values differ; empty if they agree."""
    if isinstance(cntk, list) and isinstance(ours, list):
        if len(cntk) != len(ours):
            return f"{len(cntk)} values in CNTK, {len(ours)} here"
        return next((p for a, b in zip(cntk, ours, strict=True) if (p := problem(a, b, tolerance))), "")
    a, b = _array(cntk), _array(ours)
    if a is None or b is None:
        return "" if cntk == ours else f"{cntk} in CNTK, {ours} here"
    if a.shape != b.shape:
        return f"shape {a.shape} in CNTK, {b.shape} here"
    same = np.isfinite(a) & np.isfinite(b)
    scale = max(1.0, float(np.abs(a[same]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        differs = np.where(same, np.abs(a - b) > tolerance * scale, np.isfinite(a) | np.isfinite(b) | (a == -b))
    return f"{a[differs][:8]} in CNTK, {b[differs][:8]} here" if differs.any() else ""


def _array(value: Any) -> np.ndarray | None:
    if isinstance(value, dict) and "data" in value:
        return np.array(value["data"], float).reshape(value["shape"])
    return np.array(float(value)) if isinstance(value, (int, float)) else None
