"""``x[...]``: slices of static axes."""

from __future__ import annotations

from typing import Any


def index(x: Any, arg: Any) -> Any:
    """Slices by ints, slices, and ``...``; lists of indices are gathered.

    Errors: IndexError for too many indices; TypeError for what is no index.
    """
    from . import slice as slice_op
    from . import splice

    keys = list(arg) if isinstance(arg, tuple) else [arg]
    rank = len(x.shape)
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (rank - len(keys) + 1)
    if len(keys) > rank:
        raise IndexError(f"too many indices for {x!r}: {len(keys)} for {rank} static axes")
    for axis, key in enumerate(keys):
        if isinstance(key, (list, tuple)):
            parts = [slice_op(x, axis, k, k + 1 if k != -1 else 0) for k in key]
            x = splice(*parts, axis=axis) if len(parts) > 1 else parts[0]
        elif isinstance(key, slice):
            if key != slice(None):
                x = slice_op(x, axis, key.start or 0, key.stop or 0, key.step)
        elif isinstance(key, int):
            x = slice_op(x, axis, key, key + 1 if key != -1 else 0)
        else:
            raise TypeError(f"{key!r} is no index: use ints, slices, lists of ints, or ...")
    return x
