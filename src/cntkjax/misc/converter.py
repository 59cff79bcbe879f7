"""Models with some of their functions replaced by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import composite, make_block
from ..graph.edit import Cloner, replace_placeholders
from ..graph.function import Function as GraphFunction
from ..graph.function import copied_attributes, nodes
from ..graph.public import classes
from ..graph.shape import UNKNOWN_SHAPE
from ..graph.variable import Variable, VariableKind, producer
from ..ops.functions import Function


def convert(root_func: Function, filter: Callable[[Any], bool], converter: Callable[[Any], Any]) -> Function:
    """The model with each function for which `filter` is true replaced by what `converter` makes of it.

    Blocks are entered: what matches inside is replaced first, then the block if it matches itself. `converter` gets
    the function with its new operands as `inputs`, and gives one with as many outputs. Parameters, and whatever leads
    to nothing that is replaced, are shared with `root_func`, which stays as it is; without a match it is returned.

    Errors: ValueError if what the converter gives has another number of outputs.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> model = C.tanh(C.sigmoid(x) * 2)
    >>> with_relu = convert(model, lambda f: f.op_name == "StableSigmoid", lambda f: C.relu(f.inputs[0]))
    >>> with_relu.eval({x: [[1, -1]]}).round(3)
    array([[0.964, 0.   ]], dtype=float32)
    """
    return _Conversion(filter, converter).graph(root_func)  # type: ignore[return-value]


class _Conversion:
    def __init__(self, matches: Callable[[Any], bool], converter: Callable[[Any], Any]) -> None:
        self.matches, self.converter = matches, converter
        self.made: dict[Variable, Variable] = {}  # what changes -> what stands in its place
        self.loops: dict[Variable, Variable] = {}  # an output that a cycle needs before it is made -> its stand-in

    def graph(self, function: GraphFunction) -> GraphFunction:
        root = function.root_function
        order = nodes([root])
        changing = self._changing(order)
        if root not in changing:
            return function
        done: set[GraphFunction] = set()
        last: GraphFunction = root
        for node in order:
            done.add(node)
            if node in changing:
                last = self._replace(node, changing, done)
        made = last if last.is_composite else composite(last, function.name)
        if self.loops:
            replace_placeholders(made, {stand_in: self.made[old] for old, stand_in in self.loops.items()})
        return made

    def _changing(self, order: list[GraphFunction]) -> set[GraphFunction]:
        """What matches, blocks with something inside that does, and all that is computed from these."""
        found = {node for node in order if any(map(self.matches, nodes([node], into_blocks=True, cut=_All())))}
        before = -1
        while before < len(found):
            before = len(found)
            found |= {node for node in order if any(producer(v) in found for v in node.node_inputs)}
        return found

    def _replace(self, node: GraphFunction, changing: set[GraphFunction], done: set[GraphFunction]) -> GraphFunction:
        for v in node.node_inputs:
            if producer(v) in changing and producer(v) not in done and v not in self.loops:
                stand_in = classes.variable(VariableKind.Placeholder, UNKNOWN_SHAPE, v.dtype, UNKNOWN_AXES, name=v.name)
                self.loops[v] = stand_in
        known = {v: v for v in node.node_inputs} | self.loops | self.made
        cloner = Cloner(lambda leaf: leaf, {v: known[v] for v in node.node_inputs})
        inside = node.block_composite
        if inside is None or not any(map(self.matches, nodes([inside], into_blocks=True))):
            made = cloner.graph(composite(node))
        else:
            made = self._block(node, {v: known[v] for v in node.node_inputs})
        if self.matches(node):
            made = _function(self.converter(made.root_function))
        if len(made.outputs) != len(node.node_outputs) and not node.primitive.passes_through:
            raise ValueError(f"convert: {node!r} has {len(node.node_outputs)} outputs, what replaces it: {made!r}")
        if not node.primitive.passes_through:
            self.made.update(zip(node.node_outputs, made.outputs, strict=True))
        return made

    def _block(self, node: GraphFunction, operands: dict[Variable, Variable]) -> GraphFunction:
        """The block around a converted copy of the graph inside it; the original keeps its own arguments."""
        assert node.block_composite is not None
        inner = Cloner(lambda leaf: leaf, {})
        body = _Conversion(self.matches, self.converter).graph(inner.graph(node.block_composite))
        pairs = [(inner.made[v], operands[outer]) for v, outer in node.block_map if v in inner.made]
        return make_block(body, pairs, node.block_name, node.name, copied_attributes(node))


class _All:
    """The set of everything: no operand is followed."""

    def __contains__(self, item: object) -> bool:
        return True


def _function(made: Any) -> GraphFunction:
    return made if isinstance(made, GraphFunction) else ops.as_composite(made.owner)
