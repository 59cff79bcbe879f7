"""Predictions by ONNX Runtime, which runs the export of a function."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged
from ..engine.run.minibatch import Feeds, common_count
from ..engine.run.program_cache import plan_of
from ..graph.errors import explain
from ..graph.variable import Edge
from ..ops.functions import Function, ModelFormat

_OPSET = 17


class OnnxPrediction:
    """The outputs of a function, computed by ONNX Runtime.

    Sequences are computed one by one: the tensors of ONNX have no lengths.
    Errors: ImportError without onnx or onnxruntime; ExportError that names the node which cannot be exported;
            ValueError for sparse inputs, and for a function that ONNX Runtime does not take.
    """

    def __init__(self, function: Function) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                'backend="onnxruntime" needs ONNX Runtime: pip install "cntkjax[onnxruntime]"'
            ) from error
        self.outputs, plan = list(function.outputs), plan_of(function.outputs)
        self.arguments = [v for v in function.arguments if v in plan.arguments]  # the inputs of the model, in its order
        sparse = [v for v in self.arguments if v.is_sparse]
        if sparse:
            raise ValueError(explain(
                f"ONNX Runtime takes no sparse data, such as those of {sparse[0]!r}", fix='use backend="jax"'
            ))
        self._computes_alone, self._depends_on_longest = not plan.mixes_samples, plan.depends_on_longest
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "model.onnx"))
            function.save(path, format=ModelFormat.ONNX, opset=_OPSET)
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # errors
            try:
                self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # it has classes of its own, which share no base
                raise ValueError(explain(
                    f"ONNX Runtime {onnxruntime.__version__} does not take {function!r}: {error}",
                    fix='use backend="jax"',
                )) from error
        self._names = [tensor.name for tensor in self._session.get_inputs()]
        self._has_sequences = any(v.sequence_axis is not None for v in self.arguments)

    @property
    def is_direct(self) -> bool:
        """See `Prediction.is_direct`."""
        return bool(self._names) and not self._has_sequences and all(
            v.dynamic_axes for v in (*self.arguments, *self.outputs)
        )

    def direct(self, examples: Mapping[Edge, np.ndarray]) -> Any:
        """See `Prediction.direct`."""
        names, run = dict(zip(self.arguments, self._names, strict=True)), self._session.run
        fed = [names[v] for v in examples]
        return lambda arrays: run(None, dict(zip(fed, arrays, strict=True)))

    def takes(self, feeds: Feeds) -> bool:
        """See `Prediction.takes`: several sequences only where each is computed as if it came by itself."""
        if not self._has_sequences:
            return True
        fed = [f for f in feeds.values() if isinstance(f, Ragged)]
        if all(f.num_sequences == 1 for f in fed):
            return True
        lengths = [f.lengths for f in fed if f.lengths is not None]
        return self._computes_alone and not (self._depends_on_longest and any(np.ptp(n) for n in lengths if n.size))

    def __call__(self, feeds: Feeds) -> list[Any]:
        """The values of the outputs, in the form of `Function.eval`. Errors: ValueError for what it does not take."""
        fed = [feeds[v] for v in self.arguments]
        count = common_count(self.arguments, fed) if any(v.dynamic_axes for v in self.arguments) else 0
        if not self._has_sequences:
            return self._run([*map(_tensor, fed)])
        if not self.takes(feeds):
            raise ValueError(explain(
                "ONNX Runtime computes sequences one by one, but here the outputs depend on several of them, or on how "
                "long the longest is",
                fix='call the predictor with one sequence at a time, or use backend="jax" or "fastest"',
            ))
        each = [self._one(feeds, i) for i in range(count)]
        return [
            [values[o] for values in each] if v.sequence_axis is not None
            else np.concatenate([values[o] for values in each]) if v.dynamic_axes else each[0][o]
            for o, v in enumerate(self.outputs)
        ]

    def _one(self, feeds: Feeds, sequence: int) -> list[np.ndarray]:
        """The outputs for one sequence: [steps, *shape] for those with a sequence axis."""
        parts = [feeds[v] for v in self.arguments]
        values = self._run([
            _tensor(f) if not isinstance(f, Ragged)
            else f.take(slice(sequence, sequence + 1)).data[:, None] if f.lengths is not None  # type: ignore[index]
            else f.take(slice(sequence, sequence + 1)).data for f in parts
        ])
        return [a[:, 0] if v.sequence_axis is not None else a for v, a in zip(self.outputs, values, strict=True)]

    def _run(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        return list(self._session.run(None, dict(zip(self._names, tensors, strict=True))))


def _tensor(feed: Any) -> Any:
    return feed.data if isinstance(feed, Ragged) else feed


__all__ = ["OnnxPrediction"]
