"""The action bnstat: the statistics of batch normalization from data, after training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.variable import set_value
from ...ops import alias
from ...sgd import ConfigError
from ...train._sources import next_minibatch
from ..models import load_network
from ..readers import Source, open_reader, streams_of
from .session import Command
from .test import minibatch_size

_ITERATIONS = 30  # minibatches for each node, unless the block says


def normalization_statistics(command: Command) -> None:
    """Set running means and variances to averages over minibatches, layer by layer, each above those that are set.

    The model is written to ``outputModelPath``, by default ``modelPath.PBN``.
    Source: CNTK's page "Post Batch Normalization Statistics".
    """
    block, network = command.block, load_network(command.model_path)
    names = {name for name, operation in network.operations.items() if operation == "BatchNormalization"}
    if not names:
        raise ConfigError("the model has no batch normalization")
    for name in sorted(names, key=lambda each: (len(names.intersection(network.reached([each]))), each)):  # by depth
        source = open_reader(command.reader, shuffled=False, piece=minibatch_size(block), log=command.log)
        node: Any = network.nodes[name].owner
        _estimate(node, source, minibatch_size(block), block.size("itersPerNode", _ITERATIONS))
        command.log.line(f"Estimated the statistics of {name}")
    command.save(network, f"{command.model_path}.PBN")


def _estimate(node: Any, source: Source, size: int, count: int) -> None:
    """The averages, over minibatches, of the mean and variance of what a node normalizes."""
    operand, _, _, mean, variance, seen = node.inputs
    value: Any = alias(operand)
    inputs: Any = streams_of([value], source)
    means: list[Any] = []
    variances: list[Any] = []
    while len(means) < count and (minibatch := next_minibatch(source, size, inputs)):
        result = value.eval({variable: minibatch[variable] for variable in value.arguments})
        rows = np.concatenate([np.asarray(each, np.float64) for each in result]) if isinstance(result, list) else result
        axes = (0, *range(2, rows.ndim)) if node.root_function.attributes["spatial"] else (0,)
        means.append(rows.mean(axes))
        variances.append(rows.var(axes))
    if not means:
        raise ConfigError("the reader has no data")
    for constant, values in ((mean, means), (variance, variances)):
        set_value(constant, np.mean(values, 0).reshape(constant.shape).astype(constant.dtype))
    set_value(seen, np.full(seen.shape, len(means) * size, seen.dtype))


__all__ = ["normalization_statistics"]
