"""Compiled programs: a plan and what is wanted of it, as one XLA computation for each set of shapes.

Programs are shared by graphs of the same structure. All state is explicit: leaves (parameters and constants) go in, new
values of those that were assigned come out.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.axis import Axis
from ...graph.build import edits
from ...graph.errors import AxisError, BatchSizeError, ShapeError, explain
from ...graph.function import Function
from ...graph.settings import Settings
from ...graph.shape import filled
from ...graph.variable import Leaf, Variable
from ..data.interchange import end_to_end
from ..data.layout import Batch, Layout
from ..data.packing import Grid, Packer, Sizes, bucket
from ..data.ragged import Ragged, SparseRows
from ..data.sparse import Sparse, dense
from ..lower.carry import Memory, slots_of
from ..lower.lower import execute
from ..lower.values import Context, Value
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..xla.allocator import keep_freed_memory
from ..xla.cache import persistent
from ..xla.compiler import compiler_options
from ..xla.fork_guard import check_not_forked
from ..xla.versions import double_precision
from . import profiler as _profiler
from .python_callbacks import CallbackResults, run_until_sizes_settle
from .random_streams import RandomInputs, RandomState, random_inputs, random_state_of
from .trace_log import log_compilation

Feed = Ragged | np.ndarray | jax.Array
Feeds = Mapping[Variable, Feed]


@dataclass
class Minibatch:
    """Arguments packed for a program, and on the host what is known of their layouts."""

    arguments: list[Any]
    batch: Batch | None
    layouts: list[Layout]
    grids: dict[Axis, Grid]
    signature: Hashable
    past: list[Any]  # what the delays left behind in the minibatch before, if sequences go on
    slots: dict[Axis, np.ndarray]  # where the pieces of cut sequences stand
    callback_results: CallbackResults | None = None  # what functions of the user have returned for it

    @property
    def count(self) -> int:
        """Number of sequences, or of samples without a sequence axis."""
        return 1 if self.batch is None else int(self.batch.count)

    def samples(self, axes: Sequence[Axis]) -> int | None:
        """Number of samples of a value with these axes; None if only the program knows."""
        sequence = next((a for a in axes if a.is_sequence_axis), None)
        if sequence is not None:
            grid = self.grids.get(sequence)
            return None if grid is None else int(grid.length.sum())
        return self.count if axes else 1


@dataclass(frozen=True)
class Result:
    """What a program gives for one variable.

    Shapes: data as in `Value` with a layout; `layout` holds row, start, length, or None without a sequence axis.
    """

    variable: Variable
    data: Any
    count: int
    layout: tuple[Any, Any, Any] | None
    by_rows: bool = False  # the gradient of what is only looked up: most rows are zero

    @cached_property
    def host(self) -> np.ndarray:
        """The data on the host, padding included."""
        return np.asarray(dense(self.data))

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.count if self.layout is None else int(np.asarray(self.layout[2])[: self.count].sum())

    def sequences(self) -> list[np.ndarray]:
        """One array [steps, *shape] for each sequence."""
        assert self.layout is not None
        row, start, length = (np.asarray(a) for a in self.layout)
        return [self.host[start[i] : start[i] + length[i], row[i]] for i in range(self.count)]

    def numpy(self) -> Any:
        """A list of sequences, or an array [samples, *shape], or one of the shape alone without dynamic axes.

        Sparse data that make a matrix are a CSR matrix, as in CNTK.
        """
        if self.layout is not None:
            return [self._matrix(s) for s in self.sequences()]
        return self._matrix(self.host[: self.count] if self.variable.dynamic_axes else self.host)

    def _matrix(self, array: np.ndarray) -> Any:
        if not isinstance(self.data, Sparse) or array.ndim != 2:
            return array
        from scipy.sparse import csr_matrix  # takes longer to import than all that most scripts need

        return csr_matrix(array)

    def sample_shape(self, lead: int) -> tuple[int, ...]:
        """Shape of one sample; `lead` dimensions before it are dynamic."""
        return tuple(self.data.shape if isinstance(self.data, Sparse) else self.data.shape[lead:])

    def ragged(self) -> Ragged | jax.Array:
        """The data as they can be fed again; they stay on the device."""
        if self.by_rows:
            return Ragged(SparseRows.from_dense(self.host.reshape(1, -1)), None)
        return end_to_end(self.data, self.count, self.layout) if self.variable.dynamic_axes else dense(self.data)


def make_context(
    plan: Plan, training: bool, batch: Any, layouts: dict[Axis, Layout], random: RandomInputs | None,
    past: Sequence[Any],
) -> Context:
    """What the operations of a plan may ask, from the arrays that a program takes."""
    numbers = {n: i for i, n in enumerate(plan.random)}

    def stream_of(node: Function) -> tuple[Any, Any]:
        assert random is not None  # a plan without such nodes asks for none
        seed, offset = random.keys[numbers[node]]
        return jax.random.key(seed), offset

    ctx = Context(training, batch, layouts, stream_of)
    if random is not None:
        ctx.numbers = {plan.random[place]: made for place, made in random.numbers.items()}
    ctx.carried = {n: v for n, v in zip(plan.delays, past, strict=False) if v is not None}
    return ctx

keep_freed_memory()  # before XLA has threads: one that has a heap of its own keeps it


class Program:
    """One function of a plan, compiled for each set of shapes it meets.

    `body(plan, ctx, env, extra)` computes whatever is wanted from the values in `env`.
    """

    def __init__(self, plan: Plan, body: Callable[..., Any], training: bool, donate: bool = False) -> None:
        self.plan, self.body, self.training = plan, body, training
        self.axes = list(dict.fromkeys(v.sequence_axis for v in plan.arguments if v.sequence_axis is not None))
        self.has_batch = any(v.dynamic_axes for v in plan.arguments)
        self.packers = {
            axis: Packer(
                axis in plan.loop_axes, plan.unpacks_sequences, axis in plan.unpacked_axes and plan.depends_on_padding
            ) for axis in self.axes
        }
        self.sizes = Sizes(varies=bool(self.axes))
        self.compiled: set[Hashable] = set()
        self.changes_batch_size = False  # a function of the user has made another number of samples than it got
        donated = (0,) if donate and not plan.calls_python else ()
        self._run = jax.jit(
            self._trace, donate_argnums=donated, static_argnames="sizes", compiler_options=compiler_options()
        )

    def _trace(
        self, donated: Any, leaves: Sequence[Any], arguments: Sequence[Any], batch: Any, layouts: Any, random: Any,
        past: Any, extra: Any, sizes: Any = (),
    ) -> Any:
        by_axis = dict(zip(self.axes, layouts, strict=True))
        ctx = make_context(self.plan, self.training, batch, by_axis, random, past)
        env = {v: Value(d, v.dynamic_axes) for v, d in zip(self.plan.arguments, arguments, strict=True)}
        env |= {v: Value(d, ()) for v, d in zip(self.plan.leaves, leaves, strict=True) if d is not None}
        return self.body(self.plan, ctx, env, donated, extra)

    def __call__(
        self, minibatch: Minibatch, leaves: Sequence[Any], random: Any, donated: Any = (), extra: Any = ()
    ) -> Any:
        """Run, compiling first if the shapes are new."""
        if not _profiler.records():
            return self._called(minibatch, leaves, random, donated, extra)
        begin = time.perf_counter()
        made = jax.block_until_ready(self._called(minibatch, leaves, random, donated, extra))
        _profiler.add("Programs", self.kind, begin, time.perf_counter())
        return made

    @property
    def kind(self) -> str:
        """What it does, for profiles."""
        return getattr(self.body, "__name__", type(self.body).__name__).strip("_").lower()

    def _called(self, minibatch: Minibatch, leaves: Sequence[Any], random: Any, donated: Any, extra: Any) -> Any:
        call = (donated, leaves, minibatch.arguments, minibatch.batch, minibatch.layouts, random, minibatch.past, extra)
        with double_precision(self.plan.is_double):
            if self.plan.calls_python:
                try:
                    return run_until_sizes_settle(
                        lambda: self._run(*call, sizes=self.plan.free_dimension_sizes), minibatch.callback_results
                    )
                except BatchSizeError as error:
                    self.changes_batch_size, error.random_state = True, random_state_of(self.plan, random)
                    raise
            if minibatch.signature in self.compiled:
                return self._run(*call)
            check_not_forked()
            begin = time.perf_counter()
            with persistent():
                made = self._run(*call)
            self.compiled.add(minibatch.signature)
            if Settings.trace_level > 0:
                log_compilation(self.kind, self.plan, minibatch.arguments, time.perf_counter() - begin)
            return made

    # ---- packing
    def pack(self, plan: Plan, feeds: Sequence[Feed], memory: Memory) -> Minibatch:
        """Bring what is fed for the arguments of a plan into the form that the program takes.

        `memory`: what the minibatch before left behind.
        Errors: BatchSizeError if that takes several programs (`run/staged_execution.py`).
        """
        if self.changes_batch_size:
            raise BatchSizeError("functions of the user make other numbers of samples than they get")
        arguments = plan.arguments
        grids: dict[Axis, Grid] = {}
        count = self._count(arguments, feeds) if self.has_batch else 0
        size = 0 if not self.has_batch else count if self.plan.needs_exact_batch else self.sizes.choose(count)
        # A variant without masks: for sequences one more that hardly helps; where batches change their size it must be.
        full = self.plan.needs_exact_batch or (count == size and not self.axes)
        batch = Batch(np.int32(count), size, full) if self.has_batch else None
        packed = []
        for own, named, feed in zip(self.plan.arguments, arguments, feeds, strict=True):
            if not own.dynamic_axes:
                packed.append(feed)
                continue
            assert batch is not None and isinstance(feed, Ragged)
            axis = own.sequence_axis
            if axis is None:
                packed.append(pad_rows(feed.data, batch.size, own))
                continue
            assert feed.lengths is not None
            if axis not in grids:
                grids[axis] = self.packers[axis].grid(feed.lengths, batch.size)
            elif not np.array_equal(grids[axis].length[:count], feed.lengths):
                raise AxisError(explain(
                    f"the sequences fed for {named!r} have other lengths than those of another argument with the same "
                    f"sequence axis: {_some(feed.lengths)} against {_some(grids[axis].length[:count])}",
                    fix="feed sequences of the same lengths, or declare the arguments with different sequence axes",
                ))
            packed.append(gather_rows(feed.data, grids[axis].index, own))
        self._check_lengths(grids)
        self._check_steps(feeds, grids, count)
        slots = self._continue(grids, plan, feeds, memory)
        past = [memory.values.get(n) for n in plan.delays] if slots else []
        layouts = [grids[axis].layout for axis in self.axes]
        signature = (
            batch and (batch.size, batch.full),
            tuple((g.index.shape, g.simple, g.full, g.origin is None) for g in grids.values()),
            tuple(shape_key(d) for d in packed),
            tuple(None if p is None else p.shape for p in past),
        )
        return Minibatch(packed, batch, layouts, grids, signature, past, slots)

    def _continue(
        self, grids: dict[Axis, Grid], plan: Plan, feeds: Sequence[Feed], memory: Memory
    ) -> dict[Axis, np.ndarray]:
        """Let the layouts say, where delays ask, which sequences go on; returns slots by the plan's axes."""
        looked_back = {n.node_outputs[0].sequence_axis for n in self.plan.delays}
        slots: dict[Axis, np.ndarray] = {}
        for own, named, feed in zip(self.plan.arguments, plan.arguments, feeds, strict=True):
            axis, known_as = own.sequence_axis, named.sequence_axis
            if axis not in looked_back or not isinstance(feed, Ragged) or feed.starts is None or known_as in slots:
                continue
            assert axis is not None and known_as is not None
            grids[axis] = replace(grids[axis], origin=memory.origin(known_as, feed, len(grids[axis].length)))
            slots[known_as] = slots_of(feed)
        return slots

    def _check_lengths(self, grids: Mapping[Axis, Grid]) -> None:
        for a, b in self.plan.equal_lengths:
            one, other = grids.get(a.sequence_axis), grids.get(b.sequence_axis)  # type: ignore[arg-type]
            if one is not None and other is not None and not np.array_equal(one.length, other.length):
                raise _other_lengths(a, b, one.length, other.length)

    def _check_steps(self, feeds: Sequence[Feed], grids: Mapping[Axis, Grid], count: int) -> None:
        """ShapeError if a sequence is to have more steps than its array, as far as this is known before it runs."""
        every = zip(self.plan.arguments, feeds, strict=True)
        fed = {v: f.data for v, f in every if isinstance(f, Ragged) and not isinstance(f.data, SparseRows)}
        for array, lengths in self.plan.packed_arrays:
            axis = lengths.sequence_axis
            if (axis not in grids if axis else lengths not in fed) or (array.shape[0] < 0 and array not in fed):
                continue
            steps = fed[array].shape[1] if array in fed else array.shape[0]
            wanted = np.asarray(grids[axis].length[:count] if axis else fed[lengths])
            if wanted.size and not 0 <= wanted.min() <= wanted.max() < steps + 1:
                raise ShapeError(explain(
                    f"sequences of {_some(wanted.ravel())} steps are to be made of arrays of {steps}",
                    fix="no sequence can be longer than the first axis of the array that it is made of",
                ))

    def _count(self, arguments: Sequence[Variable], feeds: Sequence[Feed]) -> int:
        counts = {v: f.num_sequences for v, f in zip(arguments, feeds, strict=True) if isinstance(f, Ragged)}
        if len(set(counts.values())) > 1:
            raise BatchSizeError(explain(
                "the arguments are fed with different numbers of sequences or samples: "
                + ", ".join(f"{v!r}: {n}" for v, n in counts.items()),
                fix="feed the same number for all arguments",
            ))
        return next(iter(counts.values()))


def _some(lengths: np.ndarray) -> str:
    text = ", ".join(str(n) for n in lengths[:5])
    return f"[{text}{', ...' if len(lengths) > 5 else ''}]"


def shape_key(data: Any) -> Hashable:
    if isinstance(data, Sparse):
        return data.indices.shape, data.values is None, data.shape
    return data.shape


def pad_rows(data: Any, size: int, variable: Variable) -> Any:
    """[count, *shape] -> [size, *shape], with the first sample in the padding."""
    if isinstance(data, SparseRows):
        return _sparse(data, np.minimum(np.arange(size), len(data) - 1), variable)
    if len(data) == size:
        return data
    if not isinstance(data, np.ndarray):
        return data[np.minimum(np.arange(size), len(data) - 1)]
    return np.concatenate([data, np.broadcast_to(data[:1], (size - len(data), *data.shape[1:]))])


def gather_rows(data: Any, index: np.ndarray, variable: Variable) -> Any:
    if isinstance(data, SparseRows):
        return _sparse(data, index, variable)
    return data.take(index, axis=0) if isinstance(data, np.ndarray) else data[index]


def _sparse(rows: SparseRows, index: np.ndarray, variable: Variable) -> Sparse:
    """The sparse samples that stand in the cells of a grid."""
    shape = filled(variable.shape, rows.width)
    assert shape is not None
    if rows.is_one_hot:
        return Sparse(rows.indices[index].astype(np.int32), None, shape, np.dtype(variable.dtype))
    counts = np.diff(rows.indptr)
    width = bucket(max(int(counts.max(initial=1)), 1))
    slot = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], counts)
    row = np.repeat(np.arange(len(rows)), counts)
    indices = np.zeros((len(rows), width), np.int32)
    values = np.zeros((len(rows), width), variable.dtype)
    indices[row, slot], values[row, slot] = rows.indices, rows.values
    return Sparse(indices[index], values[index], shape, np.dtype(variable.dtype))


# ---- programs of plans, and running them
_PROGRAMS: OrderedDict[Hashable, Program] = OrderedDict()
_MOST_PROGRAMS = 256  # the least recently used are forgotten: a program keeps the graph that it was made for


def plan_of(outputs: Sequence[Variable], given: Sequence[Variable] = ()) -> Plan:
    """The plan for some outputs, kept with the first of them; made anew if graphs were edited since."""
    plans: dict[tuple[int, ...], Plan] = outputs[0].__dict__.setdefault("_plans", {})
    key = (*map(id, outputs), *((0, *map(id, given)) if given else ()))
    if key not in plans or plans[key].edits != edits():
        plans[key] = Plan(outputs, given)
    return plans[key]


def program_of(plan: Plan, kind: Hashable, body: Callable[..., Any], training: bool, donate: bool = False) -> Program:
    """The program that computes `body` on graphs of this structure; `kind` tells bodies apart."""
    key = (plan.key, kind, training)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = Program(plan, body, training, donate)
        if len(_PROGRAMS) > _MOST_PROGRAMS:
            _PROGRAMS.popitem(last=False)
    _PROGRAMS.move_to_end(key)
    return _PROGRAMS[key]


def leaf_arrays(plan: Plan) -> list[Any]:
    """Values of the parameters and constants, in the plan's order, on the device."""
    return [leaf_array(leaf) for leaf in plan.leaves]


def leaf_array(leaf: Leaf) -> jax.Array:
    """A leaf's value on the device; it stays there."""
    array = leaf._value
    if not isinstance(array, jax.Array):
        with double_precision(array.dtype == np.float64):
            # A copy: the training step donates it, and the user may still hold the NumPy array.
            array = leaf._moved(jax.device_put(array, may_alias=False))
    return array


def results(
    variables: Sequence[Variable], plan: Plan, program: Program, minibatch: Minibatch, data: Sequence[Any],
    layouts: Mapping[int, Any],
) -> list[Result]:
    """Results for variables with the data that a program gave; `layouts` are of axes made in the program."""
    made = []
    for i, (v, own, d) in enumerate(zip(variables, program.plan.outputs, data, strict=True)):
        axis = own.sequence_axis
        layout = None
        if axis is not None:
            grid = minibatch.grids.get(axis)
            layout = layouts[i] if grid is None else (grid.row, grid.start, grid.length)
        count = minibatch.count
        if program.plan.needs_exact_batch and own.dynamic_axes and d is not None:  # no padding, whatever its size
            count = len(d) if layout is None else len(layout[2])
        made.append(Result(v, d, count, layout))
    return made


def created_layouts(plan: Plan, ctx: Context, known: Sequence[Axis]) -> dict[int, Any]:
    """Layouts of outputs along axes that were made in the program."""
    return {
        i: (layout.row, layout.start, layout.length)
        for i, v in enumerate(plan.outputs)
        if v.sequence_axis is not None and v.sequence_axis not in known
        for layout in (ctx.layouts[v.sequence_axis],)
    }


Changes = tuple[dict[int, Any], list[Any], list[Any]]


def apply_changes(plan: Plan, minibatch: Minibatch, memory: Memory, changes: Changes) -> None:
    """Give assigned leaves the values that a program computed for them, and keep what its delays left behind.

    Errors: AxisError if sequences that meet in it have other lengths.
    """
    updates, left, misfits = changes
    for (a, b), (one, other) in zip(plan.computed_equal_lengths, jax.device_get(misfits), strict=True):
        one, other = one[: minibatch.count], other[: minibatch.count]
        if not np.array_equal(one, other):
            raise _other_lengths(a, b, one, other)
    for i, value in updates.items():
        plan.leaves[i]._value = value
    memory.keep(plan.delays, left, minibatch.slots)


def state_changes(plan: Plan, ctx: Context) -> Changes:
    """Assigned values by the leaf's place in the plan, what the delays leave behind, and lengths that have to agree."""
    updates = {plan.leaves.index(leaf): value for leaf, value in ctx.updates.items()}
    lengths = [tuple(ctx.layout(v.dynamic_axes).length for v in pair) for pair in plan.computed_equal_lengths]
    return updates, [ctx.left.get(n) for n in plan.delays], lengths


def _other_lengths(a: Variable, b: Variable, one: np.ndarray, other: np.ndarray) -> AxisError:
    return AxisError(explain(
        f"sequences whose steps are put together differ in length: {_some(one)} against {_some(other)}",
        {"operand": a, "like": b}, "feed sequences of the same lengths, or conditions that hold as often",
    ))


def arguments_in_order(plan: Plan, feeds: Feeds) -> list[Feed]:
    """What is fed, in the plan's order; ValueError for an argument that is not fed."""
    by_variable = {resolve(v): feed for v, feed in feeds.items()}
    missing = [v for v in plan.arguments if v not in by_variable]
    if missing:
        raise ValueError(explain(
            "no data are given for " + ", ".join(f"argument {v.name or v.uid!r}" for v in missing),
            {"missing": missing[0]}, "give an array for each argument: {argument: array, ...}",
        ))
    return [by_variable[v] for v in plan.arguments]


def evaluate(
    outputs: Sequence[Variable], feeds: Feeds, training: bool = False, memory: Memory | None = None,
    assign: bool = True, callback_results: CallbackResults | None = None, random: RandomState | None = None,
    given: Sequence[Variable] = (), changes: bool = True,
) -> list[Result]:
    """Compute outputs; `memory` is for sequences that are cut between minibatches.

    Without `assign` what `Assign` nodes write waits for the backward pass that follows, as in CNTK. What functions of
    the user return is added to `returned`. `random`: what was drawn before; `given`: values that are fed, too. Without
    `changes` nothing is written.
    """
    memory = Memory() if memory is None else memory
    plan = plan_of(outputs, given)
    program = program_of(plan, "evaluate", _evaluate, training)
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    minibatch.callback_results = callback_results
    data, layouts, (updates, *others) = program(minibatch, leaf_arrays(plan), random_inputs(plan, again=random))
    if not (assign and changes):
        updates = {i: value for i, value in updates.items() if changes and plan.leaves[i] not in plan.assigned}
    apply_changes(plan, minibatch, memory, (updates, *others))
    return results(outputs, plan, program, minibatch, data, layouts)


def _evaluate(plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, extra: Any) -> Any:
    known = list(ctx.layouts)
    execute(plan, ctx, env)
    made = [env[v].data if env[v].is_sparse and v._owner is not None else ctx.array(env[v]) for v in plan.outputs]
    return made, created_layouts(plan, ctx, known), state_changes(plan, ctx)


def masked(ctx: Context, axes: Sequence[Axis], data: Any) -> Any:
    """The data with zeros in the padding."""
    if not ctx.has_padding(tuple(axes)):
        return data
    mask = ctx.mask(tuple(axes))
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (data.ndim - mask.ndim)), data, jnp.zeros((), data.dtype))
