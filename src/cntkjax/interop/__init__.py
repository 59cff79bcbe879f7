"""Bridges to JAX and flax: a Function as one of theirs, and one of theirs as a Function. CNTK has nothing alike."""
from ._from_jax import from_jax
from ._names import leaf_names
from ._to_jax import JaxFunction, to_jax

__all__ = ["JaxFunction", "from_flax", "from_jax", "leaf_names", "to_flax", "to_jax"]


def __getattr__(name: str) -> object:
    if name in ("from_flax", "to_flax"):  # flax is an optional package, and slow to import
        from . import _flax

        return getattr(_flax, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
