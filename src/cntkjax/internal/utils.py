"""Helpers that scripts and tests written for CNTK import from ``cntk.internal.utils``."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..device import Device
from ..formats.containers import Dictionary
from ..formats.containers import to_dictionary_value as _to_cntk_dict_value
from ..graph.dtypes import as_dtype
from ..graph.function import Node
from ..graph.variable import Edge


def get_data_type(*args: Any) -> type[np.generic] | None:
    """The type that an operation on these operands has: that of the variables, else of the arrays; None if unknown.

    Errors: ValueError for arrays of types that CNTK has no tensors of.

    >>> get_data_type(np.zeros(2), 1), get_data_type(1.0)
    (<class 'numpy.float64'>, <class 'numpy.float32'>)
    """
    is_variable = [isinstance(arg, Edge | Node) for arg in args]
    types = {arg.dtype for arg, graph in zip(args, is_variable, strict=True) if graph} - {None}
    if not types:
        types = {_number_type(arg) for arg, graph in zip(args, is_variable, strict=True) if not graph}
    return np.float64 if np.float64 in types else next(iter(types), None)


def _number_type(value: object) -> type[np.generic]:
    return as_dtype(value.dtype) if isinstance(value, np.ndarray | np.floating) else np.float32


def _py_dict_to_cntk_dict(py_dict: Mapping[str, Any]) -> Dictionary:
    """A dict that can be written to a file.

    >>> _py_dict_to_cntk_dict({"a": 1}).size()
    1
    """
    return Dictionary({key: _to_cntk_dict_value(value).value for key, value in py_dict.items()})


def map_function_arguments(
    params: Sequence[Any], params_dict: Mapping[str, Any], *args: Any, **kwargs: Any
) -> dict[Any, Any]:
    """The argument of each parameter of a call; keyword arguments are not optional.

    Args:
        params: the parameters in their order; as in CNTK, more arguments are ignored
        params_dict: {name: parameter}, for keyword arguments

    Errors: TypeError for unknown names and missing arguments; SyntaxError for two values for one parameter, as in CNTK.

    >>> map_function_arguments(["a", "b"], {"b": "b"}, 1, b=2)
    {'a': 1, 'b': 2}
    """
    mapped = dict(zip(params, args, strict=False))
    for name, value in kwargs.items():
        if name not in params_dict:
            names = ", ".join(map(str, params_dict)) or "none"
            raise TypeError(f"got an unexpected keyword argument '{name}': there are {names}")
        if params_dict[name] in mapped:
            raise SyntaxError(f"got multiple values for argument '{name}': pass it by position or by name")
        mapped[params_dict[name]] = value
    if len(mapped) != len(params):
        raise TypeError(f"expected {len(params)} arguments, got {len(args) + len(kwargs)}: pass one for each parameter")
    return mapped


def get_python_function_arguments(f: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """The names of the arguments of a Python function that have no default, and what they are annotated with.

    >>> get_python_function_arguments(lambda x, y=3: x)
    (['x'], {})
    """
    parameters = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [p.name for p in named], {p.name: p.annotation for p in named if p.annotation is not p.empty}


def _ones_like(batch: Iterable[Any], precision: DTypeLike) -> list[np.ndarray]:
    """An array of ones for each sample or sequence.

    >>> _ones_like([[1, 2], [3]], "float")
    [array([1., 1.], dtype=float32), array([1.], dtype=float32)]
    """
    return [np.ones(np.shape(sample), as_dtype(precision)) for sample in batch]


def eval(
    op: Any, arguments: Mapping[Any, Any] | None = None, precision: DTypeLike | None = None, device: Device = None,
    backward_pass: bool = False, expected_backward: Mapping[Any, Any] | None = None,
) -> tuple[dict[Edge, Any], dict[Edge, Any] | None]:
    """Values of a function, and with ``backward_pass`` the gradients of the sum of its outputs.

    Args:
        precision: type of the gradient that arrives at the outputs, if not theirs.
        expected_backward: its keys are the variables whose gradients are wanted; by default those with values.

    Returns: ({output: value}, {variable: gradient}), the latter None without ``backward_pass``.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, needs_gradient=True)
    >>> values, gradients = eval(x * x, {x: [[1., 2.]]}, backward_pass=True)
    >>> gradients[x]
    array([[2., 4.]], dtype=float32)
    """
    if not backward_pass:
        return op.forward(arguments, op.outputs, device=device)[1], None
    state, values = op.forward(arguments, op.outputs, op.outputs, device=device)
    wanted = arguments if expected_backward is None else expected_backward
    roots = {output: _ones_like(value, precision or output.dtype) if isinstance(value, list)
             else np.ones_like(value, None if precision is None else as_dtype(precision))
             for output, value in values.items()}
    return values, op.backward(state, roots, set(wanted or ()))


__all__ = ["Dictionary", "eval", "get_data_type", "get_python_function_arguments", "map_function_arguments", "np"]
