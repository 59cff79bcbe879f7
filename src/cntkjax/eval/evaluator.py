"""Evaluators: a metric over minibatches, without training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from .._typing import AnyArray
from ..device import DeviceDescriptor, use_default_device
from ..engine.data.feeds import to_ragged, with_start_flags
from ..engine.lower.carry import Memory
from ..engine.run.minibatch import Feeds
from ..engine.train.step import Step
from ..graph.arguments import public
from ..graph.errors import ArgumentError, explain
from ..graph.function import Node
from ..graph.proxy import delegates_to, unwrap
from ..graph.variable import Edge
from ..io import MinibatchData
from ..logging import ProgressWriter
from ..ops import combine
from ..ops._calling import as_outputs
from ..ops._computing import argument_named
from ..ops._operand import as_list, as_variable
from ..ops.functions import Function
from ..parallel import workers
from ..variables import Variable

# {variable: data}, data in the order of the criterion's arguments, or the data of its only argument
Arguments: TypeAlias = "Mapping[Any, Any] | Sequence[Any] | AnyArray | MinibatchData"


class EvaluatorCore:
    """The implementation of `Evaluator`, with its arguments."""

    def __init__(
        self,
        function: Function | Variable | None,
        progress_writers: ProgressWriter | Sequence[ProgressWriter] | None,
    ) -> None:
        self.metric = None if function is None else as_variable(function)
        self._counted = None if function is None else _counted(function)
        self._evaluation_function = None if function is None else as_function(function)
        self.memory = Memory()
        self.writers: list[ProgressWriter] = [] if progress_writers is None else as_list(progress_writers)

    @cached_property
    def test_step(self) -> Step:
        """The computation of the metric."""
        assert self.metric is not None
        return Step([self.metric], [], (), Memory(streams=self.memory.streams), counted=self._counted)

    @property
    def evaluation_function(self) -> Function | None:
        """The function that is evaluated; None for a trainer without a metric."""
        return self._evaluation_function

    @property
    def functions(self) -> list[Function]:
        """All that is computed, whose arguments data may be given for by name."""
        return [] if self._evaluation_function is None else [self._evaluation_function]

    def progress_writers(self) -> list[ProgressWriter]:
        """The writers that progress is reported to."""
        return list(self.writers)

    def test_minibatch(
        self, arguments: Arguments, device: DeviceDescriptor | None = None, distributed: bool = False
    ) -> float:
        """The metric, averaged over the samples of a minibatch.

        `arguments`: {variable: array, list of sequences, sparse matrix, or minibatch of a reader}.
        `distributed`: average over the minibatches of all workers, each of which has to call this.

        Shapes: an array is [samples, *shape of the variable], of a sequence [steps, *shape].
        Errors: ValueError if there is no metric, or an argument is missing.
        """
        total, samples = self.test_sum(arguments)
        if distributed:
            message = json.dumps([total, samples]).encode()
            parts = [json.loads(part) for part in workers.gather("test_minibatch", message).wait()]
            total, samples = (sum(column) for column in zip(*parts, strict=True))
        return total / samples

    def test_sum(self, arguments: Arguments) -> tuple[float, int]:
        """As `test_minibatch`, but the sum over the samples, and their number."""
        if self.metric is None:
            raise ValueError(
                "nothing to test: there is no evaluation function; give the trainer (loss, metric)"
            )
        outcome = self.test_step.run(feeds(self.test_step, by_variable(arguments, self.metric, self.functions)))
        for writer in self.writers:
            unwrap(writer).update_test(outcome.samples, outcome.loss)
        return float(outcome.loss), outcome.samples

    def summarize_test_progress(self) -> None:
        """Make the progress writers report the tests since their last summary."""
        for writer in self.writers:
            unwrap(writer).write_test_summary()

    def print_node_timing(self) -> None:
        """CNTK times nodes; here XLA fuses them. Use jax.profiler for the time inside a step."""
        print("cntkjax: nodes are compiled together and have no times of their own; see jax.profiler.trace")


@public
@delegates_to(EvaluatorCore)
class Evaluator(EvaluatorCore):
    """Computes the average of a function over minibatches of test data.

    Units: the average is over samples.
    Errors: ValueError without a function.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(2)
    >>> Evaluator(C.classification_error(x, y)).test_minibatch({x: [[1, 0], [1, 0]], y: [[1, 0], [0, 1]]})
    0.5
    """

    def __init__(
        self,
        eval_function: Function | Variable | None,
        progress_writers: ProgressWriter | Sequence[ProgressWriter] | None = None,
    ) -> None:
        if eval_function is None:
            raise ValueError("an Evaluator needs the function that it evaluates: give Evaluator(metric)")
        self.__wrapped__ = EvaluatorCore(eval_function, progress_writers)


def as_function(criterion: Function | Variable | Sequence[Function | Variable]) -> Function:
    """The function itself, or one with this variable, or these, as its outputs."""
    if isinstance(criterion, Function):
        return criterion
    return combine(*criterion) if isinstance(criterion, (tuple, list)) else as_outputs(criterion)


def _counted(function: Function | Variable) -> Edge:
    """The variable whose samples a test counts, as CNTK does; a training counts others.

    It is the metric, or, where that has no dynamic axes, the first operand of the function, which `combine` gives too.
    """
    metric = as_variable(function)
    operands = function.root_function.node_inputs if isinstance(function, Node) else []
    return metric if metric.dynamic_axes or not operands else operands[0]


def by_variable(
    arguments: Arguments, criterion: Function | Variable, functions: Iterable[Function | Variable]
) -> dict[Any, Any]:
    """{variable: data}; data without variables are matched with the criterion's arguments in their order.

    Names are those of arguments of `functions`. A list of several items is the data of a single argument, as in CNTK.
    Errors: ArgumentError for a key that is no variable, or if there are fewer or more data than arguments; ValueError
            for a name that not exactly one argument has.
    """
    arguments = with_start_flags(arguments)
    if isinstance(arguments, Mapping):
        return {k if isinstance(k, Edge) else _argument(k, functions): d for k, d in arguments.items()}
    variables, data = as_function(criterion).arguments, as_list(arguments)
    if len(variables) == 1 < len(data):
        return {variables[0]: arguments}
    if len(variables) != len(data):
        raise ArgumentError(explain(
            f"the criterion's {len(variables)} argument(s) cannot be matched with a minibatch of {len(data)} item(s)",
            fix=f"pass one dict with the data of each: {dict_text(variables)}",
        ))
    return dict(zip(variables, data, strict=True))


def dict_text(variables: Sequence[Edge]) -> str:
    """What a minibatch for these variables looks like, for messages."""
    return "{" + ", ".join(f"{v.name or v.uid}: array" for v in variables) + "}"


def _argument(key: Any, functions: Iterable[Function | Variable]) -> Edge:
    """The variable that data are given for."""
    if isinstance(key, str):
        return argument_named(key, dict.fromkeys(v for f in functions for v in as_function(f).arguments))
    if isinstance(key, Node):
        return as_variable(key)
    raise ArgumentError(explain(
        f"data are given for arguments, not for a {type(key).__name__}: {key!r}",
        fix="map each stream's data to its argument: {x: minibatch[stream], ...}",
    ))


def feeds(step: Step, data: Mapping[Edge, Any]) -> Feeds:
    """The data of the arguments of a step, checked and packed; also of those that it does not read, if there are."""
    arguments, unread = step.plan.arguments, step.sample_counter.unread_arguments
    if missing := [v for v in arguments if v not in data]:
        raise ValueError(explain(
            "values for " + ", ".join(f"argument {v.name or v.uid!r}" for v in missing) + " have not been provided",
            {"missing": missing[0]}, "give an array for each argument: {argument: array, ...}",
        ))
    return {v: to_ragged(v, data[v]) for v in (*arguments, *unread) if v in data}


__all__ = ["Evaluator", "MinibatchData", "use_default_device"]
