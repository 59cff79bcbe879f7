"""Functions from Python callables: `Function(f)`, `@BlockFunction`, and the types of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._typing import ShapeLike
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import is_checked
from ..graph.axis import BATCH, UNKNOWN_AXES
from ..graph.build import composite, make_block
from ..graph.edit import replace_placeholders
from ..graph.errors import explain
from ..graph.function import Node, mark_layer
from ..graph.proxy import unwrap
from ..graph.shape import UNKNOWN_SHAPE, as_shape
from ..graph.variable import Edge, VariableKind, default_axes, outside, producer
from ..variables import Record, Variable, type_text
from ._operand import as_variable
from ._structure import alias, combine

if TYPE_CHECKING:
    from .functions import Function

ArgumentType: TypeAlias = "Mapping[str, Any] | type | ShapeLike"  # a Variable._Type, an element type, or a shape

# Arguments of the Python functions being traced, outermost first. A function created inside another one may use the
# arguments of the enclosing function, which do not become arguments of its own.
ENCLOSING: list[Edge] = []


def annotated(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """The callable, annotated with the types of its arguments.

    Errors: TypeError for more types than arguments.
    """
    names = list(inspect.signature(f).parameters)
    if len(args) > len(names):
        raise TypeError(f"{f!r} takes {len(names)} arguments, but got {len(args)} types: pass at most one for each")

    def typed(*a: Any, **k: Any) -> Any:
        return f(*a, **k)

    typed.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    typed.__annotations__ = {**dict(zip(names, args, strict=False)), **kwargs}
    typed.__name__ = getattr(f, "__name__", "")
    return typed


def declared_type(kind: object) -> Mapping[str, Any] | None:
    """A type as ``Tensor[3]``; that of scalars for ``float``, ``np.float64`` and so on; None for everything else."""
    if isinstance(kind, Mapping):
        return kind
    if kind is float or kind in (np.float16, np.float32, np.float64):
        element = {} if kind is float else {"dtype": kind}
        return Variable._Type(shape=(), is_sparse=False, dynamic_axes=[BATCH], **element)
    return None


def placeholder_of_type(kind: ArgumentType, name: str) -> Variable:
    """A placeholder of a given type; see `input_of_type`."""
    return _of_type(VariableKind.Placeholder, kind, name)


def input_of_type(kind: ArgumentType, name: str) -> Variable:
    """An input of a given type: a shape, ``Tensor[3]``, ``Sequence[Tensor[3]]``, ``np.float32`` ..."""
    return _of_type(VariableKind.Input, kind, name)


def _of_type(variable_kind: VariableKind, kind: ArgumentType, name: str) -> Variable:
    declared = declared_type(kind)
    dtype = get_default_override(None, dtype=default_override_or(np.float32))
    kind = {"shape": as_shape(kind)} if declared is None else declared  # type: ignore[arg-type]
    return Variable._new(
        variable_kind, kind.get("shape", UNKNOWN_SHAPE), kind.get("dtype", dtype),
        default_axes(kind.get("dynamic_axes")), name=name, is_sparse=bool(kind.get("is_sparse", False)),
        needs_gradient=bool(kind.get("needs_gradient", False)),
    )


def check_types(mapped: Mapping[Any, Any]) -> None:
    """Compare the types of variables with those of the arguments that they are to replace, as CNTK does.

    A constant may replace an argument with dynamic axes, and a variable may have further leading axes. Placeholders
    take everything.

    Errors: TypeError for a variable of another type, or of an unknown shape.
    """
    for place, (argument, value) in enumerate(mapped.items()):
        outer: Any = outside(argument)
        is_open = outer.is_placeholder or outer.shape == UNKNOWN_SHAPE
        if is_open or (isinstance(value, Node) and len(value.outputs) > 1):
            continue
        name = f"argument {argument.name}" if argument.name else f"positional argument {place}"
        declared, given = outer._type, value._type
        if given.shape == UNKNOWN_SHAPE:
            raise TypeError(explain(
                f"{name} has a known shape, and cannot be passed a Variable of unknown shape", {name: argument},
                "leave out the type of the argument, or apply the function to an input",
            ))
        if not _fits(declared, given):
            raise TypeError(explain(
                f"{name}'s type {type_text(declared)} is incompatible with the type {type_text(given)} of the passed "
                "Variable", {name: argument, "passed": value}, "declare the argument with that type, or convert it",
            ))


def _fits(declared: Record, given: Record) -> bool:
    has_axes = not given.dynamic_axes or given.dynamic_axes == declared.dynamic_axes
    is_alike = (given.dtype or declared.dtype, given.is_sparse) == (declared.dtype, declared.is_sparse)
    return has_axes and is_alike and given.shape[-len(declared.shape) :] == declared.shape


def new_placeholder(name: str = "") -> Variable:
    """A placeholder whose type will be inferred."""
    return Variable._new(VariableKind.Placeholder, UNKNOWN_SHAPE, None, UNKNOWN_AXES, name=name)


def from_python(f: Callable[..., Any], make_block: bool = False, op_name: str = "", name: str = "") -> Function:
    """Trace a Python function of variables into a Function.

    Its arguments become placeholders of the same names, or inputs if they are annotated with types; optional arguments
    keep their defaults. `op_name` and `name` are those of the block; without one the result keeps its name, as in CNTK.

    Errors: TypeError if `f` is not callable, returns None, or has arguments that its result does not depend on.
    """
    if isinstance(f, Node):
        return f
    if not callable(f):
        raise TypeError(f"Function needs a Python function of variables, not {f!r}")
    arguments = _arguments(f, placeholder_of_type if make_block else input_of_type)
    ENCLOSING.extend(arguments)
    try:
        function = as_outputs(f(*arguments))
    finally:
        del ENCLOSING[len(ENCLOSING) - len(arguments) :]
    if make_block:
        return block(function, arguments, op_name or getattr(f, "__name__", ""), name)
    missing = [v.name or v.uid for v in function.signature if v not in arguments]
    if missing:
        raise TypeError(
            f"CNTK Function '{getattr(f, '__name__', '')}' has {len(missing)} missing arguments "
            f"({', '.join(missing)}): make them arguments of the Python function"
        )
    _set_order(function, arguments, getattr(f, "__name__", ""))
    mark_layer(function, getattr(f, "__name__", ""))
    return function


def function_of(f: Callable[..., Any], kind: str, names: Sequence[str]) -> Function:
    """Trace a callable that takes any number of variables, with arguments of the given names."""
    arguments = [new_placeholder(name) for name in names]
    function = as_outputs(f(*arguments))
    _set_order(function, arguments, kind)
    mark_layer(function, kind)
    return function


def _set_order(function: Function, arguments: Sequence[Variable], name: str) -> None:
    """Give a graph's arguments this order. If they are traversed in another order, a block 'Tuple' wraps them."""
    used = [v for v in function.arguments if v in set(arguments)]
    unused = [v.name for v in arguments if v not in used]
    if unused:
        raise TypeError(
            f"CNTK Function '{name}' has {len(unused)} unused arguments ({', '.join(unused)}): "
            "use them in the result, or remove them"
        )
    if used == list(arguments):
        return
    inside = [new_placeholder(v.name) for v in arguments]
    block = make_block(combine(inside), list(zip(inside, arguments, strict=True)), "Tuple")
    replace_placeholders(function, dict(zip(arguments, block.node_outputs, strict=True)))


def _arguments(f: Callable[..., Any], of_type: Callable[[Any, str], Variable]) -> list[Variable]:
    f = inspect.unwrap(f, stop=lambda g: not is_checked(g))
    parameters = list(inspect.signature(f, follow_wrapped=False).parameters.values())
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL and hasattr(f, "__wrapped__"):
        return [new_placeholder("arg1"), new_placeholder("arg2")]  # an operation of two or more operands
    # Evaluate annotations: `from __future__ import annotations` turns them into strings.
    try:
        parameters = list(inspect.signature(f, eval_str=True).parameters.values())
    except NameError:
        parameters = list(inspect.signature(f).parameters.values())
    types = getattr(f, "__annotations__", {})
    arguments = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            raise TypeError(f"a Function takes a fixed number of arguments, not {p}: give each one a name")
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            kind = p.annotation if p.annotation is not p.empty else types.get(p.name)
            is_typed = declared_type(kind) is not None  # other hints, and shapes, say nothing, as in CNTK
            arguments.append(of_type(kind, p.name) if is_typed else new_placeholder(p.name))
    return arguments


def as_outputs(result: Any) -> Function:
    """A composite of the outputs that a Python function returned: one, a tuple, or a dict of names and outputs.

    A Function has all its outputs; where it comes again, an alias.

    Errors: TypeError for None.
    """
    if isinstance(result, Mapping):
        result = tuple(alias(v, name=k) for k, v in result.items())
    if result is None:
        raise TypeError("the Python function returned nothing: a CNTK Function must return a value; add a return")
    if isinstance(result, Node):
        function = unwrap(result)
        return function if function.is_composite else composite(function)  # type: ignore[return-value]
    if isinstance(result, Edge):
        owner = producer(result)
        if owner is not None and len(owner.node_outputs) == 1:
            return composite(owner)  # type: ignore[return-value]
        return combine([result])
    outputs: list[Any] = []
    for v in result if isinstance(result, (list, tuple)) else [result]:
        again = isinstance(v, Node) and any(v is other for other in outputs)
        outputs.append(alias(v) if again else v if isinstance(v, Node) else as_variable(v))
    return combine(outputs)


def block(inner: Function, arguments: Sequence[Variable], op_name: str, name: str) -> Function:
    """A block that wraps a composite; its operands are new placeholders."""
    root = inner.root_function
    if root.primitive.passes_through and len(root.node_inputs) == 1:
        inner = as_outputs(root.node_inputs[0])
    outer = [
        Variable._new(VariableKind.Placeholder, a.shape, a.dtype, a.dynamic_axes, name=a.name) for a in arguments
    ]
    node = make_block(inner, list(zip(arguments, outer, strict=True)), op_name, name)
    return composite(node)  # type: ignore[return-value]
