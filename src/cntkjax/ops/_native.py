"""Operations under ids: JAX functions of users, and proxies for those of other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..graph.build import apply, composite
from ..graph.dtypes import as_dtype
from ..graph.shape import as_shape
from ..primitives import native
from ._operand import Operand, as_variable, as_variables


def register_native_user_function(op_id: str, module_name: str, factory_method_name: str) -> None:
    """Let an id stand for an operation written in JAX: the function `factory_method_name` of a Python module.

    The function gets one sample of each operand, and the attributes of the instance as keywords; it returns an array
    or a tuple of them. It is mapped over batch and sequence, runs inside the compiled step, and JAX differentiates it
    (``jax.custom_vjp`` is obeyed). Of CNTK's own libraries ``Cntk.ExtensibilityExamples`` is known.

    Errors: ValueError for an id that is taken; RuntimeError if there is no such module or function.

    Example:
        >>> import cntkjax as C, numpy as np, sys, types
        >>> mine = sys.modules["my_operations"] = types.ModuleType("my_operations")  # a file my_operations.py would do
        >>> mine.scaled_times = lambda w, x, *, scale=1.0: scale * (x @ w)
        >>> C.ops.register_native_user_function("TimesScale", "my_operations", "scaled_times")
        >>> x = C.input_variable(2)
        >>> C.ops.native_user_function("TimesScale", [np.eye(2), x], {"scale": 3.0}).eval({x: [[1, 2]]})
        array([[3., 6.]], dtype=float32)
    """
    native.register(op_id, module_name, factory_method_name)


def native_user_function(
    op_id: str, operands: Sequence[Operand], attributes: Mapping[str, Any] | None = None,
    user_function_instance_name: str = "",
) -> Any:
    """An instance of an operation that was registered by ``register_native_user_function``.

    Model files keep the id and the attributes: numbers, texts, arrays, lists and dicts of them.

    Errors: ValueError for an id that is not registered; RuntimeError for what the operation raises.
    """
    if op_id not in native.NATIVE:
        raise ValueError(f"native_user_function: '{op_id}' is not registered; call register_native_user_function first")
    made = native.NATIVE[op_id].node(as_variables(*operands), dict(attributes or {}), user_function_instance_name)
    return composite(made)


def custom_proxy_op(
    custom_op: str, output_shape: Any, output_data_type: Any, *operands: Operand, **kw_name: str
) -> Any:
    """A node that keeps operands in a model file for an operation of another program; it cannot be computed here.

    Shapes: the output's is `output_shape`; operands may be of any shape and type, int8 and int16 too.

    Errors: TypeError for other keywords than `name`.

    Example:
        >>> import cntkjax as C, numpy as np
        >>> w = C.parameter((2, 3), init=1, dtype=np.int8)
        >>> custom_proxy_op("packed_times", (3,), np.float32, C.input_variable(2), w, name="p").shape
        (3,)
    """
    unknown = set(kw_name) - {"name"}
    if unknown:
        raise TypeError(f"custom_proxy_op takes the keyword name only, not {', '.join(sorted(unknown))}")
    attributes = {
        "customOp": custom_op, "newDataType": as_dtype(output_data_type), "outputShape": as_shape(output_shape)
    }
    return apply(native.CustomProxyOp, [as_variable(v) for v in operands], attributes, kw_name.get("name", ""))


__all__ = ["custom_proxy_op", "native_user_function", "register_native_user_function"]
