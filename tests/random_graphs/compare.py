"""How two runs of a program differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .processes import Shown

TOLERANCE = {"float32": 1e-3, "float64": 1e-6}  # of the largest value
UNKNOWN = -2  # a size, as CNTK and this package report it


@dataclass(frozen=True)
class Difference:
    """`kind`: "value", "type", "refused" (by ours alone), "accident", "crash", "accepted" (by ours alone), "known"."""

    kind: str
    what: str
    details: str

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("accepted", "known")


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
    return _refusals(cntk, ours) + [
        d for what in cntk if what in ours and not is_refusal(cntk[what]) and not is_refusal(ours[what])
        for d in _values(what, cntk[what], ours[what], dtype)
    ]


def _refusals(cntk: Shown, ours: Shown) -> list[Difference]:
    """One of the two stopped where the other went on."""
    theirs = {w: v for w, v in cntk.items() if is_refusal(v)}
    mine = {w: v for w, v in ours.items() if is_refusal(v)}
    if not theirs:
        return [Difference("refused", w, f"{v['error']}: {v['message']}") for w, v in mine.items()]
    return [Difference("accepted", w, v["message"]) for w, v in theirs.items() if not mine]


def _values(what: str, cntk: Any, ours: Any, dtype: str) -> list[Difference]:
    if what.startswith("type"):
        # Shapes of loops that CNTK leaves unknown are inferred: docs/compatibility.md.
        known = cntk == ours or (isinstance(cntk, list) and UNKNOWN in cntk[0] and cntk[1:] == ours[1:])
        return [] if known else [Difference("type", what, f"{cntk} in CNTK, {ours} here")]
    found = problem(cntk, ours, TOLERANCE[dtype])
    return [Difference("value", what, found)] if found else []


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
    if (np.isfinite(a) != np.isfinite(b)).any():
        return f"{a.ravel()[:8]} in CNTK, {b.ravel()[:8]} here"
    if not same.any():
        return ""
    error = np.abs(a[same] - b[same]).max()
    large = error > tolerance * max(1.0, float(np.abs(a[same]).max()))
    return f"{a.ravel()[:8]} in CNTK, {b.ravel()[:8]} here" if large else ""


def _array(value: Any) -> np.ndarray | None:
    if isinstance(value, dict) and "data" in value:
        return np.array(value["data"], float).reshape(value["shape"])
    return np.array(float(value)) if isinstance(value, (int, float)) else None
