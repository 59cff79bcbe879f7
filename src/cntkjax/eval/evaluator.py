"""Evaluators: a metric over minibatches, without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..device import use_default_device
from ..engine.data.feeds import to_ragged, with_starts
from ..engine.train.step import Step
from ..graph.errors import explain
from ..graph.proxy import delegates_to, unwrap
from ..io import MinibatchData
from ..ops import combine
from ..ops._calling import as_outputs
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function


class Evaluating:
    """What stands behind an `Evaluator`."""

    def __init__(self, function: Any, progress_writers: Any) -> None:
        self._metric = None if function is None else as_variable(function)
        self._evaluation_function = None if function is None else as_function(function)
        self._writers = [] if progress_writers is None else as_list(progress_writers)
        self._test_step: Step | None = None

    @property
    def evaluation_function(self) -> Function | None:
        """What is evaluated; None for a trainer without a metric."""
        return self._evaluation_function

    def progress_writers(self) -> list[Any]:
        """Those that are told of progress."""
        return list(self._writers)

    def test_minibatch(self, arguments: Any, device: Any = None, distributed: bool = False) -> float:
        """The average over the samples of a minibatch. `arguments`: {variable: data}.

        Errors: ValueError if there is no metric, or an argument is missing.
        """
        total, samples = self.test_sum(arguments)
        return total / samples

    def test_sum(self, arguments: Any) -> tuple[float, int]:
        """As `test_minibatch`, but the sum and the number of samples."""
        if self._metric is None:
            raise ValueError(
                "nothing to test: there is no evaluation function; give the trainer (loss, metric)"
            )
        if self._test_step is None:
            self._test_step = Step([self._metric], [], ())
        outcome = self._test_step.run(feeds(self._test_step, by_variable(arguments, self._metric)))
        for writer in self._writers:
            unwrap(writer).update_test(outcome.samples, outcome.loss)
        return float(outcome.loss), outcome.samples

    def summarize_test_progress(self) -> None:
        """Let the progress writers report what was tested since the last summary."""
        for writer in self._writers:
            unwrap(writer).write_test_summary()

    def print_node_timing(self) -> None:
        """CNTK times nodes; here XLA fuses them. Use jax.profiler for the time inside a step."""
        print("cntkjax: nodes are compiled together and have no times of their own; see jax.profiler.trace")


@delegates_to(Evaluating)
class Evaluator(Evaluating):
    """Computes the average of a function over minibatches of test data.

    Units: the average is over samples.
    Errors: ValueError without a function.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(2)
    >>> Evaluator(C.classification_error(x, y)).test_minibatch({x: [[1, 0], [1, 0]], y: [[1, 0], [0, 1]]})
    0.5
    """

    def __init__(self, eval_function: Any, progress_writers: Any = None) -> None:
        if eval_function is None:
            raise ValueError("an Evaluator needs the function that it evaluates")
        self.__wrapped__ = Evaluating(eval_function, progress_writers)


def as_function(of: Any) -> Function:
    """A function of a variable, of several, or itself."""
    if isinstance(of, Function):
        return of
    return combine(*of) if isinstance(of, (tuple, list)) else as_outputs(of)


def by_variable(arguments: Any, criterion: Any) -> dict[Any, Any]:
    """{variable: data} of what may also be data alone, in the order of the criterion's arguments."""
    arguments = with_starts(arguments)
    if isinstance(arguments, Mapping):
        return dict(arguments)
    return dict(zip(as_function(criterion).arguments, as_list(arguments), strict=True))


def feeds(step: Step, fed: Mapping[Any, Any]) -> dict[Any, Any]:
    """What the step needs of what was fed, checked."""
    needed = step.plan.arguments
    if not all(v in fed for v in needed):
        by_name = {v.name: v for v in needed if v.name}
        fed = {by_name.get(k, k) if isinstance(k, str) else as_variable(k): d for k, d in fed.items()}
        missing = [v for v in needed if v not in fed]
        if missing:
            raise ValueError(explain(
                "values for " + ", ".join(f"argument {v.name or v.uid!r}" for v in missing) + " have not been provided",
                {"missing": missing[0]}, "give an array for each argument: {argument: array, ...}",
            ))
    return {v: to_ragged(v, fed[v]) for v in needed}


__all__ = ["Evaluator", "MinibatchData", "use_default_device"]
