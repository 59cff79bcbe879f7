"""Copies of functions whose values stay."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.run.handover import STATE, settle
from ..graph.build import make_node
from ..graph.edit import Cloner
from ..graph.function import Node, copied_attributes
from ..graph.variable import Edge
from ..ops.functions import CloneMethod, Function, cloned_leaf


def frozen(function: Function) -> Function:
    """A copy with the values that the parameters have now. It takes the same arguments, and computes the same.

    Unlike those of `Function.clone`, its nodes call the same objects of the user's functions. What their own `clone`
    returns, by default the class called with the inputs and the name, may compute something else.
    """
    with STATE:
        settle()
        arguments = {v: v for v in function.arguments}
        copy = Cloner(lambda leaf: cloned_leaf(leaf, CloneMethod.freeze), arguments, _same_computation).graph(function)
        return copy  # type: ignore[return-value]


def _same_computation(node: Node, inputs: Sequence[Edge]) -> Node:
    return make_node(node.primitive, inputs, copied_attributes(node), node.name)


__all__ = ["frozen"]
