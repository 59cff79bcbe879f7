"""Operations registered under ids: users' JAX functions, and proxies for operations of other runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._typing import ElementType, ShapeLike
from ..graph.arguments import public_operation
from ..graph.build import apply, composite
from ..graph.dtypes import as_dtype
from ..graph.shape import as_shape
from ..primitives import native
from ._operand import Operand, as_variable, as_variables

if TYPE_CHECKING:
    from .functions import Function


@public_operation
def register_native_user_function(op_id: str, module_name: str, factory_method_name: str) -> None:
    """Register an operation written in JAX under an id: the function `factory_method_name` of a Python module.

    The function takes one sample of each operand, and the attributes of the instance as keyword arguments; it returns
    an array or a tuple of arrays. It is vmapped over batch and sequence, compiled into the step, and differentiated by
    JAX (``jax.custom_vjp`` is respected). Of CNTK's own libraries ``Cntk.ExtensibilityExamples`` is supported.

    Errors: ValueError if the id is already registered; RuntimeError if there is no such module or function.

    >>> import cntkjax as C, numpy as np, sys, types
    >>> mine = sys.modules["my_operations"] = types.ModuleType("my_operations")  # or a file my_operations.py
    >>> mine.scaled_times = lambda w, x, *, scale=1.0: scale * (x @ w)
    >>> C.ops.register_native_user_function("TimesScale", "my_operations", "scaled_times")
    >>> x = C.input_variable(2)
    >>> C.ops.native_user_function("TimesScale", [np.eye(2), x], {"scale": 3.0}).eval({x: [[1, 2]]})
    array([[3., 6.]], dtype=float32)
    """
    if not module_name:
        raise ValueError("register_native_user_function: module_name is empty: give the module of the factory")
    native.register(op_id, module_name, factory_method_name)


@public_operation
def native_user_function(
    op_id: str, operands: Sequence[Operand], attributes: Mapping[str, Any] | None = None,
    user_function_instance_name: str = "",
) -> Function:
    """An instance of an operation that was registered with ``register_native_user_function``.

    Model files store the id and the attributes: numbers, strings, arrays, and lists and dicts of them.

    Shapes: what the registered function returns for one sample.
    Errors: ValueError for an id that is not registered; RuntimeError if the operation raises an exception.

    >>> import sys, types
    >>> module = sys.modules["doubling"] = types.ModuleType("doubling")  # or a file doubling.py
    >>> module.doubled = lambda x: 2 * x
    >>> register_native_user_function("Doubled", "doubling", "doubled")
    >>> native_user_function("Doubled", [[1, 2]]).eval()
    array([2., 4.], dtype=float32)
    """
    if op_id not in native.NATIVE:
        raise ValueError(f"native_user_function: '{op_id}' is not registered; call register_native_user_function first")
    node = native.NATIVE[op_id].node(as_variables(*operands), dict(attributes or {}), user_function_instance_name)
    return composite(node)  # type: ignore[return-value]


@public_operation
def custom_proxy_op(
    custom_op: str, output_shape: ShapeLike, output_data_type: ElementType, *operands: Operand, **kw_name: str
) -> Function:
    """A node that saves operands in a model file for an operation of another runtime; it cannot be evaluated here.

    Shapes: operands of any shape and element type, int8 and int16 included -> [*output_shape].

    Errors: TypeError for keywords other than `name`.

    >>> import cntkjax as C, numpy as np
    >>> w = C.parameter((2, 3), init=1, dtype=np.int8)
    >>> custom_proxy_op("packed_times", (3,), np.float32, C.input_variable(2), w, name="p").shape
    (3,)
    """
    unknown = set(kw_name) - {"name"}
    if unknown:
        raise TypeError(f"custom_proxy_op takes no keyword but name, got {', '.join(sorted(unknown))}")
    attributes = {
        "customOp": custom_op, "newDataType": as_dtype(output_data_type), "outputShape": as_shape(output_shape)
    }
    variables = [as_variable(v) for v in operands]
    return apply(native.CustomProxyOp, variables, attributes, kw_name.get("name", ""))  # type: ignore[return-value]


__all__ = ["custom_proxy_op", "native_user_function", "register_native_user_function"]
