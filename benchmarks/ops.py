"""python -m benchmarks ops: single operations against plain JAX and PyTorch, forward, and forward with backward.

The gradient is that of the sum of products with random weights. All sides get arrays on the device. Each has a process
of its own, with as many threads as it takes by itself, and they run in interleaved rounds, one after the other; a cell
is the median over the rounds. Threads that a library leaves spinning after a call, as OpenMP does, would disturb the
next side's: in one process, and in another as long as they spin.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import op_cases, sequence_cases
from benchmarks.op_cases import Case, torch
from cntkjax import Function
from cntkjax._typing import Array, PyTree
from cntkjax.engine.convolutions.rewriting import rewrite
from cntkjax.engine.data.layout import Batch, Layout
from cntkjax.engine.data.packing import pack_with_more_rows
from cntkjax.engine.data.shapes import AxisTraits
from cntkjax.engine.lower.lower import execute
from cntkjax.engine.lower.values import Traced
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run import pure_function as pure
from cntkjax.engine.run.context import make_context
from cntkjax.engine.xla.allocator import keep_freed_memory
from cntkjax.engine.xla.compiler import compiler_options
from cntkjax.engine.xla.platform import convolutions_by, lowering
from cntkjax.graph.variable import Edge, value_of

CASES = [*op_cases.CASES, *sequence_cases.CASES]
SIDES = ("cntkjax", "jax", "torch")
REST = 0.05  # seconds before a side begins: PyTorch's threads spin for 8 ms after their last call
Run = Callable[[], Any]
# A function, the arrays that it takes, and the options with which it is compiled.
Side = tuple[Callable[..., Array], list[PyTree], dict[str, str]]
Pass = tuple[Any, list[Any]]  # a compiled function and what it is called with


def cntkjax_side(case: Case) -> Side:
    """The operation in this package, compiled as its programs are."""
    variables = case.variables()
    if case.steps is not None:
        return packed_side(case, case.ours(*variables))
    plan = Plan(case.ours(*variables).outputs)
    places, leaves = [variables.index(v) for v in plan.arguments], [value_of(v) for v in plan.leaves]

    def ours(*data: Array) -> Array:
        # Sequences have time first, as from a reader; XLA removes pairs of swaps.
        feeds = [(swap_batch_and_time(data[i], variables[i]), None) for i in places]
        results, _ = pure.run(plan, leaves, feeds, pure.random_key(plan), case.training)
        return swap_batch_and_time(results[0], plan.outputs[0])

    return ours, to_device(case.arrays()), compiler_options()


def packed_side(case: Case, function: Function) -> Side:
    """The operation on sequences that share rows of a grid, as a program packs them."""
    plan, (x,) = Plan(function.outputs), case.arrays()
    traits = AxisTraits(bool(plan.loop_axes), plan.unpacks_sequences)
    shape = traits.grid(len(case.steps), int(case.steps.max()), int(case.steps.sum()))
    grid = pack_with_more_rows(case.steps, len(case.steps), shape)
    samples = np.concatenate([x[:n, i] for i, n in enumerate(case.steps)])

    def ours(x: Array, layout: Layout) -> Array:
        batch = Batch(jnp.int32(layout.size), layout.size, full=True)
        ctx = make_context(plan, case.training, batch, {plan.arguments[0].sequence_axis: layout}, None, ())
        env = {plan.arguments[0]: Traced(x, plan.arguments[0].dynamic_axes)}
        env |= {v: Traced(jnp.asarray(value_of(v)), ()) for v in plan.leaves}
        return execute(plan, ctx, env)[plan.outputs[0]].data

    return ours, to_device([samples[grid.index], grid.layout]), compiler_options()


def jax_side(case: Case) -> Side:
    """The operation as a user of JAX writes it."""
    return case.jax, to_device([*case.arrays(), *([] if case.steps is None else [case.steps])]), {}


def to_device(arrays: Sequence[PyTree]) -> list[PyTree]:
    """The arrays on the device."""
    return jax.tree.map(jnp.asarray, list(arrays))


def swap_batch_and_time(array: Array, variable: Edge) -> Array:
    """Batch and time swapped, for sequences."""
    return array.swapaxes(0, 1) if len(variable.dynamic_axes) == 2 else array


def compiled_passes(f: Callable[..., Array], data: list[PyTree], options: dict[str, str], wrt: int) -> list[Pass]:
    """The forward pass, and, if anything is differentiated, forward with backward.

    Compiled as this package's programs are, where these are its options.
    """
    by = lowering().convolutions if options else "xla"
    with convolutions_by(by):  # jax keeps this trace
        weights = jax.random.normal(jax.random.key(0), jax.eval_shape(f, *data).shape)

    def loss(weights: Array, *data: PyTree) -> tuple[Array, Array]:
        # The weights are an argument: with constants XLA would compute some gradients when it compiles.
        values = f(*data)
        return jnp.sum(values * weights), values

    gradient = jax.grad(loss, argnums=tuple(range(1, wrt + 1)), has_aux=True)
    passes = [(f, data), (gradient, [weights, *data])][: 2 if wrt else 1]
    with convolutions_by(by):
        programs = [jax.jit(function).lower(*arrays) for function, arrays in passes]
    for program in programs if by != "xla" else ():
        rewrite(program, by)
    return [(program.compile(options), arrays) for program, (_, arrays) in zip(programs, passes, strict=True)]


def jobs_of(side: str, case: Case) -> list[Run]:
    """The forward pass of a side, and forward with backward; none for PyTorch without it or its operation."""
    if side == "torch":
        return torch_jobs(case) if torch is not None and case.torch is not None else []
    parts = cntkjax_side(case) if side == "cntkjax" else jax_side(case)
    return [partial(lambda f, data: jax.block_until_ready(f(*data)), *p) for p in compiled_passes(*parts, case.wrt)]


def torch_jobs(case: Case) -> list[Run]:
    """The passes of PyTorch: forward, and forward with backward."""
    f, wrt = case.torch, case.wrt
    data = [torch.from_numpy(a).requires_grad_(i < wrt) for i, a in enumerate(case.arrays())]
    data += [] if case.steps is None else [torch.from_numpy(case.steps).long()]
    with torch.no_grad():
        weights = torch.randn_like(f(*data))

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return f(*data)

    def backward() -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad((f(*data) * weights).sum(), data[:wrt], allow_unused=True)

    return [forward, backward][: 2 if wrt else 1]


def megabytes(case: Case) -> dict[str, list[float]]:
    """Megabytes that the compiled passes of both JAX sides read and write, as XLA counts them, whatever the load is."""
    return {
        side: [
            f.cost_analysis()["bytes accessed"] / 1e6
            for f, data in compiled_passes(*parts, case.wrt)
        ]
        for side, parts in (("cntkjax", cntkjax_side(case)), ("jax", jax_side(case)))
    }


def check(case: Case, results: dict[str, np.ndarray]) -> None:
    """Compare the results of all sides. Errors: AssertionError if they differ."""
    expected = results["jax"]
    for side, result in results.items():
        assert result.size == expected.size, f"{case.name}: {side} returns {result.shape}, JAX {expected.shape}"
        if case.random:
            continue
        np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-3, atol=1e-3, err_msg=case.name)


_prepared: list[Run] = []  # in the process of a side: the passes that are measured


def prepare(side: str, name: str) -> tuple[np.ndarray | None, list[float]]:
    """In the process of a side: the result of a case's forward pass, if the side has it, and seconds of each pass."""
    keep_freed_memory()  # for all sides: otherwise page faults dominate the times
    _prepared[:] = jobs_of(side, next(case for case in CASES if case.name == name))
    result = np.asarray(_prepared[0]()) if _prepared else None
    for run in _prepared:
        run()
    return result, [seconds_of(part, 1) for part in range(len(_prepared))]


def seconds_of(part: int, count: int) -> float:
    """In the process of a side: seconds of one run of a pass, after one that is not counted."""
    run = _prepared[part]
    run()
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count


def measure(case: Case, processes: dict[str, Executor], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each side: forward, and forward with backward.

    All runs of a pass in a round take about `seconds`, and in each round another side begins.
    """
    prepared = {side: process.submit(prepare, side, case.name) for side, process in processes.items()}
    first = {side: future.result() for side, future in prepared.items()}
    check(case, {side: result for side, (result, _) in first.items() if result is not None})
    sides = [side for side, (_, parts) in first.items() if parts]
    times = {side: [[] for _ in first[side][1]] for side in sides}
    for part in range(len(first["cntkjax"][1])):
        for round in range(rounds):
            for side in sides[round % len(sides) :] + sides[: round % len(sides)]:
                count = max(1, int(seconds / first[side][1][part]))
                time.sleep(REST if seconds else 0)
                times[side][part].append(1000 * processes[side].submit(seconds_of, part, count).result())
    return {side: [median(part) for part in parts] for side, parts in times.items()}


def table(results: dict[str, dict[str, list[float]]], unit: str) -> str:
    """Markdown: the time of this package, and the ratios of the other sides to it."""
    lines = [
        "| operation | forward | plain JAX | PyTorch | with backward | plain JAX | PyTorch |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, sides in results.items():
        cells = []
        for part in range(2):
            ours = sides["cntkjax"][part : part + 1]
            cells += [f"{m:.3g} {unit}" for m in ours] or [""]
            for side in SIDES[1:]:
                others = sides.get(side, [])[part : part + 1]
                cells += [f"{o / m:.2f}x" for m, o in zip(ours, others, strict=False) if m] or [""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ops", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of operations")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--bytes", action="store_true", help="megabytes read and written instead of times")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that everything runs")
    options = parser.parse_args(arguments)
    rounds, seconds = (1, 0.0) if options.quick else (9, 0.05)
    results, unit = {}, "MB" if options.bytes else "ms"
    with ExitStack() as stack:
        processes = {
            side: stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))) for side in SIDES
        }
        for case in CASES:
            if any(part in case.name for part in options.only):
                results[case.name] = megabytes(case) if options.bytes else measure(case, processes, rounds, seconds)
                print(table({case.name: results[case.name]}, unit).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(results, unit))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
