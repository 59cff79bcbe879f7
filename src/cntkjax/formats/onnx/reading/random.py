"""Random numbers: the distribution is that of the file, the numbers are not."""

from __future__ import annotations

import numpy as np

from .... import ops
from ....random import normal, normal_like, uniform, uniform_like
from .checks import check_size
from .table import OnnxNode, reads
from .values import Operand, Outputs

_DTYPES = {1: np.float32, 11: np.float64}


@reads("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def _random(node: OnnxNode) -> Outputs:
    is_uniform, is_like = "Uniform" in node.op, node.op.endswith("Like")
    names, defaults = (("low", "high") if is_uniform else ("mean", "scale")), (0.0, 1.0)
    first, second = (node.number(name, default) for name, default in zip(names, defaults, strict=True))
    of_type = node.attribute("dtype", None)
    if of_type is not None and of_type not in _DTYPES:
        raise node.error(f"random numbers of element type {of_type} cannot be read")
    if is_like:
        like = node.operand()
        value: Operand = (uniform_like if is_uniform else normal_like)(like, first, second)
        dtype = _DTYPES.get(of_type, like.dtype)
        return value if dtype is like.dtype else ops.cast(value, dtype)
    shape = node.ints("shape", ()) or []
    check_size(int(np.prod(shape, dtype=object)), node.where)
    return (uniform if is_uniform else normal)(tuple(shape), _DTYPES.get(of_type, np.float32), first, second)
