"""Shapes as CNTK's log has them."""

from __future__ import annotations

from .network import Network


def shown_shape(network: Network, name: str) -> str:
    """The shape of a node: first dimension first, ``*`` for samples, 0 for what is not known yet.

    Criteria are sums over a minibatch there.
    """
    if name in network.roles["criterion"] or name in network.roles["evaluation"]:
        return "[1]"
    variable = network.nodes[name]
    dimensions = [str(max(size, 0)) for size in reversed(variable.shape)] or ["1"]
    return f"[{' x '.join([*dimensions, *(['*'] if variable.dynamic_axes else [])])}]"


__all__ = ["shown_shape"]
