"""Add to errors the operation that the user called and its operands, even if it is composed of other operations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..graph.errors import explain
from ..graph.function import Function
from ..graph.variable import Variable


def name_errors(namespace: dict[str, Any], package: str, prefix: str = "", leave: tuple[str, ...] = ()) -> None:
    """Wrap the public functions that a namespace imports from a package so that their errors name the operation.

    Functions of the modules in `leave` are not wrapped, because other code compares them by identity.
    """
    for name, f in namespace.items():
        public = inspect.isfunction(f) and f.__module__.startswith(package) and name[0] != "_"
        if public and not hasattr(f, "names_errors") and not f.__module__.endswith(leave):
            namespace[name] = _named(prefix + name, f)


def _named(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def op(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except (ValueError, TypeError, RuntimeError) as error:
            if len(error.args) == 1 and isinstance(error.args[0], str):
                arguments = inspect.signature(f).bind_partial(*args, **kwargs).arguments
                error.args = (_with_name(name, error.args[0], arguments),)
            raise

    op.names_errors = True  # type: ignore[attr-defined]
    return op


def _with_name(name: str, message: str, arguments: Mapping[str, Any]) -> str:
    """The message, prefixed with the operation and extended by the operands that it does not mention yet."""
    first, _, rest = message.partition("\n")
    if name.rpartition(".")[2] not in first:
        first = f"{name}: {first}"
    missing = {label: v for label, v in _operands(arguments) if repr(v) not in message}
    return explain(first, missing) + (f"\n{rest}" if rest else "")


def _operands(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Variable]]:
    for label, value in arguments.items():
        several = isinstance(value, (list, tuple))
        for i, v in enumerate(value if several else [value]):
            v = v.outputs[0] if isinstance(v, Function) and len(v.outputs) == 1 else v
            if isinstance(v, Variable):
                yield f"[{i}]" if several else label, v
