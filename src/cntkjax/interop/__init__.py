"""Conversion of Functions to JAX functions and flax modules, and back. CNTK has no counterpart."""

from __future__ import annotations

import os

from ..graph.arguments import public
from ..graph.proxy import add_members
from ..ops.functions import Function
from ._from_jax import from_jax
from ._names import leaf_names
from ._to_jax import JaxFunction, to_jax
from ._weights import load_weights, save_weights, weight_names

__all__ = ["JaxFunction", "export_stablehlo", "from_flax", "from_jax", "leaf_names",
           "load_weights", "save_weights", "to_flax", "to_jax", "weight_names"]


@public
def export_stablehlo(function: Function, path: str | os.PathLike[str]) -> None:
    """Write what a Function computes as a file for ``jax.export.deserialize``, for any size of batch.

    See `_stablehlo.export_stablehlo`, which is imported at the first call: jax.export is slow to import.
    """
    from . import _stablehlo

    _stablehlo.export_stablehlo(function, path)


add_members(Function, {"export_stablehlo": export_stablehlo})


def __getattr__(name: str) -> object:
    if name in ("from_flax", "to_flax"):  # flax is an optional package, and slow to import
        from . import _flax

        return getattr(_flax, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

