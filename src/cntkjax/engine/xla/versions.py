"""Differences between versions of JAX, in terms of its public names; `private_names.py` has those of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import jax

from ..._typing import Array

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr  # slow to import


def double_precision(enabled: bool) -> AbstractContextManager:
    """A scope in which JAX keeps float64, if enabled; its settings outside do not change."""
    return jax.enable_x64(True) if enabled else nullcontext()


def option(name: str) -> Any:
    """The value of an option of JAX; None if this version has no such option."""
    return getattr(jax.config, name, None)


def options() -> Mapping[str, Any]:
    """The values of all options of JAX, outside of scopes that set them."""
    values = getattr(jax.config, "values", None)
    return values or {name: option(name) for name in dir(jax.config) if name.startswith("jax_")}


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Array], *arrays: Array) -> list[Array]:
    """The outputs of a jaxpr."""
    evaluate = getattr(jax.core, "eval_jaxpr", None)
    if evaluate is None:
        from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

        return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(*arrays))
    return evaluate(jaxpr, consts, *arrays)


__all__ = ["double_precision", "eval_jaxpr", "option", "options"]
