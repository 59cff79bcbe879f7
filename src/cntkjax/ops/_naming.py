"""Errors that name the operation the user called, and its operands, whatever it is composed of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..graph.errors import explain
from ..graph.function import Function
from ..graph.variable import Variable


def name_errors(namespace: dict[str, Any], package: str, prefix: str = "", leave: tuple[str, ...] = ()) -> None:
    """Let the public functions that a namespace got from a package say who they are in what they raise.

    Those of the modules `leave` stay as they are, for others know them by identity.
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
                given = inspect.signature(f).bind_partial(*args, **kwargs).arguments
                error.args = (_told(name, error.args[0], given),)
            raise

    op.names_errors = True  # type: ignore[attr-defined]
    return op


def _told(name: str, message: str, given: Mapping[str, Any]) -> str:
    """The message with the name of the operation in front, and with those operands that it does not show."""
    first, _, rest = message.partition("\n")
    if name.rpartition(".")[2] not in first:
        first = f"{name}: {first}"
    missing = {label: v for label, v in _operands(given) if repr(v) not in message}
    return explain(first, missing) + (f"\n{rest}" if rest else "")


def _operands(given: Mapping[str, Any]) -> Iterator[tuple[str, Variable]]:
    for label, value in given.items():
        several = isinstance(value, (list, tuple))
        for i, v in enumerate(value if several else [value]):
            v = v.outputs[0] if isinstance(v, Function) and len(v.outputs) == 1 else v
            if isinstance(v, Variable):
                yield f"[{i}]" if several else label, v
