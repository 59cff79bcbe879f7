"""Operations that users write in JAX and register under an id, in place of CNTK's shared C++ libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..engine.xla.versions import double_precision
from ..graph.build import Spec, make_node
from ..graph.errors import ShapeError, explain
from ..graph.function import Node, copied_attributes
from ..graph.shape import FREE, INFERRED, UNKNOWN_SHAPE, Shape, is_unknown, shape_text
from ..graph.uid import new_uid
from ..graph.variable import Edge
from .base import Attrs, DTypeOf, Primitive, Samples, ShapeOf, String, primitive

# Sizes of free dimensions while shapes are inferred: output dimensions that differ between the two are free.
_TRIALS = 11, 13


class Native(Primitive):
    """An operation written in JAX: ``function(*operands, **attributes)`` on one sample, mapped over all samples.

    Shapes: those that `function` returns; JAX infers them, and derives the gradients.
    Errors: RuntimeError for an exception in `function`, which is its cause; ShapeError for an operand whose shape is
            to be inferred.
    """

    cntk_id = -1  # files identify it by its id, not by a number
    infers_partially = True

    def __init__(self, op_id: str, module: str, factory: str, function: Callable[..., Any]) -> None:
        self.name = op_id  # type: ignore[misc]
        self.module, self.factory, self.function = module, factory, function

    def complete(self, attrs: Attrs) -> Attrs:
        """All attributes; they are keywords of the function."""
        return dict(attrs)

    def cache_key(self, node: Node) -> Hashable:
        """The primitive itself: functions of the same id may differ."""
        return self

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """The shapes that the function returns."""
        if any(INFERRED in v.shape for v in inputs):
            raise ShapeError(explain(
                f"{self.name}: a native function cannot infer the dimensions of its operands",
                {f"[{i}]": v for i, v in enumerate(inputs)}, "give all operands shapes without inferred dimensions",
            ))
        shapes = [v.shape for v in inputs]
        if any(map(is_unknown, shapes)):
            return [Spec(UNKNOWN_SHAPE)] * self._number_of_outputs(inputs, attrs)
        first, second = (self._shapes(inputs, shapes, attrs, size) for size in _TRIALS)
        return [
            Spec(tuple(a if a == b else FREE for a, b in zip(s.shape, t.shape, strict=True)), s.dtype.type)
            for s, t in zip(first, second, strict=True)
        ]

    def _number_of_outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> int:
        """For operands of unknown shapes, as in a loop: the number for operands with a shape that is known."""
        known = next((v.shape for v in inputs if not is_unknown(v.shape)), (1,))
        try:
            return len(self._shapes(inputs, [known if is_unknown(v.shape) else v.shape for v in inputs], attrs, 1))
        except RuntimeError:
            return 1

    def _shapes(self, inputs: Sequence[Edge], shapes: Sequence[Shape], attrs: Attrs, size: int) -> list[Any]:
        samples = [
            jax.ShapeDtypeStruct(tuple(size if d == FREE else d for d in shape), v.dtype or np.float32)
            for v, shape in zip(inputs, shapes, strict=True)
        ]
        with double_precision(any(s.dtype == np.float64 for s in samples)):
            try:
                outputs = jax.eval_shape(lambda *xs: self.function(*xs, **attrs), *samples)
            except Exception as error:
                operands = ", ".join(map(shape_text, shapes))
                call = f"native function '{self.name}' ({self.module}.{self.factory}) of operands {operands}"
                raise RuntimeError(explain(f"{call} raised {type(error).__name__}: {error}")) from error
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    def lower(self, attrs: Attrs, *samples: Array) -> Samples:
        """Call the function."""
        return self.function(*samples, **attrs)

    def node(self, inputs: Sequence[Edge], attrs: Attrs, name: str, uid: str | None = None) -> Node:
        """A node that computes this operation."""
        return make_node(self, inputs, attrs, name, uid or new_uid("UserDefinedFunction"))

    def copy(self, node: Node, inputs: Sequence[Edge]) -> Node:
        """A node with other operands."""
        return self.node(inputs, copied_attributes(node), node.name)


NATIVE: dict[str, Native] = {}  # by id


def register(op_id: str, module: str, factory: str) -> Native:
    """Register the function `factory` of a module under an id.

    Errors: ValueError for an id that is registered already; RuntimeError if there is no such module or function.
    """
    if op_id in NATIVE:
        raise ValueError(f"a native function with the id '{op_id}' is registered already: ids have to be unique")
    library = re.sub(r"-[\d.]+$", "", module)
    try:
        functions = _LIBRARIES[library] if library in _LIBRARIES else vars(import_module(module))
    except ImportError as error:
        raise RuntimeError(explain(
            f"register_native_user_function: there is no module '{module}'",
            fix="write the operation as a JAX function of one sample in a Python module, and name that module here",
        )) from error
    if not callable(functions.get(factory)):
        raise RuntimeError(f"register_native_user_function: module '{module}' has no function '{factory}'")
    NATIVE[op_id] = Native(op_id, module, factory, functions[factory])
    return NATIVE[op_id]


def from_file(state: dict[str, Any]) -> Native:
    """The operation of a record in a model file: a registered one, or one of CNTK's libraries.

    Errors: ValueError for any other: loading a file never imports Python modules.
    """
    op_id, module, factory = (state.get(key) for key in ("op", "module", "deserialize_method"))
    if op_id not in NATIVE and re.sub(r"-[\d.]+$", "", str(module)) in _LIBRARIES:
        register(str(op_id), str(module), str(factory))
    if op_id not in NATIVE:
        raise ValueError(explain(
            f"the native function '{op_id}' of '{module}' is not registered",
            fix=f"call cntk.ops.register_native_user_function({op_id!r}, module, function) before loading the model, "
                "with the name of a Python module and of a JAX function in it",
        ))
    return NATIVE[op_id]


def _user_times(w: Array, x: Array, **attributes: Any) -> Array:
    return jnp.matmul(x, w)


# The functions in the libraries that come with CNTK, by the names of the libraries without the version.
_LIBRARIES: dict[str, dict[str, Callable[..., Any]]] = {
    "Cntk.ExtensibilityExamples": {"CreateUserTimesFunction": _user_times},
}


@primitive("CustomProxyOp", 93)
class CustomProxyOp(Primitive):
    """A placeholder in a model file for an operation that only another program can compute.

    Shapes: the output has ``outputShape`` and the type ``newDataType``.
    Errors: RuntimeError when it is computed.
    """

    attributes = {"customOp": String, "newDataType": DTypeOf, "outputShape": ShapeOf}
    infers_partially = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape and type in the attributes."""
        return Spec(attrs["outputShape"], attrs["newDataType"])

    def lower(self, attrs: Attrs, *samples: Array) -> Samples:
        """Raise an error."""
        raise RuntimeError(explain(
            f"custom_proxy_op stores the operation '{attrs['customOp']}' of another runtime: it cannot be evaluated",
            fix="save the model for that runtime, or write the operation in JAX: native_user_function",
        ))


__all__ = ["NATIVE", "CustomProxyOp", "Native", "from_file", "register"]
