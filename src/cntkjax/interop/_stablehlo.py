"""Functions as StableHLO files, which run with jax alone, without this package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax import export

from .._typing import Array
from ..engine.xla.versions import double_precision
from ..formats import files
from ..graph.errors import explain
from ..ops.functions import Function
from ._to_jax import JaxFunction, to_jax

PLATFORMS = "cpu", "cuda", "tpu"
LEAST_STEPS = 16  # of sequences, if the program looks some steps back or ahead


def export_stablehlo(function: Function, path: str | os.PathLike[str]) -> None:
    """Write a Function with its current values to a file for ``jax.export.deserialize``.

    The program takes any batch size and any length of sequences, on CPU, GPU and TPU. The file holds only StableHLO.

    Shapes: inputs in the order of ``function.arguments``: [batch, *shape]; for one with a sequence axis the pair of
            [batch, time, *shape] and lengths, int32 [batch]; [*shape] without dynamic axes. Where a Function looks
            some steps back or ahead, time is at least 16: pad the sequences, lengths say where they end. Outputs are
            an array or a tuple of arrays, zero after the end of a sequence.
    Errors: ImportError, with the pip command to run, without the package flatbuffers, in which jax writes these files.
            ValueError if the Function runs Python code of the user, or if shapes inside depend on the sizes of the
            batch or of sequences in a way that StableHLO cannot express. An existing file is kept then.

    >>> import cntkjax as C, jax, os, tempfile
    >>> model = C.layers.Dense(2, init=1)(C.input_variable(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, 'model.stablehlo')
    ...     export_stablehlo(model, path)
    ...     with open(path, 'rb') as file:
    ...         loaded = jax.export.deserialize(bytearray(file.read()))
    >>> loaded.call(jax.numpy.ones((1, 3)))
    Array([[3., 3.]], dtype=float32)
    """
    _require_flatbuffers()
    from jax.extend.core import InconclusiveDimensionOperation  # slow to import; jax.errors has it from 0.10.1 on

    f, parameters = to_jax(function)
    with double_precision(any(v.dtype == np.float64 for v in (*function.inputs, *function.outputs))):
        try:
            try:
                exported = _exported(f, parameters, 1)
            except InconclusiveDimensionOperation:
                exported = _exported(f, parameters, LEAST_STEPS)
        except (InconclusiveDimensionOperation, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(explain(
                f"export_stablehlo: {function!r} has no form for every size of batch and sequence ({reason})",
                fix="give the inputs fixed sequence lengths as static axes, or save it as ONNX",
            )) from error
        files.write((path, [bytes(exported.serialize())]))


def _require_flatbuffers() -> None:
    try:
        import flatbuffers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'export_stablehlo: jax writes and reads files with the package flatbuffers, which it does not install: '
            'pip install "cntkjax[stablehlo]"; where a file is loaded with jax alone: pip install jax flatbuffers'
        ) from error


def _exported(f: JaxFunction, parameters: Mapping[str, Array], least_steps: int) -> export.Exported:
    """The program with symbolic sizes: b, one for each sequence axis, and one for each free static axis."""
    axes = list(dict.fromkeys(v.sequence_axis for v in f.arguments if v.sequence_axis is not None))
    letters = {axis: f"t{i}" for i, axis in enumerate(axes)}
    # The second constraint follows from the first one, but jax proves nothing about products of two sizes.
    constraints = [c for t in letters.values() for c in (f"{t} >= {least_steps}", f"b*{t} >= {least_steps}*b")]
    scope = export.SymbolicScope(constraints)
    specs: list[jax.ShapeDtypeStruct | tuple[jax.ShapeDtypeStruct, ...]] = []
    for i, v in enumerate(f.arguments):
        dims = [str(d) if d >= 0 else f"d{i}_{k}" for k, d in enumerate(v.shape)]
        if v.sequence_axis is not None:
            dims = ["b", letters[v.sequence_axis], *dims]
        elif v.dynamic_axes:
            dims = ["b", *dims]
        data = jax.ShapeDtypeStruct(_symbols(dims, scope), v.dtype)
        lengths = jax.ShapeDtypeStruct(_symbols(["b"], scope), np.int32)
        specs.append(data if v.sequence_axis is None else (data, lengths))
    program = jax.jit(lambda *inputs: f(parameters, *inputs))
    return export.export(program, platforms=PLATFORMS)(*specs)


def _symbols(dims: Sequence[str], scope: export.SymbolicScope) -> Sequence[object]:
    return export.symbolic_shape(", ".join(dims), scope=scope)


__all__ = ["export_stablehlo"]
