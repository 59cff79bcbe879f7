"""Replacing functions in models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..graph.arguments import public
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import composite, make_block
from ..graph.edit import Cloner, replace_placeholders
from ..graph.errors import explain
from ..graph.function import Node, copied_attributes, nodes
from ..graph.public import classes
from ..graph.shape import UNKNOWN_SHAPE
from ..graph.variable import Edge, VariableKind, producer, rename
from ..ops.functions import Function


@public
def convert(root_func: Function, filter: Callable[[Any], bool], converter: Callable[[Any], Any]) -> Function:
    """A copy of the model in which each function for which `filter` is true is replaced by the result of `converter`.

    Functions inside a block are replaced before the block itself. `converter` is called with the function, whose
    `inputs` are its new operands, and returns a function with as many outputs. Parameters, and functions that depend on
    no replaced one, are shared with `root_func`, which does not change; it is returned if nothing matches.

    Errors: ValueError if the converter returns a function with another number of outputs.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> model = C.tanh(C.sigmoid(x) * 2)
    >>> with_relu = convert(model, lambda f: f.op_name == "StableSigmoid", lambda f: C.relu(f.inputs[0]))
    >>> with_relu.eval({x: [[1, -1]]}).round(3)
    array([[0.964, 0.   ]], dtype=float32)
    """
    return _Conversion(filter, converter).graph(root_func)  # type: ignore[return-value]


def unfolded(model: Function, matches: Callable[[Any], bool]) -> Function:
    """A copy of the model without the blocks for which, or for a node inside, `matches` is true: what is in them stays.

    Outputs keep their names; those that have none are called by their uids, in the model, too.
    """
    conversion = _Conversion(lambda node: node.is_block and (matches(node) or _holds(node, matches)), _unfolded_block)
    order = nodes([model], into_blocks=True)
    if not any(map(conversion.matches, order)):
        return model
    for node in order:
        for output in node.node_outputs:
            _rename(output, output.name or output.uid)
    return conversion.graph(model)  # type: ignore[return-value]


def _unfolded_block(block: Any) -> Node:
    """What is inside a block, whose results have the names of the block's."""
    inside = composite(block.block_root).clone("share", dict(block.block_arguments_mapping))  # type: ignore[attr-defined]
    for new, old in zip(inside.outputs, block.outputs, strict=True):
        _rename(new, old.name)
    return inside


def _rename(output: Edge, name: str) -> None:
    """Change the name of an output, and of the node, which files have, if it computes nothing else."""
    rename(output, name)
    if (node := producer(output)) is not None and len(node.node_outputs) == 1:
        rename(node, name)


class _Conversion:
    def __init__(self, matches: Callable[[Any], bool], converter: Callable[[Any], Any]) -> None:
        self.matches, self.converter = matches, converter
        self.converted: dict[Edge, Edge] = {}  # an output of the model -> that of the copy
        self.loops: dict[Edge, Edge] = {}  # an output that a cycle uses before its node -> its placeholder

    def graph(self, function: Node) -> Node:
        """The converted copy of a function, or the function itself if nothing in it matches."""
        root = function.root_function
        order = nodes([root])
        changing = self._changing(order)
        if root not in changing:
            return function
        done: set[Node] = set()
        last: Node = root
        for node in order:
            done.add(node)
            if node in changing:
                last = self._replace(node, changing, done)
        result = last if last.is_composite else composite(last, function.name)
        if self.loops:
            replace_placeholders(result, {placeholder: self.converted[old] for old, placeholder in self.loops.items()})
        return result

    def _changing(self, order: list[Node]) -> set[Node]:
        """The nodes that match, blocks that contain such nodes, and all nodes that depend on these."""
        changing = {node for node in order if self.matches(node) or _holds(node, self.matches)}
        previous = -1
        while previous < len(changing):
            previous = len(changing)
            changing |= {node for node in order if any(producer(v) in changing for v in node.node_inputs)}
        return changing

    def _replace(self, node: Node, changing: set[Node], done: set[Node]) -> Node:
        for v in node.node_inputs:
            if producer(v) in changing and producer(v) not in done and v not in self.loops:
                self.loops[v] = classes.variable(
                    VariableKind.Placeholder, UNKNOWN_SHAPE, v.dtype, UNKNOWN_AXES, name=v.name
                )
        operands = {v: v for v in node.node_inputs} | self.loops | self.converted
        cloner = Cloner(lambda leaf: leaf, {v: operands[v] for v in node.node_inputs})
        if _holds(node, self.matches):
            result = self._block(node, {v: operands[v] for v in node.node_inputs})
        else:
            result = cloner.graph(composite(node))
        if self.matches(node):
            result = _function(self.converter(result.root_function))
        if len(result.outputs) != len(node.node_outputs) and not node.primitive.passes_through:
            raise ValueError(explain(
                f"convert: {node!r} has {len(node.node_outputs)} outputs, but is replaced by {result!r}",
                fix="return a function with as many outputs from the converter",
            ))
        if not node.primitive.passes_through:
            self.converted.update(zip(node.node_outputs, result.outputs, strict=True))
        return result

    def _block(self, node: Node, operands: dict[Edge, Edge]) -> Node:
        """A block around a converted copy of the graph inside; the original block keeps its arguments."""
        assert node.block_composite is not None
        inner = Cloner(lambda leaf: leaf, {})
        body = _Conversion(self.matches, self.converter).graph(inner.graph(node.block_composite))
        pairs = [(inner.replacements[v], operands[outer]) for v, outer in node.block_map if v in inner.replacements]
        return make_block(body, pairs, node.block_name, node.name, copied_attributes(node))


def _holds(node: Node, matches: Callable[[Any], bool]) -> bool:
    """Whether a node is a block inside which, at any depth, is a node for which `matches` is true."""
    inside = node.block_composite
    return inside is not None and any(map(matches, nodes([inside], into_blocks=True)))


def _function(result: Node | Edge) -> Node:
    if isinstance(result, Node):
        return result
    return ops.as_composite(producer(result))  # type: ignore[arg-type]


__all__ = ["convert"]
