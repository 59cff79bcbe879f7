"""Evaluators: a metric over minibatches, without training."""

from __future__ import annotations

from typing import Any

from ..engine.training import Step
from ..ops._operand import as_list, as_variable
from ..train.trainer import _as_function, _feeds


class Evaluator:
    """Computes the average of a function over minibatches of test data."""

    def __init__(self, eval_function: Any, progress_writers: Any = None) -> None:
        if eval_function is None:
            raise ValueError("an Evaluator needs the function that it evaluates")
        self._function = _as_function(eval_function)
        self._writers = [] if progress_writers is None else as_list(progress_writers)
        self._step: Step | None = None

    @property
    def evaluation_function(self) -> Any:
        """What is evaluated."""
        return self._function

    def test_minibatch(self, arguments: Any, device: Any = None, distributed: bool = False) -> float:
        """The average over the samples of a minibatch."""
        if self._step is None:
            self._step = Step([as_variable(self._function)], [], ())
        outcome = self._step.run(_feeds(self._step, arguments))
        for writer in self._writers:
            writer.update_test(outcome.samples, outcome.loss)
        return float(outcome.loss) / outcome.samples

    def summarize_test_progress(self) -> None:
        """Let the progress writers report what was tested since the last summary."""
        for writer in self._writers:
            writer.write_test_summary()

    def print_node_timing(self) -> None:
        """CNTK times nodes; here XLA fuses them. Use jax.profiler for the time inside a step."""
        print("cntkjax: nodes are compiled together and have no times of their own; see jax.profiler.trace")
