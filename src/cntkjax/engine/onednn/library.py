"""oneDNN's library, by its C interface (https://uxlfoundation.github.io/oneDNN)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

TABLE_BITS = 14  # of the number of entries in the table of plans, which the handler reads

# Threads of OpenMP wait for the next product that long by spinning, about 30 µs; by default it is a millisecond, in
# which they would take the processor from XLA's threads.
_SPINS = "10000"


class OneDnnError(RuntimeError):
    """oneDNN refuses something, or has failed."""


class Library:
    """What is loaded of oneDNN.

    `table`: numbers of plans and their addresses, in pairs, in the places that the numbers' last bits say or the next
    free ones. `engine`: of the CPU. `attributes`: that primitives get their scratch memory from the caller.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
        self._functions = ctypes.CDLL(str(path))
        for name, result in {
            "dnnl_primitive_desc_query_md": c_void_p, "dnnl_memory_desc_get_size": c_size_t,
        }.items():
            getattr(self._functions, name).restype = result
        self.table = np.zeros(2 << TABLE_BITS, np.int64)
        self.engine = self.new("engine_create", 1, c_size_t(0))
        self.attributes = self.new("primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", self.attributes, 1)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of oneDNN that returns a status.

        Errors: OneDnnError.
        """
        status = getattr(self._functions, "dnnl_" + name)(*arguments)
        if status:
            raise OneDnnError(f"dnnl_{name} ends with status {status}")

    def new(self, name: str, *arguments: Any) -> c_void_p:
        """The object that a function of oneDNN creates.

        Errors: OneDnnError.
        """
        created = c_void_p()
        self.call(name, byref(created), *arguments)
        return created

    @contextmanager
    def threads(self, count: int | None) -> Iterator[None]:
        """A scope in which primitives are created that use so many threads, or all."""
        usual = self._functions.omp_get_max_threads()
        self._functions.omp_set_num_threads(count or usual)
        try:
            yield
        finally:
            self._functions.omp_set_num_threads(usual)

    def memory_of(self, primitive: c_void_p, what: int) -> c_void_p:
        """The description of memory that a described primitive takes."""
        return c_void_p(self._functions.dnnl_primitive_desc_query_md(primitive, what, 0))

    def size(self, memory: c_void_p) -> int:
        """Units: bytes."""
        return int(self._functions.dnnl_memory_desc_get_size(memory))

    def are_equal(self, one: c_void_p, other: c_void_p) -> bool:
        """Whether two descriptions of memory are equal."""
        return bool(self._functions.dnnl_memory_desc_equal(one, other))

    def implementation(self, primitive: c_void_p) -> str:
        """The name of the implementation that is chosen for a described primitive."""
        name = c_char_p()
        self.call("primitive_desc_query", primitive, 8, 0, byref(name))
        return (name.value or b"").decode()


def words(address: int, count: int) -> Any:
    """So many words of 64 bits at an address."""
    return (c_int64 * count).from_address(address)


__all__ = ["TABLE_BITS", "Library", "OneDnnError", "words"]
