"""Inputs and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .table import operation
from .table import shape as _shape


def _scaled(name: str, factor: float) -> Callable[..., Any]:
    def make(C: Any, scale: float, ranks: dict[str, int], seed: int) -> Any:
        return getattr(C.initializer, name)(factor * scale, seed=seed, **ranks)

    return make


_INITIALIZERS: dict[str, Callable[..., Any]] = {
    "uniform": lambda C, scale, ranks, seed: C.initializer.uniform(0.05 * scale, seed=seed),
    "gaussian": _scaled("he_normal", 0.2 / 2**0.5),
    "normal": lambda C, scale, ranks, seed: C.initializer.normal(scale, seed=seed),
    "heNormal": _scaled("he_normal", 1.0),
    "heUniform": _scaled("he_uniform", 1.0),
    "glorotNormal": _scaled("glorot_normal", 1.0),
    "glorotUniform": _scaled("glorot_uniform", 1.0),
    "xavier": _scaled("he_uniform", 0.5**0.5),
}
RANDOM = frozenset(_INITIALIZERS)


@operation("LearnableParameter")
def parameter(
    C: Any, *, shape: Any, init: str = "", initValue: Any = 0.0, initValueScale: float = 1.0, randomSeed: float = -1.0,
    initOutputRank: float = 1.0, initFilterRank: float = 0.0, initFromFilePath: str = "", initFromLiteral: str = "",
    learningRateMultiplier: float = 1.0, initOnCPUOnly: bool = True, name: str,
) -> Any:
    """A parameter; a constant if it never learns."""
    dimensions = _shape(shape)
    if init in RANDOM:
        ranks = {} if init == "uniform" else {"output_rank": int(initOutputRank), "filter_rank": int(initFilterRank)}
        values = _INITIALIZERS[init](C, float(initValueScale), ranks, int(randomSeed))
    elif init == "bilinear":
        values = C.initializer.bilinear(dimensions[-1], dimensions[-2])
    else:
        values = _given(C, init, initValue, initFromFilePath, initFromLiteral, dimensions)
    if isinstance(values, np.ndarray):
        dimensions = values.shape
    if learningRateMultiplier == 0:
        return C.Constant(values, shape=dimensions, name=name)
    return C.Parameter(dimensions, init=values, name=name)


def _given(C: Any, init: str, value: Any, path: str, literal: str, dimensions: tuple[int, ...]) -> Any:
    """Initial values that are not random."""
    if init == "fromFile":
        return C.read_matrix(path, dimensions)
    if init == "fromLiteral":
        rows = [[float(each) for each in line.split()] for line in literal.strip().splitlines() if line.strip()]
        values = np.array(rows, np.float32, ndmin=2).T
        return values if -1 in dimensions else values.reshape(dimensions)
    if init in ("zero", "fixedValue"):
        return 0.0 if init == "zero" else float(value)
    known = ", ".join(sorted(RANDOM))
    raise ValueError(f"unknown init '{init}': {known}, zero, fixedValue, fromFile, fromLiteral or bilinear")


def copied(C: Any, original: Any, constant: bool | None, name: str, axes: Any = None) -> Any:
    """An input like another one, or a parameter that begins with its value; a constant if it never learns.

    `constant`: None if that is as of the other one; so are the dynamic axes of an input, unless there are `axes`.
    """
    if original.is_input:
        axes = original.dynamic_axes if axes is None else axes
        return C.input_variable(
            original.shape, original.dtype, is_sparse=original.is_sparse, dynamic_axes=axes, name=name
        )
    if original.is_constant if constant is None else constant:
        return C.Constant(original.value, name=name)
    return C.Parameter(original.shape, init=original.value, name=name)


@operation("InputValue", "SparseInputValue")
def input_value(C: Any, *, shape: Any, sparse: bool = False, axes: Any = None, name: str) -> Any:
    """An input that a reader feeds."""
    return C.input_variable(_shape(shape), is_sparse=bool(sparse), dynamic_axes=axes, name=name)


@operation("EnvironmentInput")
def environment_input(C: Any, *, propertyName: str, name: str) -> Any:
    """1 in training, 0 elsewhere; CNTK 2.7 has no other property."""
    if propertyName != "isTraining":
        raise ValueError(f"there is no environment property {propertyName!r}; the only one is isTraining")
    return C.is_training(name=name)


__all__ = ["RANDOM", "copied"]
