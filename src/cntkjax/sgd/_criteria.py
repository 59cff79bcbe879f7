"""Which nodes of a model are its criteria, and which streams its inputs take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..configuration import ConfigError
from ..configuration.source import nearest
from ..graph.function import nodes
from ..io import StreamInformation
from ..ops import combine
from ..ops._operand import as_variable
from ..ops.functions import Function
from ..train._sources import Criterion, Inputs
from .settings import BlockSettings

LOSSES = (
    "CrossEntropyWithSoftmax", "BinaryCrossEntropy", "Logistic", "SquaredError", "CosineDistance", "LambdaRank",
    "ForwardBackward", "NceLoss", "WeightedBinaryCrossEntropy", "SequenceWithSoftmax", "LatticeSequenceWithSoftmax",
)
METRICS = ("ClassificationError", "EditDistanceError", "NDCG1Eval", "NDCG")


def named_criteria(criterion: Criterion, settings: BlockSettings) -> tuple[Any, list[Any]]:
    """The loss and the metrics of a criterion, or its nodes that the block names.

    Errors: ConfigError if there is no node of such a name; ValueError for a function of more than two outputs.
    """
    names = settings["trainCriterionNodeName"], settings["evalCriterionNodeName"]
    parts = list(criterion) if isinstance(criterion, (tuple, list)) else list(_function(criterion).outputs)
    is_list = isinstance(criterion, (tuple, list))
    if not any(names) and len(parts) > 2 and not is_list:
        outputs = ", ".join(repr(v.name or v.uid) for v in parts)
        raise ValueError(f"the criterion has {len(parts)} outputs: {outputs}; give (loss, metric), or set "
                         "trainCriterionNodeName and evalCriterionNodeName")
    function = combine([as_variable(part) for part in parts if part is not None]) if is_list else _function(criterion)
    loss = node_named(function, names[0], "trainCriterionNodeName") if names[0] else parts[0]
    default = [part for part in parts[1:] if part is not None] if is_list or len(parts) == 2 else []
    metrics = [node_named(function, names[1], "evalCriterionNodeName")] if names[1] else default
    return loss, metrics


def criteria_of(model: Function, settings: BlockSettings) -> list[Any]:
    """The loss and the metrics of a model: the nodes that the block names, or else those of their kind.

    Errors: ConfigError if the loss is not clear.
    """
    loss_name, metric_name = settings["trainCriterionNodeName"], settings["evalCriterionNodeName"]
    loss = node_named(model, loss_name, "trainCriterionNodeName") if loss_name else _only(model, LOSSES)
    if loss is None:
        raise ConfigError(
            f"the model has {_several(model, LOSSES)} that could be minimized: name one with "
            f"trainCriterionNodeName={_example(model, LOSSES)}; its nodes are {_names(model)}"
        )
    if metric_name:
        return [loss, node_named(model, metric_name, "evalCriterionNodeName")]
    return [loss, *_of_kind(model, METRICS)]


def node_named(function: Function, name: str, key: str) -> Any:
    """The node of a name. Errors: ConfigError if there is none, or there are several."""
    matches = [n for n in _criterion_nodes(function) if name in (n.name, *(v.name for v in n.outputs))]
    if len(matches) != 1:
        guess = nearest(name, _all_names(function))
        hint = f"did you mean {guess}?" if guess else f"its nodes are {_names(function)}"
        problem = f"the model has {len(matches)} nodes" if matches else "the model has no node"
        raise ConfigError(f"{key} = {name}: {problem} of this name; {hint}")
    return matches[0]


def _function(criterion: Any) -> Function:
    return criterion if isinstance(criterion, Function) else criterion.owner


def _criterion_nodes(function: Function) -> list[Any]:
    """The nodes that may be a criterion; a Combine has the names of what it combines."""
    return [node for node in nodes([function.root_function]) if node.op_name != "Combine"]


def _all_names(function: Function) -> list[str]:
    return [node.name for node in _criterion_nodes(function) if node.name]


def _names(function: Function) -> str:
    return ", ".join(_all_names(function)) or "without names"


def _of_kind(model: Function, kinds: Sequence[str]) -> list[Any]:
    return [node for node in _criterion_nodes(model) if node.op_name in kinds]


def _only(model: Function, kinds: Sequence[str]) -> Any:
    matches = _of_kind(model, kinds)
    return matches[0] if len(matches) == 1 else None


def _several(model: Function, kinds: Sequence[str]) -> str:
    matches = _of_kind(model, kinds)
    return f"{len(matches)} nodes" if matches else "no node"


def _example(model: Function, kinds: Sequence[str]) -> str:
    matches = [node for node in _of_kind(model, kinds) if node.name]
    return matches[0].name if matches else "NAME"


def inputs_by_name(criteria: Sequence[Any], source: Any) -> Inputs:
    """{argument: the stream of its name}. Errors: ValueError if there is none."""
    streams: dict[str, StreamInformation] = {info.name: info for info in source.stream_infos()}
    inputs: dict[Any, StreamInformation] = {}
    for argument in combine(list(criteria)).arguments:
        if argument.name not in streams:
            raise ValueError(
                f"input {argument.name or argument.uid!r} of the criterion has no stream of its name; the streams are "
                f"{', '.join(streams)}: give model_inputs_to_streams={{input: source.streams.NAME, ...}}"
            )
        inputs[argument] = streams[argument.name]
    return inputs
