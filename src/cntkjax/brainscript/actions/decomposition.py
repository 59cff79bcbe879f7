"""The action SVD: weight matrices as products of two smaller ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...default_options import default_options
from ...ops import combine, times
from ...ops.functions import CloneMethod
from ...sgd import ConfigError
from ...variables import Parameter
from ..models import load_network
from ..network import Network
from .session import Command
from .tools import pattern

_GROUP = re.compile(r"\s*(\S+)\s+(\d+\.?\d*|\.\d+)\s*")
_ALIGNED = 8  # ranks are multiples of this, as in CNTK's logs


def decompose(command: Command) -> None:
    """Replace weights by two factors that keep a part of the sum of singular values.

    Each factor has the square roots of the singular values.
    """
    block, network = command.block, load_network(command.model_path)
    aligned = block.size("AlignedSize", _ALIGNED)
    factors: dict[Any, Any] = {}
    for expression, ratio in _groups(command):
        command.log.line(f"ParameterSVD: start to process group with KeepRatio={ratio:.2f}")
        for name, variable in network.nodes.items():
            is_matrix = variable.is_parameter and len(variable.shape) == 2 and min(variable.shape) > 1
            if is_matrix and expression.fullmatch(name):
                factors[variable] = _factors(variable, name, ratio, aligned, command)
    if not factors:
        raise ConfigError(f"{block.path()}: no weight matrix of the model has a name that NodeNameRegex matches")
    command.save(_replaced(network, factors))


def _groups(command: Command) -> Iterator[tuple[re.Pattern[str], float]]:
    """Names of weights, and how much of them is kept: from a file, or from the block itself."""
    block = command.block
    if "SVDConfig" not in block:
        yield pattern(block.text("NodeNameRegex")), block.number("KeepRatio", 0.5)
        return
    for number, line in enumerate(block.content("SVDConfig").splitlines(), 1):
        if match := _GROUP.fullmatch(line):
            yield pattern(match[1]), float(match[2])
        elif line.strip():
            raise ConfigError(f"{block.file('SVDConfig')}, line {number}: '{line}' is not an expression and a fraction")


def _factors(variable: Any, name: str, ratio: float, aligned: int, command: Command) -> Any:
    """The product of two parameters. Shapes: [inputs, rank] and [rank, outputs]."""
    left, values, right = np.linalg.svd(np.asarray(variable.value, np.float64), full_matrices=False)
    kept = int(np.searchsorted(np.cumsum(values), ratio * values.sum())) + 1
    rank = min(-(-kept // aligned) * aligned, len(values))
    root = np.sqrt(values[:rank])
    inputs, outputs = variable.shape
    command.log.line(
        f"Performing SVD for a {outputs:5d}-by-{inputs:<5d} matrix (node name: {name:20s}) ---  keep {100 * ratio:.1f}"
        f"% energy ===> keep {rank:5d} svd values (reduce to {100 * rank * (1 / inputs + 1 / outputs):.1f}% parameters)"
    )
    with default_options(dtype=variable.dtype):
        first = Parameter(init=(left[:, :rank] * root).astype(variable.dtype), name=f"{name}_V")
        second = Parameter(init=(root[:, None] * right[:rank]).astype(variable.dtype), name=f"{name}_U")
    return times(first, second, name=name)


def _replaced(network: Network, factors: dict[Any, Any]) -> Network:
    """The network with products in place of weights."""
    function = combine([v for v in network.nodes.values() if v.is_output]).clone(CloneMethod.share, factors)
    leaves = (*function.arguments, *function.parameters, *function.constants)
    variables: dict[str, Any] = {v.name: v for v in (*function.outputs, *leaves)}
    operations, inputs = dict(network.operations), dict(network.inputs)
    for product in factors.values():
        variables[product.name] = product.output
        operations[product.name], inputs[product.name] = "Times", [f"{product.name}_U", f"{product.name}_V"]
        operations |= dict.fromkeys(inputs[product.name], "LearnableParameter")
    names = {name: variables[name] for name in operations if name in variables}
    return Network(names, network.roles, {name: operations[name] for name in names}, inputs, rates=network.rates)


__all__ = ["decompose"]
