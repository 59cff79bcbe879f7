"""What only private names of JAX offer, and whether this version of JAX still has it.

All of it is for speed. Where a name is missing, or means something else, programs are run by `jax.jit` and compiled in
each process, after one warning.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum, EnumType
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._user_code import warn
from .background import Background
from .cache import store
from .descriptions import digest
from .devices import default_device
from .environment import environment

_CALLING = BestEffort("call a small program without Python in between", "jax.jit compiles and calls programs")
_STORING = BestEffort("store a small program and load it", "no program is stored for later processes")

_DIALECT = "jaxlib.mlir.dialects.mhlo"
_importing = Background("cntkjax-import")


class Available(NamedTuple):
    """What works with this version of JAX. `calls`: `c_function`. `stores`: `serialized` and `deserialized`."""

    calls: bool
    stores: bool


@cache
def available() -> Available:
    """What works, found out with a small program. That all does is kept in the store of compiled programs.

    What does not may work in the next process: with another version of Python, or of this package.
    """
    entries, key = store(), digest("private names work", environment())
    found = Available(True, True)
    if entries is None or entries.read(key) is None:
        import_dialects()
        found = Available(_CALLING.attempt(_calls, otherwise=False), _STORING.attempt(_stores, otherwise=False))
        if entries is not None and all(found):
            entries.write(key, b"yes")
    _warn_unless_all(found)
    return found


def _warn_unless_all(found: Available) -> None:
    slower = {
        "each program is compiled twice, and each step takes longer to start": found.calls,
        "compiled programs are not stored, so each process compiles all of its own": found.stores,
    }
    if not all(found):
        warn(
            f"cntkjax does not know how jax {jax.__version__} does some things inside: "
            f"{'; '.join(text for text, works in slower.items() if not works)}. Results are the same. "
            "Fix: upgrade cntkjax, or install an earlier jax", RuntimeWarning,
        )


def _compiled() -> jax.stages.Compiled:
    return jax.jit(lambda x: x + 1).lower(np.float32(1)).compile()


def _calls() -> bool:
    function = c_function(_compiled())
    return function is not None and float(function(np.float32(1))) == 2


def _stores() -> bool:
    compiled, one = _compiled(), np.float32(1)
    in_tree = jax.tree.structure(((one,), {}))
    loaded = deserialized(serialized(compiled), [default_device()], in_tree, compiled.out_tree)
    lowered = jax.jit(lambda x, y: x).lower(one, one)
    return float(loaded(one)) == 2 and used_inputs(lowered) == [0] and not called_functions(lowered)


def c_function(compiled: jax.stages.Compiled) -> Callable[..., Any] | None:
    """What an executable runs when it is called, if that is a function in C; otherwise None.

    `Compiled.__call__` itself is written in Python: an exception that arrives when it returns would lose its outputs.
    """
    executable = compiled._executable
    described: Any = getattr(executable, "_unloaded_executable", None)
    if getattr(described, "host_callbacks", ()):  # only `jax.jit` calls these in C
        executable = replace(described, host_callbacks=[]).load()  # it calls Python all the same
    create = getattr(executable, "create_cpp_call", None)
    function = create(compiled._params) if create is not None and hasattr(compiled, "_params") else None
    return function if isinstance(function, _function_in_c()) else None


@cache
def _function_in_c() -> type[Callable[..., Any]]:
    return type(jax.jit(abs))


def forget_traces() -> None:
    """Drop what jax keeps of traces, most of it for good: those of the functions of `jax.numpy` within programs.

    `jax.clear_caches` would also make all functions forget what they were compiled to.
    """
    from jax._src import util

    util.clear_all_caches()


_PROGRAMS_OF_CONTEXT = 10  # then it is dropped, with all types, constants and places in code that they named
_idle: list[tuple[Any, int]] = []  # MLIR contexts that no thread uses now, and how many more programs each is for


class _Lent(threading.local):
    """The context that a thread uses; none when a thread ends, where it could not be deleted."""

    context: Any = None


_lent = _Lent()


def import_dialects() -> None:
    """Import what JAX imports when it first lowers a program, in a thread to which nobody sends an exception.

    A dialect whose import was interrupted can never be imported again: its namespace is registered already.
    """
    if _DIALECT not in sys.modules:
        _importing.submit(_import).result()


def _import() -> None:
    with suppress(ImportError):  # of other versions
        import_module(_DIALECT)


@contextmanager
def shared_context() -> Iterator[None]:
    """A scope in which this thread lowers one program, in an MLIR context that others are built in later.

    JAX before 0.12 makes a context for each program, which takes 10 of the 45 ms in which a program of a few operations
    is compiled. Later versions do this themselves.
    """
    from jax._src.interpreters import mlir

    if hasattr(mlir, "_thread_local_context"):
        yield
        return
    make = mlir.make_ir_context
    if not hasattr(make, "of_jax"):
        mlir.make_ir_context = _lending(make)
    try:
        context, left = _idle.pop()
    except IndexError:
        context, left = make(), _PROGRAMS_OF_CONTEXT
    _lent.context = context
    try:
        yield
    finally:
        _lent.context = None
        if left > 1:
            _idle.append((context, left - 1))


def _lending(make: Callable[[], Any]) -> Any:
    """What JAX calls instead of its function that makes a context."""
    def lend() -> Any:
        return make() if _lent.context is None else _lent.context

    lend.of_jax = make  # type: ignore[attr-defined]
    return lend


def used_inputs(lowered: jax.stages.Lowered) -> list[int]:
    """The places of the inputs that a program reads; its text says nothing of the others."""
    return sorted(lowered._lowering.compile_args["kept_var_idx"])


def called_functions(lowered: jax.stages.Lowered) -> Sequence[Callable[..., Any]]:
    """The functions in Python that a program calls; its text and what it is compiled to have only their places here."""
    return tuple(lowered._lowering.compile_args.get("host_callbacks", ()))


def serialized(compiled: jax.stages.Compiled) -> bytes:
    """An executable as bytes, without the functions in Python that it calls.

    Errors: any, if jax or the backend cannot serialize it.
    """
    described: Any = getattr(compiled._executable, "_unloaded_executable")  # noqa: B009 - not declared
    if described.host_callbacks:
        places = replace(described, host_callbacks=[None] * len(described.host_callbacks))
        compiled = jax.stages.Compiled(
            places.load(), compiled._params.const_args, compiled.args_info, compiled.out_tree, compiled._no_kwargs
        )
    from jax.experimental import serialize_executable

    return serialize_executable.serialize(compiled)[0]


def deserialized(
    data: bytes, devices: Sequence[jax.Device], in_tree: jax.tree_util.PyTreeDef, out_tree: jax.tree_util.PyTreeDef,
    called: Sequence[Callable[..., Any]] = (),
) -> jax.stages.Compiled:
    """The executable of `serialized`, for these devices. `called`: the functions in Python that it calls from now on.

    Errors: any, if another version wrote it; ValueError if it calls another number of functions.
    """
    unpickler = _unpickler()(io.BytesIO(data), devices[0].client, devices)
    unpickler.called = called
    executable, inputs, no_keywords = unpickler.load()
    if len(executable.host_callbacks) != len(called):
        raise ValueError(f"an executable that calls {len(executable.host_callbacks)} functions, not {len(called)}")
    loaded = replace(executable, host_callbacks=list(called)).load()
    return jax.stages.Compiled(loaded, [], in_tree.unflatten(inputs), out_tree, no_kwargs=no_keywords)


_OF_NUMPY = "dtype", "ndarray", "_reconstruct"  # the devices of a mesh are an array


@cache
def _unpickler() -> Any:
    from jax.experimental import serialize_executable

    class Unpickler(serialize_executable._JaxPjrtUnpickler):
        """Loads what jax pickles of an executable, and calls nothing but jax's classes and its functions for that."""

        called: Sequence[Callable[..., Any]] = ()

        def persistent_load(self, pid: Any) -> Any:
            if pid[0] == "exec" and self.called:
                return self.backend.deserialize_executable(
                    pid[1], executable_devices=self.execution_devices, host_callbacks=list(self.called)
                )
            return super().persistent_load(pid)

        def find_class(self, module: str, name: str) -> Any:
            if module.partition(".")[0] == "numpy" and name in _OF_NUMPY:
                return super().find_class(module, name)
            if module.partition(".")[0] in ("jax", "jaxlib") and "." not in name:
                value = super().find_class(module, name)
                if isinstance(value, type) or name.lstrip("_").startswith("unpickle_"):
                    return value
            if (module, name) == ("builtins", "getattr"):
                return _member
            raise ValueError(f"{module}.{name} is not part of an executable")

    return Unpickler


def _member(enumeration: type[Enum], name: str) -> Enum:
    """A member of an enumeration: the first releases of Python 3.11, such as Debian 12's, pickle it as an attribute."""
    if not isinstance(enumeration, EnumType):
        raise ValueError(f"getattr({enumeration!r}, {name!r}) is not part of an executable")
    return enumeration[name]


__all__ = [
    "Available", "available", "c_function", "called_functions", "deserialized", "forget_traces",
    "import_dialects", "serialized", "shared_context", "used_inputs",
]
