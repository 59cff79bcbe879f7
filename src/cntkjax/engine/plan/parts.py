"""The parts that a plan consists of: single nodes and recurrent loops, and the variables that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from ...graph.axis import Axis
from ...graph.function import Node
from ...graph.variable import Edge, Leaf, block_operand, producer
from .rewrite import rewritten


def resolve(variable: Edge, expand: Callable[[Node], Node] = rewritten) -> Edge:
    """The variable that is actually computed: the output of a node, a leaf or an argument, never that of a block.

    The output of a block is that of the graph inside it, and an argument inside is the block's operand. What a rewrite
    rule replaced is the output of the node that replaces it. `expand` decides this: it maps a node to the one that
    computes its outputs. An alias of sparse data is these data themselves, so that they stay sparse.
    """
    alias: Edge | None = None
    while True:
        owner = producer(variable)
        if owner is not None and (node := expand(owner)) is not owner:
            variable = node.node_outputs[owner.node_outputs.index(variable)]
        elif (operand := block_operand(variable)) is not None:
            variable = operand
        elif owner is not None and owner.primitive.is_identity:
            alias = alias or variable
            variable = owner.node_inputs[0]
        else:
            return variable if alias is None or variable.is_sparse else alias


def constant_elements(variable: Edge) -> Leaf | None:
    """The constant that has the elements of a variable, in their order but maybe in another shape; None without one."""
    while (owner := producer(variable := resolve(variable))) is not None and owner.primitive.keeps_elements:
        variable = owner.node_inputs[0]
    return variable if isinstance(variable, Leaf) and variable.is_constant else None


@dataclass(eq=False)
class Loop:
    """A recurrent loop: a strongly connected component, its nodes in the order in which one step computes them.

    `reverse`: it runs from the last step to the first. `outputs`: what is used outside of it.
    Several loops and the nodes between them may be fused into one that stops as soon as what its last delay holds is 0
    in all sequences; `fused_parts` are these loops and nodes, in order (`early_exit.fuse_early_exit`).
    """

    delays: list[Node]
    nodes: list[Node]  # without the delays
    axis: Axis
    reverse: bool
    outputs: list[Edge] = field(default_factory=list)
    fused_parts: list[Part] = field(default_factory=list)

    @cached_property
    def all_outputs(self) -> set[Edge]:
        """Everything that is computed in the loop."""
        return all_outputs_of(self)


Part: TypeAlias = Node | Loop


def nodes_of(part: Part) -> Sequence[Node]:
    """The nodes of a part; of a loop the delays first."""
    return (*part.delays, *part.nodes) if isinstance(part, Loop) else (part,)


def inputs_of(part: Part) -> list[Edge]:
    """The operands of all nodes of a part; of a loop including those that it computes itself."""
    return [resolve(v) for node in nodes_of(part) for v in node.node_inputs]


def outputs_of(part: Part) -> list[Edge]:
    """The outputs of a part; of a loop only those that are used outside of it."""
    return part.outputs if isinstance(part, Loop) else list(part.node_outputs)


def all_outputs_of(part: Part) -> set[Edge]:
    """The outputs of all nodes of a part, used outside of it or not."""
    return {v for node in nodes_of(part) for v in node.node_outputs}


def operand_nodes(node: Node) -> Iterator[Node]:
    """The nodes that compute the operands of a node."""
    for v in node.node_inputs:
        owner = producer(resolve(v))
        if owner is not None:
            yield owner
