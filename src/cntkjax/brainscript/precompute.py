"""Means and deviations that are computed from all data before training."""

from __future__ import annotations

from typing import Any

from ..graph.variable import set_value
from ..sgd import moments
from .network import Network
from .readers import Source, streams_of


def precompute(network: Network, source: Source) -> None:
    """Set the statistics of a network; the source ends after a sweep."""
    names = list(dict.fromkeys(name for _, name in network.statistics.values()))
    nodes = [network.nodes[name] for name in names]
    found = dict(zip(names, moments(nodes, source, streams_of(nodes, source)), strict=True))
    for constant, (operation, name) in network.statistics.items():
        variable: Any = network.nodes[constant]
        result = found[name].mean if operation == "Mean" else found[name].inverse_deviation
        set_value(variable, result.reshape(variable.shape).astype(variable.dtype))
    network.statistics = {}  # a model that is saved now has them


__all__ = ["precompute"]
