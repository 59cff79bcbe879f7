"""Predictors: a function whose parameters stay, made ready to answer. An extension: CNTK has none."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from itertools import accumulate, pairwise, product
from typing import Any, Literal, TypeAlias

import numpy as np

from ..engine.data.ragged import Ragged
from ..engine.lower.carry import Memory
from ..engine.run.minibatch import Feeds
from ..engine.run.prediction import Call, Prediction
from ..engine.run.program_cache import plan_of
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.function import Node
from ..graph.shape import is_known, shape_text
from ..graph.variable import Edge
from ..ops import combine
from ..ops._operand import as_list
from ..ops.functions import Function
from ..variables import Variable
from ._batching import Request, RequestQueue
from ._faster import exported_prediction, faster
from ._folding import fold_batch_normalization
from ._frozen import frozen

Output: TypeAlias = "Function | Variable"

_MOST_SHAPES = 256  # for which an executable is bound


@public
class Predictor:
    """A function with the values that its parameters have now: later training and edits do not change the answers.

    It answers as `Function.eval` does but for rounding, and sooner: batch normalization is folded into the products
    before it, what follows from parameters alone is computed once, and one dense array goes straight to the executable
    for its shape. Weights that a convolution reads in another layout are then in memory twice. Threads may share a
    predictor; none waits for another while it computes. Random operations draw new numbers in each call.

    `outputs`: those to compute, by default all. `max_batch`, `max_delay`, `max_queue`: how requests of `submit` are
    joined: up to this many samples or sequences, which come within this many seconds; how many requests may wait.
    `backend`: "onnxruntime" runs the function's ONNX export in ONNX Runtime on the CPU
    (``pip install 'cntkjax[onnxruntime]'``), which is often faster for small batches; "fastest" compares both at the
    first request of each shape, and goes on with the one that took less time.

    Errors: ValueError for outputs that are not part of the graph, a `max_batch` or `max_queue` below 1; ImportError
            without ONNX Runtime; with "onnxruntime" ExportError that names the node which has no equivalent in ONNX
            ("fastest" then computes it as "jax" does).

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> predict = C.Predictor(C.reduce_sum(2 * x, axis=0))
    >>> predict.warm(batch=[1, 8])
    >>> predict([[1, 2]])
    array([[6.]], dtype=float32)
    >>> predict.submit([[1, 2], [3, 4]]).result().ravel()
    array([ 6., 14.], dtype=float32)
    """

    def __init__(
        self, function: Function, outputs: Output | Iterable[Output] | None = None, max_batch: int = 32,
        max_delay: float = 0.002, max_queue: int = 1024, backend: Literal["jax", "onnxruntime", "fastest"] = "jax",
    ) -> None:
        if backend not in ("jax", "onnxruntime", "fastest"):
            raise ValueError(f"there is no backend {backend!r}: it is 'jax', 'onnxruntime' or 'fastest'")
        if min(max_batch, max_queue) < 1 or not 0 <= max_delay <= threading.TIMEOUT_MAX:
            raise ValueError(
                f"a predictor cannot have max_batch={max_batch}, max_delay={max_delay} and max_queue={max_queue}: "
                "give a batch and a queue of at least 1, and a delay in seconds"
            )
        requested = function._requested(outputs)
        self._keys: list[Any] = list(requested) if outputs is None else as_list(outputs)
        self.function: Function = combine(requested)
        self._frozen: Function = frozen(self.function)
        exported = exported_prediction(self._frozen, required=backend != "fastest") if backend != "jax" else None
        self._program: Prediction | None = None
        if backend != "onnxruntime":
            fold_batch_normalization(self._frozen)
            self._program = Prediction(self._frozen.outputs)
        self._plan = plan_of(self._frozen.outputs)
        self._backend = faster(self._program, exported)
        self._fed = tuple(self.arguments)
        # Data of arguments that the outputs do not depend on are left out before anything is computed.
        self._is_direct = self._backend.is_direct and len(self._plan.arguments) == len(self._fed)
        self._direct: dict[tuple[tuple[int, ...], ...], Call] = {}  # by the shapes of the arrays
        self._batching = max_batch, max_delay, max_queue
        self._batcher: RequestQueue | None = None
        self._starting = threading.Lock()

    @property
    def arguments(self) -> Sequence[Edge]:
        """The inputs that need data."""
        return self.function.arguments

    @property
    def outputs(self) -> Sequence[Edge]:
        """What is computed."""
        return self.function.outputs

    def __call__(self, arguments: Any = None) -> Any:
        """The outputs, in the form of `Function.eval`.

        `arguments`: {argument or its name: data}; just the data for a single argument.
        Shapes, Errors: see `Function.eval`.
        """
        fed, arrays = self._fed, [arguments]
        if type(arguments) is dict and len(arguments) == len(fed):
            arrays = [arguments.get(v) for v in fed]
        shapes = tuple([
            a.shape for v, a in zip(fed, arrays, strict=False)
            if type(a) is np.ndarray and a.dtype == v.dtype and a.flags.c_contiguous
        ])
        call = self._direct.get(shapes)
        return self._answer(self._values(self._feeds(arguments)) if call is None else call(arrays))

    def _values(self, feeds: Feeds) -> Sequence[Any]:
        """The values of the outputs, after binding what computes arrays of these shapes."""
        fed = [feed for v in self._fed if isinstance(feed := feeds[v], Ragged)] if self._is_direct else []
        arrays = [np.ascontiguousarray(feed.data) for feed in fed]
        if len({*map(len, arrays)}) != 1:
            return self._backend(feeds)
        shapes = tuple(array.shape for array in arrays)
        call = self._direct.get(shapes) or self._backend.direct(dict(zip(self._fed, arrays, strict=True)))
        if len(self._direct) < _MOST_SHAPES:
            self._direct[shapes] = call
        return call(arrays)

    def _feeds(self, arguments: Any) -> Feeds:
        return self.function._feeds(arguments, self.function.outputs)

    def _answer(self, values: Sequence[Any]) -> Any:
        return values[0] if len(values) == 1 else dict(zip(self._keys, values, strict=True))

    def warm(self, batch: int | Sequence[int] = 1, lengths: int | Sequence[int] = 1) -> None:
        """Compile for batches of this many samples or sequences, these of this many steps, before the first request.

        Errors: ValueError for an input of a free dimension: predict once with data of that shape instead.
        """
        for size, length in product(as_list(batch), as_list(lengths) if self._has_sequences else [1]):
            self({v: _example(v, size, length) for v in self.arguments})

    @property
    def _has_sequences(self) -> bool:
        return any(v.sequence_axis is not None for v in self.arguments)

    def submit(self, arguments: Any = None) -> Future[Any]:
        """The answer to come. Requests are joined where each sample's outputs depend on that sample alone.

        Errors: at once those of `Function.eval` for data that do not fit; queue.Full if too many requests wait;
                RuntimeError after `close`. Others are the future's.
        """
        feeds = self._feeds(arguments)
        sizes = [f.num_sequences for f in feeds.values() if isinstance(f, Ragged)]
        joins = self._joins and len(set(sizes)) == 1
        future: Future[Any] = Future()
        kind = tuple(map(self._kind, feeds.values())) if joins else object()
        self._started().put(Request((self, feeds), sizes[0] if joins else 1, kind, future))
        return future

    def _started(self) -> RequestQueue:
        with self._starting:
            if self._batcher is None or not self._batcher.is_served:
                self._batcher = RequestQueue(_run_requests, *self._batching)
                weakref.finalize(self, self._batcher.close)  # the thread refers to a predictor only while it answers
            return self._batcher

    @property
    def _joins(self) -> bool:
        return self._plan.is_divisible and all(v.dynamic_axes for v in (*self.arguments, *self.outputs))

    def _kind(self, feed: Any) -> Hashable:
        """Equal for data that can be joined: where sequences become arrays, these are as long as the longest of all."""
        data = feed.data
        kind = data.shape[1:] if isinstance(data, np.ndarray) else (data.width, data.is_one_hot)
        return kind, feed.lengths.max(initial=0) if feed.lengths is not None and self._plan.depends_on_longest else None

    def _run_joined(self, requests: Sequence[Feeds]) -> list[Any]:
        if len(requests) == 1:
            return [self._answer(self._values(requests[0]))]
        parts = {v: [request[v] for request in requests] for v in requests[0]}
        joined = {v: Ragged.concatenate(feeds) for v, feeds in parts.items()}  # type: ignore[arg-type]
        values = self._values(joined)
        sizes = (feed.num_sequences for feed in next(iter(parts.values())))  # type: ignore[union-attr]
        ranges = pairwise(accumulate(sizes, initial=0))
        return [self._answer([value[begin:end] for value in values]) for begin, end in ranges]

    def stream(self) -> Callable[..., Any]:
        """A function for one sequence that comes in pieces: each call takes the next steps and returns the outputs.

        Delays that look back (`PastValue`) carry their values from call to call, as in CNTK's truncated sequences.
        `sequence.last` is that of the steps so far.
        Errors: ValueError if the function has no sequences, looks ahead (`FutureValue`), needs all steps at once, as
                `sequence.first`, `slice`, `softmax`, `unpack` and sums over steps do, or runs in ONNX Runtime.

        >>> import cntkjax as C
        >>> x = C.sequence.input_variable(1)
        >>> step = C.Predictor(C.layers.Recurrence(C.plus)(x)).stream()
        >>> [float(step([[value]])[0].item()) for value in (1, 2, 3)]
        [1.0, 3.0, 6.0]
        """
        program = self._program
        if not self._has_sequences or program is None:
            raise ValueError(explain(
                f"{self.function!r} cannot be computed piece by piece: it has no sequences, or runs in ONNX Runtime",
                fix='call stream for a function with a sequence axis and backend="jax" or "fastest"',
            ))
        ahead = next((node for node in self._plan.nodes if node.primitive.delay > 0), None)
        if ahead is not None:
            raise ValueError(explain(
                f"{self.function!r} cannot be computed piece by piece: {ahead!r} looks ahead, beyond the end of it",
                fix="predict whole sequences, or pieces together with the steps that come after them",
            ))
        whole = next(filter(_needs_all_steps, self._plan.nodes), None)
        if whole is not None:
            raise ValueError(explain(
                f"{self.function!r} cannot be computed piece by piece: {whole!r} needs all steps at once",
                fix="predict whole sequences, or stream what this node takes",
            ))
        memory, begins = Memory(), [True]

        def step(arguments: Any) -> Any:
            feeds = {v: _piece(v, feed, begins[0]) for v, feed in self._feeds(arguments).items()}
            values = program(feeds, memory)
            begins[0] = False
            return self._answer(values)

        return step

    def close(self) -> None:
        """End the thread of `submit` when it has answered what was asked before."""
        with self._starting:
            if self._batcher is not None:
                self._batcher.close()


def _example(variable: Edge, size: int, length: int) -> Any:
    """Zeros to feed."""
    if not is_known(variable.shape):
        raise ValueError(explain(
            f"{variable!r} has a free dimension, so warm does not know for which shape to compile",
            fix="predict once with data of each shape that is to be ready",
        ))
    lead = () if not variable.dynamic_axes else (size,) if variable.sequence_axis is None else (size, length)
    example = np.zeros((*lead, *variable.shape), variable.dtype)
    example[..., :1] = variable.is_sparse  # one-hot, as most sparse data are
    return example


def _needs_all_steps(node: Node) -> bool:
    """True if a result depends on several steps that come in different calls, and no delay carries them."""
    if node.op_name in ("Sequence::Softmax", "Sequence::GridSlice"):  # the latter counts steps from the first one on
        return True
    if node.op_name == "Sequence::Last":
        return False
    has_steps = any(v.sequence_axis is not None for v in node.inputs)
    return has_steps and any(v.sequence_axis is None and v.dynamic_axes for v in node.outputs)


def _run_requests(requests: Sequence[tuple[Predictor, Feeds]]) -> list[Any]:
    return requests[0][0]._run_joined([feeds for _, feeds in requests])


def _piece(variable: Edge, feed: Any, begins: bool) -> Any:
    if variable.sequence_axis is None:
        return feed
    if feed.num_sequences != 1:
        raise ValueError(explain(
            f"{variable!r} is fed with {feed.num_sequences} sequences, and a stream is one",
            fix=f"feed one array of steps [steps, {shape_text(variable.shape)}], and make a stream for each sequence",
        ))
    return feed.with_starts([begins]) if feed.lengths is not None else feed


__all__ = ["Predictor"]
