"""The function that XLA calls to run a plan of oneDNN: compiled by Numba, since it may not wait for Python.

A plan and a call frame of XLA's foreign function interface are read as words of 64 bits; `plans.py` writes the former.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from .library import TABLE_BITS

# What the handler calls and reads, by the names that `library.py` gives to the linker.
_create_stream = types.ExternalFunction("dnnl_stream_create", types.int32(types.intp, types.intp, types.uint32))
_destroy_stream = types.ExternalFunction("dnnl_stream_destroy", types.int32(types.intp))
_create_memory = types.ExternalFunction(
    "dnnl_memory_create", types.int32(types.intp, types.intp, types.intp, types.intp)
)
_destroy_memory = types.ExternalFunction("dnnl_memory_destroy", types.int32(types.intp))
_execute = types.ExternalFunction(
    "dnnl_primitive_execute", types.int32(types.intp, types.intp, types.int32, types.intp)
)
_describe = types.ExternalFunction("cntkjax_onednn_describe", types.intp(types.intp))
_plan = types.ExternalFunction("cntkjax_onednn_plan", types.intp(types.intp))
_fail = types.ExternalFunction("cntkjax_onednn_fail", types.intp(types.intp))


@intrinsic
def _words(context: Any, address: Any) -> Any:
    """The words at an address, as a pointer to them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.intp), generate


@intrinsic
def _table(context: Any) -> Any:
    """The address of the table of plans."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = "cntkjax_onednn_table"
        table = builder.module.globals.get(name) or ir.GlobalVariable(builder.module, ir.IntType(64), name)
        return builder.ptrtoint(table, ir.IntType(64))

    return types.intp(), generate


@njit(cache=True)
def _find(key: int) -> int:
    """The address of a plan by its number; 0 if this process has not made it."""
    mask = (1 << TABLE_BITS) - 1
    table = carray(_words(_table()), 2 << TABLE_BITS)
    place = key & mask
    while table[2 * place]:
        if table[2 * place] == key:
            return table[2 * place + 1]
        place = (place + 1) & mask
    return 0


@njit(cache=True)
def _run(plan_address: int, operands: Any, results: Any) -> int:
    """Run the steps of a plan. Returned is 0, or a status of oneDNN."""
    engine, steps, length = carray(_words(plan_address), 3)
    plan = carray(_words(plan_address), length)
    stream, memory = np.empty(1, np.int64), np.empty(1, np.int64)
    arguments = np.empty(16, np.int64)  # pairs of what an argument is, and its memory
    status, at = _create_stream(stream.ctypes.data, engine, 1), 3
    for _ in range(steps):
        primitive, count = plan[at], plan[at + 1]
        for i in range(count):
            what, description, buffer, offset = plan[at + 2 + 4 * i : at + 6 + 4 * i]
            address = operands[buffer] if buffer < 2 else results[buffer - 2]
            data = carray(_words(address), 4)[3] + offset
            status |= _create_memory(memory.ctypes.data, description, engine, data)
            arguments[2 * i], arguments[2 * i + 1] = what, memory[0]
        if not status:
            status = _execute(primitive, stream[0], count, arguments.ctypes.data)
        for i in range(count):
            _destroy_memory(arguments[2 * i + 1])
        at += 2 + 4 * count
    _destroy_stream(stream[0])
    return status


def handler() -> int:
    """The address of the function for XLA. It is linked here, so what it calls has to have its names before."""
    address: int = cfunc("intp(intp)", cache=True, nogil=True)(_handle).address
    return address


def _handle(frame_address: int) -> int:
    """Run the plan whose number is the first attribute of a call."""
    frame = carray(_words(frame_address), 21)
    if frame[1]:  # XLA asks for the version of its interface that this is written for
        return _describe(frame_address)
    scalar = carray(_words(carray(_words(frame[20]), 1)[0]), 2)
    plan = _find(carray(_words(scalar[1]), 1)[0]) or _plan(frame_address)
    if plan and not _run(plan, carray(_words(frame[9]), 2), carray(_words(frame[14]), 2)):
        return 0
    return _fail(frame_address)


__all__ = ["handler"]
