"""Differences between versions of JAX, and what only its private names offer."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import jax
from jax._src import util
from jax.experimental import serialize_executable


def double_precision(enabled: bool) -> AbstractContextManager:
    """A scope in which JAX keeps float64, if enabled; its settings outside do not change."""
    return jax.enable_x64(True) if enabled else nullcontext()


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
    return function if isinstance(function, type(jax.jit(abs))) else None


def forget_traces() -> None:
    """Drop what jax keeps of traces, most of it for good: those of the functions of `jax.numpy` within programs.

    `jax.clear_caches` would also make all functions forget what they were compiled to.
    """
    clear = getattr(util, "clear_all_caches", None)
    if clear is not None:
        clear()


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
        )  # fmt: skip
    return serialize_executable.serialize(compiled)[0]


def deserialized(
    data: bytes, devices: Sequence[jax.Device], in_tree: jax.tree_util.PyTreeDef, out_tree: jax.tree_util.PyTreeDef,
    called: Sequence[Callable[..., Any]] = (),
) -> jax.stages.Compiled:
    """The executable of `serialized`, for these devices. `called`: the functions in Python that it calls from now on.

    Errors: any, if another version wrote it; ValueError if it calls another number of functions.
    """
    unpickler = _Unpickler(io.BytesIO(data), devices[0].client, devices)
    unpickler.called = called
    executable, inputs, no_keywords = unpickler.load()
    if len(executable.host_callbacks) != len(called):
        raise ValueError(f"an executable that calls {len(executable.host_callbacks)} functions, not {len(called)}")
    loaded = replace(executable, host_callbacks=list(called)).load()
    return jax.stages.Compiled(loaded, [], in_tree.unflatten(inputs), out_tree, no_kwargs=no_keywords)


_OF_NUMPY = "dtype", "ndarray", "_reconstruct"  # the devices of a mesh are an array


class _Unpickler(serialize_executable._JaxPjrtUnpickler):
    """Loads what jax pickles of an executable, and calls nothing but jax's classes and its functions for that."""

    called: Sequence[Callable[..., Any]] = ()

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "exec" and self.called:
            return self.backend.deserialize_executable(
                pid[1], executable_devices=self.execution_devices, host_callbacks=list(self.called)
            )  # fmt: skip
        return super().persistent_load(pid)

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in _OF_NUMPY:
            return super().find_class(module, name)
        if module.partition(".")[0] in ("jax", "jaxlib") and "." not in name:
            value = super().find_class(module, name)
            if isinstance(value, type) or name.startswith("_unpickle_"):
                return value
        raise ValueError(f"{module}.{name} is not part of an executable")
