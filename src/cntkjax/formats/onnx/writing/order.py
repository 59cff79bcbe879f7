"""A graph in the order in which it is written: blocks that ONNX does not know are opened, loops found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....engine.plan.components import strongly_connected_components
from ....graph.function import Function
from ....graph.variable import Variable
from .cells import Cell, cell_of, runs_as
from .table import BLOCKS, operands


@dataclass
class Recurrence:
    """Nodes that feed each other along one sequence axis; `delays` is where a step begins."""

    delays: list[Function]
    nodes: list[Function]
    cell: Cell | None = None  # what it is, if ONNX has it as one operation

    @property
    def backwards(self) -> bool:
        """True if it runs from the end."""
        return self.delays[0].op_name == "FutureValue"

    @property
    def members(self) -> list[Function]:
        """All its nodes."""
        return [*self.delays, *self.nodes]


class Order:
    """What is written for some outputs, operands first."""

    def __init__(self, outputs: Sequence[Variable]) -> None:
        self._whole: dict[Function, bool] = {}
        self._opened: set[Function] = set()  # cells that turned out to be part of another loop
        self.titles: dict[Function, str] = {}  # node: the name of the opened block whose output it makes
        self.parts: list[Function | Recurrence] = []
        while not self._arrange(outputs):
            pass
        self.outputs = [self.resolve(v) for v in outputs]

    def whole(self, block: Function) -> bool:
        """True if a block is written as one operation."""
        if block not in self._whole:
            entry = BLOCKS.get(block.op_name)
            cell = block.op_name in ("LSTM", "GRU", "RNNStep") and cell_of(block) is not None
            self._whole[block] = cell or (entry is not None and entry.fits(block))
        return self._whole[block] and block not in self._opened

    def resolve(self, variable: Variable) -> Variable:
        """The variable that is computed: through opened blocks inwards, through their arguments outwards."""
        title = ""
        while True:
            owner = variable._owner
            if owner is not None and owner.block_composite is not None and not self.whole(owner):
                title = title or owner._name
                variable = owner.block_composite.root_function.node_outputs[owner.node_outputs.index(variable)]
            elif variable._bound is not None:
                variable = variable._bound
            else:
                if title and owner is not None:
                    self.titles.setdefault(owner, title)
                return variable

    def inputs(self, node: Function) -> list[Variable]:
        """Operands of a primitive; of a block what its arguments stand for, and then what it uses besides."""
        if node.block_composite is None:
            return [self.resolve(v) for v in node.node_inputs]
        given = operands(node)
        return [self.resolve(v) for v in [*given, *(v for v in node.node_inputs if v not in given)]]

    def _operands(self, node: Function) -> Iterator[Function]:
        for v in self.inputs(node):
            if v._owner is not None:
                yield v._owner

    def _arrange(self, outputs: Sequence[Variable]) -> bool:
        """False if a cell had to be opened, so that all begins again."""
        roots = [v._owner for v in map(self.resolve, outputs) if v._owner is not None]
        self.parts = []
        for found in strongly_connected_components(roots, self._operands):
            if len(found) == 1 and found[0] not in self._operands(found[0]):
                if cell_block(found[0]):
                    self._opened.add(found[0])  # a cell outside of a recurrence
                    return False
                self.parts.append(found[0])
                continue
            cells = [n for n in found if cell_block(n)]
            delays = [n for n in found if n.op_name in ("PastValue", "FutureValue")]
            cell = runs_as(found, cells[0], self.resolve, self._used_outside(found, roots)) if len(cells) == 1 else None
            if cells and cell is None:
                self._opened.update(cells)
                return False
            self.parts.append(Recurrence(delays, self._steps(found, delays), cell))
        wanted = {self.resolve(v) for v in outputs}
        for part in self.parts:
            if isinstance(part, Recurrence) and part.cell is not None:
                hidden = {v for n in part.members for v in n.node_outputs} - {part.cell.block.node_outputs[0]}
                if hidden & wanted:
                    self._opened.add(part.cell.block)
                    return False
        return True

    def _used_outside(self, found: Sequence[Function], roots: Sequence[Function]) -> set[Variable]:
        members = set(found)
        seen: set[Function] = set()
        used: set[Variable] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node not in members:
                used.update(self.inputs(node))
            stack.extend(self._operands(node))
        return used

    def _steps(self, found: Sequence[Function], delays: Sequence[Function]) -> list[Function]:
        """The nodes of one step in order: a loop without its delays has no cycles."""
        members, done, order = set(found), set(delays), []
        for node in found:
            stack = [node] if node not in done else []
            while stack:
                waiting = [o for o in self._operands(stack[-1]) if o in members and o not in done]
                if waiting:
                    stack.append(waiting[0])
                    continue
                top = stack.pop()
                if top not in done:
                    done.add(top)
                    order.append(top)
        return order


def cell_block(node: Function) -> bool:
    """True for a block that is a recurrent cell."""
    return node.block_composite is not None and node.op_name in ("LSTM", "GRU", "RNNStep")
