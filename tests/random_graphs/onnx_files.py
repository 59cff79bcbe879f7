"""Random programs written as ONNX files, computed by ONNX Runtime, and read again.

    python -m tests.random_graphs.onnx_files FIRST_SEED NUMBER

Sequences have equal lengths, as ONNX has tensors only, and samples are single precision and dense. Where a condition
selects more steps of one sequence than of another, ONNX Runtime must say so. Left out is what docs/onnx.md says of
numbers, divisions by 0, and unpacked steps of a gather, which are padded here.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cntk as C
from cntkjax.formats.onnx.writing.graph import ExportError
from cntkjax.formats.wire import FormatError
from cntkjax.graph.errors import AxisError

from .compare import TOLERANCE, UNKNOWN, problem
from .executing import executed
from .generator import write
from .known import is_unpacked_gather
from .program import SEQUENCE, Minibatch, Program
from .serve import plain

OPSET = 17
LEFT_OUT = re.compile(r"is_sparse|random|Dropout|user_function|np\.float|True\)$")
RAGGED = "as many steps of each sequence"  # a part of the error


def is_writable(program: Program) -> bool:
    """Whether there is a file to be expected."""
    is_open = any(n in (UNKNOWN, C.InferredDimension) for s in program.statements for n in s.type.shape)
    left_out = any(LEFT_OUT.search(s.text) or is_unpacked_gather(program, s) for s in program.statements)
    return bool(program.roots) and not is_open and not left_out


def problem_of(program: Program) -> str | None:
    """How the values of a program and those of its file differ; None if there is nothing to compare."""
    equal = Minibatch(2, dict.fromkeys((SEQUENCE, "t1", "t2"), (3, 3)))
    names, (minibatch,) = executed(replace(program, minibatches=(equal,)))
    f = C.combine([names[r] for r in program.roots])
    try:
        values = names["evaluate"](f.outputs, minibatch)
    except (ValueError, RuntimeError):
        return None
    is_ragged = any(len({s.shape[0] for s in v}) > 1 for v in values if isinstance(v, list))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "f.onnx"))
        try:
            f.save(path, format=C.ModelFormat.ONNX, opset=OPSET)
        except ExportError:
            return None
        tensors = {name: tensor(v) for name, v in minibatch.items()}
        try:
            there = by_runtime(path, tensors)
        except Exception as error:  # it raises classes of its own
            if RAGGED in str(error):
                return "" if is_ragged else None  # where only values inside the graph are ragged
            if "Conv" in str(error) and any(np.size(samples) == 0 for v in values for samples in v):
                return None  # it has no convolution of fewer steps than the window
            raise
        if is_ragged:
            return "sequences of different lengths, without an error"
        here = [tensor(v) for v in values]
        computed = {"ONNX Runtime": there, "read again": read_again(path, tensors)}
    for reader, values in computed.items():
        for a, b in zip(here, values, strict=bool(values)):
            finite = np.isfinite(b.ravel()) if a.size == b.size else slice(None)
            if p := problem(plain(a.ravel()[finite]), plain(b.ravel()[finite]), TOLERANCE["float32"]):
                return f"{reader}: {a.shape} and {b.shape}: {p.replace('in CNTK', 'here', 1)}"
    return ""


def tensor(value: Any) -> np.ndarray:
    """[steps, batch, *shape] of sequences, as in ONNX."""
    return np.stack(value, 1) if isinstance(value, list) else np.asarray(value)


def by_runtime(path: str, tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    fed = {i.name: tensors[i.name.split("_")[0]] for i in session.get_inputs()}  # a copy of v1 is called v1_0
    return session.run(None, fed)


def read_again(path: str, tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What is computed from the file here, where all axes are static; nothing if it cannot be read."""
    try:
        f = C.Function.load(path, format=C.ModelFormat.ONNX)
        values = f.eval({a: tensors[a.name.split("_")[0]] for a in f.arguments})
    except (FormatError, AxisError) as error:  # of generators nothing but the length comes from data
        print(str(error).split("\n")[0])
        return []
    return [values[o] for o in f.outputs] if isinstance(values, dict) else [values]


def main(first: int, number: int) -> None:
    """Print what differs, and how many files agree."""
    totals: Counter[str] = Counter()
    for seed in range(first, first + number):
        program, _ = write(2 * seed)
        if not is_writable(program):
            continue
        try:
            found = problem_of(program)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        totals["not exported" if found is None else "differs" if found else "agrees"] += 1
        if found:
            print(f"seed {2 * seed}: {found[:500]}", flush=True)
    print(f"seeds {2 * first} to {2 * (first + number - 1)}:", dict(totals), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
