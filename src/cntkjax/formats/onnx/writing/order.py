"""The order in which a graph is written: blocks that ONNX does not have are expanded, recurrences are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....engine.plan.components import strongly_connected_components
from ....engine.plan.parts import resolve
from ....graph.function import Node
from ....graph.variable import Edge, producer
from ..cell_forms import is_cell
from .cells import MatchedCell, is_operation, match_recurrence
from .table import conversion_of, operands


@dataclass
class Recurrence:
    """Nodes that form a cycle along one sequence axis; a step begins with `delays`."""

    delays: list[Node]
    nodes: list[Node]
    cell: MatchedCell | None = None  # if ONNX has it as one operation

    @property
    def backwards(self) -> bool:
        """True if it runs from the end of a sequence to its start."""
        return self.delays[0].primitive.delay > 0

    @property
    def members(self) -> list[Node]:
        """All of its nodes."""
        return [*self.delays, *self.nodes]


class Order:
    """The nodes and recurrences that compute some outputs, operands first."""

    def __init__(self, outputs: Sequence[Edge]) -> None:
        self._is_operation: dict[Node, bool] = {}
        self._expanded: set[Node] = set()  # cells that are part of another recurrence, or of none
        self.block_names: dict[Node, str] = {}  # node -> the name of the expanded block whose output it computes
        self.parts: list[Node | Recurrence] = []
        while cells := self._partition(outputs):
            self._expanded.update(cells)
        self.outputs = [self.resolve(v) for v in outputs]

    def is_one_operation(self, block: Node) -> bool:
        """True if a block is written as one operation; one of leaves alone, which are no operands, never is."""
        if block not in self._is_operation:
            conversion = conversion_of(block)
            self._is_operation[block] = bool(operands(block)) and (is_operation(block) or (
                conversion is not None and conversion.matches(block)
            ))
        return self._is_operation[block] and block not in self._expanded

    def resolve(self, variable: Edge) -> Edge:
        """The variable that is computed when blocks are expanded; records the name of the outermost one."""
        names: list[str] = []

        def expanded(node: Node) -> Node:
            if node.block_composite is None or self.is_one_operation(node):
                return node
            names.append(node.name)
            return node.block_composite.root_function

        computed = resolve(variable, expanded)
        name = next(filter(None, names), "")
        node = producer(computed)
        if name and node is not None:
            self.block_names.setdefault(node, name)
        return computed

    def inputs(self, node: Node) -> list[Edge]:
        """The operands of a primitive; of a block its operands, and then the leaves that it uses inside."""
        if node.block_composite is None:
            return [self.resolve(v) for v in node.node_inputs]
        arguments = operands(node)
        return [self.resolve(v) for v in [*arguments, *(v for v in node.node_inputs if v not in arguments)]]

    def _operands(self, node: Node) -> Iterator[Node]:
        for v in self.inputs(node):
            if (owner := producer(v)) is not None:
                yield owner

    def _partition(self, outputs: Sequence[Edge]) -> Sequence[Node]:
        """Fill `parts`, unless cells are found that have to be expanded first: these are returned."""
        roots = [node for v in map(self.resolve, outputs) if (node := producer(v)) is not None]
        self.parts = []
        for members in strongly_connected_components(roots, self._operands):
            if len(members) == 1 and members[0] not in self._operands(members[0]):
                if is_cell(members[0]):  # outside of a recurrence
                    return members
                self.parts.append(members[0])
                continue
            cells = [n for n in members if is_cell(n)]
            cell = None
            if len(cells) == 1:
                cell = match_recurrence(members, cells[0], self.resolve, self._used_outside(members, roots))
            if cells and cell is None:
                return cells
            delays = [n for n in members if n.block_composite is None and n.primitive.delay]
            self.parts.append(Recurrence(delays, self._steps(members, delays), cell))
        return self._cells_with_visible_states({self.resolve(v) for v in outputs})

    def _cells_with_visible_states(self, outputs: set[Edge]) -> Sequence[Node]:
        """The first cell, if any, of which more than the output h is an output of the graph."""
        for part in self.parts:
            if isinstance(part, Recurrence) and part.cell is not None:
                hidden = {v for n in part.members for v in n.node_outputs} - {part.cell.block.node_outputs[0]}
                if hidden & outputs:
                    return [part.cell.block]
        return []

    def _used_outside(self, members: Sequence[Node], roots: Sequence[Node]) -> set[Edge]:
        """The variables that nodes other than these use."""
        inside = set(members)
        visited: set[Node] = set()
        used: set[Edge] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in visited:
                continue
            visited.add(node)
            if node not in inside:
                used.update(self.inputs(node))
            stack.extend(self._operands(node))
        return used

    def _steps(self, members: Sequence[Node], delays: Sequence[Node]) -> list[Node]:
        """The nodes of one step in topological order: without its delays a recurrence has no cycles."""
        inside, done, order = set(members), set(delays), []
        for node in members:
            stack = [node] if node not in done else []
            while stack:
                pending = [o for o in self._operands(stack[-1]) if o in inside and o not in done]
                if pending:
                    stack.append(pending[0])
                    continue
                top = stack.pop()
                if top not in done:
                    done.add(top)
                    order.append(top)
        return order
