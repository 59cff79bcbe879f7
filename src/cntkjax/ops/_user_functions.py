"""User-defined functions in Python: custom ``forward`` and ``backward`` methods inside a graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core import NativeValue, Value
from ..device import cpu
from ..engine.data.ragged import Ragged, SparseRows
from ..formats.containers import Dictionary
from ..graph.arguments import public_operation
from ..graph.build import Spec, composite, infer
from ..graph.errors import ResultError, explain
from ..graph.function import Node
from ..graph.proxy import delegates_to, unwrap
from ..graph.public import classes
from ..graph.uid import new_uid
from ..graph.variable import Edge, rename
from ..primitives.user import UserDefined
from ._operand import as_variable
from ._user_function_files import DESERIALIZERS, register_udf_deserialize_callback
from .functions import Function


@delegates_to(
    Function, settable=("name", "custom_attributes"),
    special=("__call__", "__getitem__", "__iter__", "__lshift__", "__repr__", "__rshift__", "__str__"),
)
class UserFunction(Function):
    """Base class of operations written in Python; subclasses define ``infer_outputs``, ``forward`` and ``backward``.

    ``forward(argument, device, outputs_to_retain)`` returns ``(state, value)``; with several inputs, `argument` is a
    tuple. With several outputs the signature is ``forward(arguments, outputs, device, outputs_to_retain)``: it fills
    the dict `outputs` and returns only the state. ``backward(state, root_gradient)`` returns the gradient of the single
    input; with several inputs, ``backward(state, root_gradients, variables)`` fills the dict `variables`. With several
    outputs, `root_gradients` is a dict. The state can be any object.

    Shapes: arguments and values are arrays [*shape], or [samples, *shape] with the batch axis, or lists of sequences
            [steps, *shape], and CSR matrices for sparse values (of sparse inputs, or of `one_hot` with
            ``sparse_output=True``); inside a recurrent loop, sequences have one step.
            With ``as_numpy=False`` they are ``cntk_py.Value`` objects.
    Errors: an exception in one of these methods is raised as a RuntimeError with the original as its cause; missing or
            mismatched results raise an error that is both a RuntimeError and a ValueError.

    >>> import cntkjax as C
    >>> class Double(UserFunction):
    ...     def __init__(self, x, name='double'):
    ...         super().__init__([x], name=name)
    ...     def infer_outputs(self):
    ...         x = self.inputs[0]
    ...         return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]
    ...     def forward(self, argument, device=None, outputs_to_retain=None):
    ...         return None, 2 * argument
    ...     def backward(self, state, root_gradients):
    ...         return 2 * root_gradients
    >>> x = C.input_variable(2, needs_gradient=True)
    >>> f = C.user_function(Double(x)) + 1
    >>> f.eval({x: [[1, 2]]}), f.grad({x: [[1, 2]]})
    (array([[3., 5.]], dtype=float32), array([[2., 2.]], dtype=float32))
    """

    def __init__(
        self, inputs: Sequence[Any], as_numpy: bool = True, attributes: Mapping[str, Any] | None = None, name: str = ""
    ) -> None:
        if not isinstance(inputs, Sequence):
            raise TypeError(f"user function {name!r}: inputs must be a list of operands, got {inputs!r}: pass [x]")
        self.as_numpy = as_numpy
        self.__wrapped__ = _Node(self, [as_variable(v) for v in inputs], dict(attributes or {}), name)

    # ---- defined by subclasses
    def infer_outputs(self) -> list[Edge]:
        """Return the outputs, created with ``output_variable`` from the types of ``self.inputs``."""
        raise NotImplementedError("infer_outputs has to be overridden: return a list of output_variable(...)")

    def forward(
        self, arguments: Any, outputs: Any = None, keep_for_backward: Any = None, device: Any = None,
        as_numpy: bool = True,
    ) -> Any:
        """Compute the values of the outputs."""
        raise NotImplementedError("forward has to be overridden: return (state, value)")

    def backward(self, state: Any, root_gradients: Any, variables: Any = None, as_numpy: bool = True) -> Any:
        """Compute the gradients of the inputs."""
        raise NotImplementedError("backward has to be overridden: return the gradient of the input")

    def clone(self, cloned_inputs: Sequence[Any]) -> Function:  # type: ignore[override]
        """A copy with other inputs; by default the class is called with the inputs and the name."""
        kind: Any = type(self)
        return kind(*cloned_inputs, name=self.name)

    def serialize(self) -> dict[str, Any]:
        """The state that model files store for `deserialize`: numbers, strings, arrays, and lists and dicts of them."""
        return {}

    @staticmethod
    def deserialize(inputs: list[Edge], name: str, state: dict[str, Any]) -> Function:
        """Recreate the function from its inputs, its name, and the state that `serialize` returned."""
        raise NotImplementedError("deserialize has to be overridden, or a callback registered")

    @property
    def op_name(self) -> str:
        """The name of the operation in model files: by default the module and name of the class."""
        return _class_name(type(self))

    @classmethod
    def _op_name(cls) -> str:
        return _class_name(cls)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


Plain: TypeAlias = "np.ndarray | list[Plain]"


class _Node(Function):
    """The node of a user function.

    As in CNTK it is a separate object, so that the attributes and methods of the user's class do not interfere with the
    graph.
    """

    def __init__(self, user: UserFunction, inputs: list[Edge], attributes: dict[str, Any], name: str) -> None:
        self.user = user
        self._outputs: list[Any] | None = None  # None until they are inferred
        Node.__init__(
            self, primitive=UserDefined(self), inputs=inputs, attributes=attributes, name=name,
            uid=new_uid("UserDefinedFunction"),
        )

    @property
    def node_outputs(self) -> list[Any]:
        """The outputs, inferred at first use, because subclasses may set attributes after ``super().__init__``."""
        if self._outputs is None:
            outputs = self._outputs = []
            try:
                infer(self)
            except BaseException:
                self._outputs = None
                raise
            for v, name in zip(outputs, self._names, strict=True):
                rename(v, name)
        return self._outputs

    @node_outputs.setter
    def node_outputs(self, outputs: list[Any]) -> None:
        self._outputs = outputs or None

    def __getattr__(self, name: str) -> Any:
        user = self.__dict__.get("user")
        if user is not None and not hasattr(Function, name) and (name in vars(user) or hasattr(type(user), name)):
            return getattr(user, name)
        return super().__getattr__(name)

    def serialize(self) -> Dictionary:
        """The record in a model file: the class, and the state that its `serialize` returns."""
        cls = type(self.user)
        state = dict(self.user.serialize() or {})
        record = {"module": cls.__module__, "class": cls.__name__, "op_name": self.user.op_name, "state": state}
        return Dictionary(record, version=1)

    def copied(self, inputs: Sequence[Edge]) -> Node:
        """The node of the function that the user's ``clone`` returns."""
        classes = [type(v) for v in inputs]
        try:
            copy = self.user.clone(tuple(inputs))
        except Exception as error:
            raise self._failure("clone", error) from error
        for v, cls in zip(inputs, classes, strict=True):
            v.__class__ = cls  # programs make `Variable`s of them, since CNTK passes objects of its compiled module
        if not isinstance(copy, Node):
            raise ResultError(explain(f"{self._who}: clone returned {copy!r}", fix="return a function from it"))
        return unwrap(copy).root_function

    def output_specs(self) -> list[Spec]:
        """The shapes, types and axes that `infer_outputs` returns."""
        try:
            outputs = self.user.infer_outputs()
        except Exception as error:
            raise self._failure("infer_outputs", error) from error
        if not isinstance(outputs, (list, tuple)) or not outputs or not all(isinstance(v, Edge) for v in outputs):
            raise RuntimeError(explain(
                f"{self._who}: infer_outputs returned {outputs!r}",
                fix="return a list of variables created with output_variable, even if there is only one",
            ))
        self._names = [v.name for v in outputs]
        return [Spec(v.shape, v.dtype, v.dynamic_axes, needs_gradient=v.needs_gradient) for v in outputs]

    # ---- evaluation
    def run_forward(self, arguments: list[Any], keep: bool) -> tuple[Any, list[Any]]:
        """The state and the values of the outputs. `keep`: a backward pass follows, maybe not through this node."""
        outputs = self.outputs
        operands = tuple(self._as_user_data(v, a) for v, a in zip(self.node_inputs, arguments, strict=True))
        first = operands[0] if len(operands) == 1 else operands
        retained = list(outputs) if keep else []
        try:
            if len(outputs) == 1:
                state, value = self.user.forward(first, cpu(), retained)
                return state, [_plain(value)]
            values: dict[Edge, Any] = dict.fromkeys(outputs)
            state = self.user.forward(first, values, cpu(), retained)
        except Exception as error:
            raise self._failure("forward", error) from error
        missing = [v for v in outputs if values[v] is None]
        if missing:
            raise ResultError(explain(
                f"{self._who}: forward did not set the value of {missing[0]!r}", fix="set outputs[v] for each output v"
            ))
        return state, [_plain(values[v]) for v in outputs]

    def run_backward(self, state: Any, gradients: list[Any], needed: list[bool]) -> list[Any]:
        """Gradients of the inputs; None for an input that needs no gradient."""
        outputs = self.outputs
        root_gradients = {
            v: self._as_user_data(v, g) if v.needs_gradient else None for v, g in zip(outputs, gradients, strict=True)
        }
        root = root_gradients[outputs[0]] if len(outputs) == 1 else root_gradients
        results: dict[Edge, Any] = {v: None for v, need in zip(self.node_inputs, needed, strict=True) if need}
        try:
            if len(self.node_inputs) == 1:
                results[self.node_inputs[0]] = self.user.backward(state, root)
            else:
                self.user.backward(state, root, results)
        except Exception as error:
            raise self._failure("backward", error) from error
        if unknown := [key for key in results if key not in self.node_inputs]:
            raise ResultError(explain(
                f"{self._who}: backward set a gradient for {unknown[0]!r}",
                fix="use only the variables of self.inputs as keys",
            ))
        # An input that occurs twice has one gradient for both occurrences. Gradients that are not needed are ignored.
        remaining = {v: results[v] for v, need in zip(self.node_inputs, needed, strict=True) if need}
        return [None if remaining.get(v) is None else _plain(remaining.pop(v)) for v in self.node_inputs]

    def _as_user_data(self, variable: Edge, data: Any) -> Any:
        """Data in the form in which they are passed to the user's methods."""
        if self.user.as_numpy:
            return data
        piece: Any = data[0] if isinstance(data, list) else data
        static, sparse = not variable.dynamic_axes, not isinstance(piece, np.ndarray)
        shape = variable.shape if sparse else np.shape(piece)[not static :]  # with the sizes of free axes
        if isinstance(data, list):
            ragged = Ragged.from_sequences(data)
        else:
            ragged = Ragged(SparseRows.from_csr(data) if sparse else data[None] if static else data, None)
        return NativeValue(Value.from_ragged(ragged, shape, static=static))

    @property
    def _who(self) -> str:
        return f"user function {self.name or self.uid!r} ({self.user.op_name})"

    def _failure(self, method: str, error: Exception) -> RuntimeError:
        return RuntimeError(explain(f"{self._who}: {method} raised {type(error).__name__}: {error}"))


def _plain(value: object) -> Plain:
    """A method's result as an array or a list of arrays."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    ragged = getattr(value, "ragged", None)
    if ragged is not None and ragged.lengths is not None:
        return [_plain(s) for s in ragged.sequences()]
    for method in ("asarray", "to_dense", "toarray"):  # sparse matrices become dense
        value = getattr(value, method)() if hasattr(value, method) else value
    return np.asarray(value)


@public_operation
def user_function(user_func: object) -> Function:
    """Turn a `UserFunction` into a graph that can be used like that of any other operation.

    Errors: TypeError for anything but a function.

    >>> import cntkjax as C
    >>> class Double(C.ops.functions.UserFunction):
    ...     def infer_outputs(self):
    ...         x = self.inputs[0]
    ...         return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]
    ...     def forward(self, x, device=None, outputs_to_retain=None):
    ...         return None, 2 * x
    ...     def backward(self, state, gradient):
    ...         return 2 * gradient
    >>> x = C.input_variable(2)
    >>> user_function(Double([x])).eval({x: [[1, 2]]})
    array([[2., 4.]], dtype=float32)
    """
    if not isinstance(user_func, Node):
        raise TypeError(f"user_function takes an instance of a subclass of UserFunction, got {user_func!r}")
    node = unwrap(user_func)
    if node.is_composite:
        return node
    _ = node.node_outputs
    return composite(node, "")  # type: ignore[return-value]


# ---- files
def from_file(record: dict[str, Any], inputs: list[Edge], name: str) -> Node:
    """The node of a user function in a model file. Its class must be imported already: loading never imports modules.

    Errors: ValueError if the class is unknown.
    """
    op_name = f"{record['module']}.{record['class']}"
    make = DESERIALIZERS.get(record.get("op_name", op_name))
    if make is None:
        cls = getattr(sys.modules.get(record["module"]), record["class"], None)
        if not (isinstance(cls, type) and issubclass(cls, UserFunction)):
            raise ValueError(explain(
                f"the function {name!r} is of the user-defined class '{op_name}', which is not known",
                fix=f"import module '{record['module']}' before loading the model, or register a function that creates "
                    f"it: Function.register_udf_deserialize_callback('{op_name}', f)",
            ))
        make = cls.deserialize
    function: object = make(inputs, name, record.get("state", {}))
    if not isinstance(function, Node):
        raise ResultError(
            f"deserializing the function {name!r} of class '{op_name}' returned {function!r}: return a function from it"
        )
    return unwrap(function).root_function


classes.user_function = from_file
__all__ = ["UserFunction", "register_udf_deserialize_callback", "user_function"]
