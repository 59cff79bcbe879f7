"""Executables of earlier processes, loaded without tracing and lowering what they compute.

An executable is stored under a key of its program, and that key under one of the computation in terms of the graph. The
latter changes with this package's code. Then the computation is traced again, and mostly found to be the same program.
A program that calls code of the user is traced in each process: it is stored without the functions that it calls, and
gets those of the trace.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._typing import PyTree
from ..convolutions import library as native
from ..onednn import registration as onednn
from ..xla.background import storing
from ..xla.cache import Store, store
from ..xla.compiler import compiler_options, quick_options, small_options
from ..xla.descriptions import digest
from ..xla.devices import default_device
from ..xla.environment import code, environment
from ..xla.platform import platform
from ..xla.private_names import available, called_functions, deserialized, serialized, used_inputs
from .structures import Structure, decoded, encoded

_FINDING = BestEffort("find out whether a program can be stored", "it is compiled in each process")
_LOADING = BestEffort("load a program that an earlier process compiled", "it is compiled again")
_STORING = BestEffort("store a compiled program", "the next process compiles it again")
_WRITING = BestEffort("write a compiled program to the cache folder", "the next process compiles it again")


class Stored(NamedTuple):
    """What is stored of an executable.

    `seconds`: how long it took to compile. `runs`: how often it may run if it was compiled quickly; otherwise 0.
    `program`: the key of the program, if it has one.
    """

    compiled: jax.stages.Compiled
    seconds: float
    runs: int = 0
    program: str | None = None


_SECONDS = Struct("<d")
_unsaved: dict[str, Future[None]] = {}  # entries that are being written


def key_of_computation(description: str, inputs: PyTree, quickly: bool) -> str | None:
    """The key of what a computation is compiled to for such inputs; None if no stored executable takes them.

    `description`: a digest of what it computes, which is equal in all processes. `quickly`: if its size allows it.
    """
    leaves, structure = jax.tree.flatten(inputs)
    text = str(structure)
    options = [_of_options(tuple(each.items())) for each in (compiler_options(), small_options(), quick_options())]
    return None if " at 0x" in text else _key(leaves, description, quickly, text, options, code())


def key_of_program(lowered: jax.stages.Lowered, inputs: PyTree, options: Mapping[str, str]) -> str | None:
    """The key of the executable of a program, compiled with these options of XLA; None if it is not stored."""
    return _FINDING.attempt(_key_of_program, lowered, inputs, options)


def _key_of_program(lowered: jax.stages.Lowered, inputs: PyTree, options: Mapping[str, str]) -> str | None:
    if called_functions(lowered) and platform() != "cpu":  # not tried on others
        return None
    return _key(jax.tree.leaves(inputs), lowered.as_text(), used_inputs(lowered), _of_options(tuple(options.items())))


@lru_cache(64)
def _of_options(options: tuple[tuple[str, str], ...]) -> str:
    """A digest of options of XLA: there are few choices of them, and many programs."""
    return digest(options)


def _key(leaves: Sequence[Any], *computation: object) -> str | None:
    devices = _devices(leaves)
    if devices is None:
        return None
    places = [(device.id, device.process_index) for device in devices]
    return digest(*computation, list(map(_type_of, leaves)), places, environment())


def load_computation(key: str | None, inputs: PyTree) -> Stored | None:
    """The executable that an earlier process made of a computation, without tracing it; None if it is not there."""
    return _LOADING.attempt(_load_computation, key, inputs)


def _load_computation(key: str | None, inputs: PyTree) -> Stored | None:
    reference = _read(key)
    if reference is None:
        return None
    program, outputs, runs = json.loads(reference)
    executable = load_program(program, inputs, decoded(outputs))
    return None if executable is None else executable._replace(runs=int(runs))


def load_program(
    key: str | None, inputs: PyTree, outputs: Structure, called: Sequence[Callable[..., Any]] = ()
) -> Stored | None:
    """The executable of a program, which returns outputs of this structure; None if it is not there.

    `called`: the functions in Python that the program calls; they may be others than in the process that stored it.
    """
    return _LOADING.attempt(_load_program, key, inputs, outputs, called)


def _load_program(
    key: str | None, inputs: PyTree, outputs: Structure, called: Sequence[Callable[..., Any]]
) -> Stored | None:
    data = _read(key)
    if data is None:
        return None
    in_tree = jax.tree.structure((inputs, {}))
    devices = _devices(jax.tree.leaves(inputs)) or [default_device()]
    content = zlib.decompress(data[_SECONDS.size :])
    for target, register in ((onednn.TARGET, onednn.library), (native.TARGET, native.register)):
        if target.encode() in content:
            register()  # before XLA looks for it
    compiled = deserialized(content, devices, in_tree, outputs, called)
    return Stored(compiled, *_SECONDS.unpack_from(data))


def save_program(key: str | None, executable: Stored) -> None:
    """Store an executable beside the work, if it has a key and jax can serialize it."""

    def content() -> bytes:
        return _SECONDS.pack(executable.seconds) + zlib.compress(serialized(executable.compiled), 1)

    _save(key, content)


def save_computation(key: str | None, executable: Stored) -> None:
    """Store which program a computation is, and the structure of its outputs, unless that has classes of the user."""

    def content() -> bytes:
        return json.dumps([executable.program, encoded(executable.compiled.out_tree), executable.runs]).encode()

    if executable.program is not None:
        _save(key, content)


def _save(key: str | None, content: Callable[[], bytes]) -> None:
    if key is not None:
        _STORING.attempt(_begin_to_write, key, content)


def _begin_to_write(key: str, content: Callable[[], bytes]) -> None:
    entries = _entries()
    if entries is None:
        return

    def write() -> None:
        _WRITING.attempt(lambda: entries.write(key, content()))

    _unsaved[key] = saved = storing.submit(write)
    saved.add_done_callback(lambda _: _unsaved.pop(key, None))


def _entries() -> Store | None:
    return store() if available().stores else None


def _read(key: str | None) -> bytes | None:
    entries = _entries()
    if entries is None or key is None:
        return None
    if unsaved := _unsaved.get(key):
        unsaved.result()
    return entries.read(key)


def _type_of(leaf: Any) -> Iterable[Any]:
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return leaf.shape, leaf.dtype.name, leaf.weak_type, _sharding(leaf) is not None
    is_weak = type(leaf) in (bool, int, float)
    return np.shape(leaf), jax.dtypes.canonicalize_dtype(np.result_type(leaf)).name, is_weak, False


def _sharding(leaf: Any) -> jax.sharding.Sharding | None:
    """Where an array has to be computed with; None if it may be moved."""
    return None if isinstance(leaf, jax.Array) and not leaf.committed else getattr(leaf, "sharding", None)


def _devices(leaves: Sequence[Any]) -> list[jax.Device] | None:
    """The devices of a program: the default one, or those of the mesh of all inputs; None for any others."""
    meshes = {getattr(_sharding(leaf), "mesh", None) for leaf in leaves}
    if len(meshes) == 1 and (mesh := meshes.pop()) is not None:
        return list(mesh.devices.flat)
    places = [sharding.device_set for leaf in leaves if (sharding := _sharding(leaf)) is not None]
    return [default_device()] if all(place == {default_device()} for place in places) else None


__all__ = [
    "Stored", "key_of_computation", "key_of_program", "load_computation", "load_program", "save_computation",
    "save_program",
]
