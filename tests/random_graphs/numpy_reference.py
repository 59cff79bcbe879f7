"""Statements computed by NumPy, each from the values that the package has for its operands, one sample at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from .compare import TOLERANCE, problem
from .program import Program, Statement
from .serve import plain

Axes = int | tuple[int, ...] | None


def softmax(x: np.ndarray, axis: int | None = None) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def times(a: np.ndarray, b: np.ndarray, output_rank: int = 1) -> np.ndarray:
    """The trailing axes of a and the leading axes of b are contracted."""
    return np.tensordot(a, b, b.ndim - output_rank)


def reduction(f: Any) -> Any:
    """The axes stay, of size 1, unless that is not wanted; without an argument all are gone."""
    return lambda x, axis=None, keepdims=True: f(
        x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=axis is not None and keepdims
    )


OPERATIONS = {
    "abs": np.abs, "atan": np.arctan, "asinh": np.arcsinh, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh,
    "exp": np.exp, "floor": np.floor, "negate": np.negative, "sin": np.sin, "sinh": np.sinh, "square": np.square,
    "tanh": np.tanh, "zeros_like": np.zeros_like, "ones_like": np.ones_like, "alias": np.copy, "stop_gradient": np.copy,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x, steepness=1: np.logaddexp(steepness * x, 0) / steepness,
    "softsign": lambda x: x / (1 + np.abs(x)), "elu": lambda x: np.where(x >= 0, x, np.expm1(x)),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1), "round": lambda x: np.floor(x + 0.5),
    "plus": np.add, "minus": np.subtract, "element_times": np.multiply, "element_max": np.maximum,
    "element_min": np.minimum, "log_add_exp": np.logaddexp, "pow": np.power,
    "sum": sum, "mean": lambda values: sum(values) / len(values),
    "element_select": lambda flag, a, b: np.where(flag != 0, a, b),
    **{n: np.__dict__[n] for n in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")},
    "reduce_sum": reduction(np.sum), "reduce_mean": reduction(np.mean), "reduce_max": reduction(np.max),
    "reduce_min": reduction(np.min), "reduce_prod": reduction(np.prod),
    "reduce_l1": reduction(lambda x, **o: np.abs(x).sum(**o)),
    "reduce_l2": reduction(lambda x, **o: np.sqrt((x * x).sum(**o))),
    "reduce_sum_square": reduction(lambda x, **o: (x * x).sum(**o)),
    "reduce_log_sum_exp": reduction(lambda x, **o: np.log(np.exp(x).sum(**o))),
    "times": times, "times_transpose": lambda a, b: a @ b.T,
    "softmax": softmax, "log_softmax": lambda x, axis: np.log(softmax(x, axis)),
    "transpose": np.transpose, "swapaxes": np.swapaxes,
}
REFERENCE = SimpleNamespace(**OPERATIONS)


def disagreements(program: Program, names: dict[str, Any], minibatch: dict[str, Any]) -> Iterator[str]:
    """Where NumPy computes something else."""
    statements = [s for s in program.statements if is_covered(program, s)]
    operands = dict.fromkeys(u for s in statements for u in (s.name, *s.uses))
    computed = [name for name in operands if not program[name].is_input]
    values = {name: minibatch[name] for name in operands if program[name].is_input}
    if computed:
        values |= zip(computed, names["evaluate"]([names[n] for n in computed], minibatch), strict=True)
    for s in statements:
        expected = [
            np.asarray(eval(s.text, {"C": REFERENCE, **sample}), np.float64)
            for sample in samples(program, s, values)
        ]
        if " / " in s.text:  # 1 / 0 is 0 in CNTK
            expected = [np.nan_to_num(e, nan=0, posinf=0, neginf=0) for e in expected]
        found = list(flat(values[s.name])) if s.type.axes else [values[s.name]]
        if p := problem(plain(expected), plain(found), TOLERANCE[program.dtype]):
            yield f"{s.line}: {p.replace('CNTK', 'NumPy')}"


def is_covered(program: Program, s: Statement) -> bool:
    """Whether NumPy has all operations of a statement, whose operands have its axes or none; its indices drop axes."""
    operations = set(re.findall(r"\bC\.([\w.]+)", s.text))
    types = [program[u].type for u in s.uses]
    fit = (
        t.axes in (s.type.axes, ()) and not t.is_sparse and not t.is_open and t.dtype == s.type.dtype for t in types
    )
    is_plain = "lambda" not in s.text and ")[" not in s.text
    return bool(types) and operations <= OPERATIONS.keys() and is_plain and all(fit)


def flat(value: Any) -> Iterator[np.ndarray]:
    """The samples of a batch, or the steps of all sequences."""
    for part in value:
        yield from part if isinstance(value, list) else [part]


def samples(program: Program, s: Statement, values: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """The values of the operands of each sample, or step."""
    moving = {u: list(flat(values[u])) for u in s.uses if program[u].type.axes}
    fixed = {u: np.asarray(values[u], np.float64) for u in s.uses if u not in moving}
    number = len(next(iter(moving.values()), [0]))
    return [fixed | {u: np.asarray(v[i], np.float64) for u, v in moving.items()} for i in range(number)]
