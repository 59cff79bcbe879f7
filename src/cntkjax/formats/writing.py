"""A graph as the Dictionary of a model file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..engine.lower.carry import memory_of
from ..engine.plan.components import strongly_connected_components
from ..engine.run.handover import STATE, assign, settle
from ..graph.axis import BATCH
from ..graph.function import Node, native_inputs, nodes
from ..graph.uid import new_uid
from ..graph.variable import Edge, Leaf, VariableKind, kind_of, producer, value_of
from ..primitives.native import Native
from ..primitives.sequence import ReconcileDynamicAxis as SPREAD
from ..primitives.user import UserDefined
from .attributes import attribute_records, dtype_number, dynamic_axis_records
from .dictionary import SizeT, StoredShape

# The versions of these records that CNTK 2.7 writes.
COMPOSITE, PRIMITIVE, VARIABLE, USER_DEFINED = SizeT(3), SizeT(24), SizeT(1), SizeT(0)
IMPLIED = "impliedHere"  # an attribute of nodes that only CNTK needs

Record = dict[str, Any]


def record_of(function: Node) -> Record:
    """The content of the model file of a function; for a node, that of a composite around it.

    As in CNTK, its random nodes take over how far it has drawn, for functions that are made of them later. All values
    are from before or after a step, if another thread trains.
    """
    graph = _Graph()
    root = function.root_function
    with STATE:
        settle()
        assign(memory_of(function).streams.store)
        for node in graph.within_loops(nodes([root], into_blocks=True)):
            graph.add(node)
    return graph.composite(function) | {
        "inputs": list(graph.variables.values()),
        "primitive_functions": graph.functions,
    }


class _Graph:
    """The records written so far. Each variable is listed before its first use: an output that a cycle uses before its
    node is listed appears as a placeholder with the uid of that output."""

    def __init__(self) -> None:
        self.functions: list[Record] = []
        self.variables: dict[str, Record] = {}
        self._uids: dict[Node | Edge, str] = {}
        self._taken: set[str] = set()
        self._written: set[Node] = set()
        self._loops: dict[Node, int] = {}  # node in a recurrent loop -> the number of that loop

    def within_loops(self, members: Iterable[Node]) -> list[Node]:
        """These nodes, whose loops are known from here on. Nodes inside a block are in no loop around it."""
        members = list(members)
        if any(n.block_composite is None and n.primitive.delay for n in members):
            for i, component in enumerate(strongly_connected_components(members, _operand_nodes)):
                if len(component) > 1:
                    self._loops.update(dict.fromkeys(component, i))
        return members

    def uid(self, item: Node | Edge) -> str:
        """The uid of a node or variable in the file: that in the graph, unless the same model was loaded twice."""
        if isinstance(item, Edge) and (node := producer(item)) is not None:
            return f"{self.uid(node)}_Output_{node.node_outputs.index(item)}"
        if item not in self._uids:
            uid = item.uid
            while uid in self._taken:
                uid = new_uid(item.uid.rstrip("0123456789"))
            self._taken.add(uid)
            self._uids[item] = uid
        return self._uids[item]

    def composite(self, function: Node) -> Record:
        """The record of a composite, or of a composite around a node, without the nodes that lead to its root."""
        uid = self.uid(function) if function.is_composite else new_uid("CompositeFunction")
        record: Record = {"version": COMPOSITE, "type": "CompositeFunction", "uid": uid}
        record["root"] = self.uid(function.root_function)
        return record | ({"name": function.name} if function.name else {})

    def add(self, node: Node) -> None:
        """Append the record of a node, after those of its operands that are not listed yet."""
        for variable in [*node.node_inputs, *(inner for inner, _ in node.block_map)]:
            uid = self.uid(variable)
            if uid not in self.variables and producer(variable) not in self._written:
                self.variables[uid] = _variable_record(variable, uid)
        self.functions.append(self._record(node))
        self._written.add(node)

    def _record(self, node: Node) -> Record:
        if isinstance(node.primitive, UserDefined):
            return self._user_defined(node, False, node.primitive.function.serialize())
        if isinstance(node.primitive, Native):
            return self._native_record(node, node.primitive)
        record: Record = {
            "version": PRIMITIVE,
            "type": "PrimitiveFunction",
            "uid": self.uid(node),
            "op": SizeT(node.primitive.cntk_id),
            "attributes": attribute_records(node.primitive, node.node_attributes),
            "inputs": self._operands(node),
        }
        if node.name:
            record["name"] = node.name
        if node.block_composite is not None:
            operands = [self.uid(operand) for _, operand in node.block_map]
            record |= {
                "block_function_op_name": node.block_name,
                "block_function_composite": self.composite(node.block_composite),
                "block_function_composite_arguments_map_keys": [self.uid(inner) for inner, _ in node.block_map],
                "block_function_composite_arguments_map_values": operands,
            }
        return record

    def _operands(self, node: Node) -> list[str]:
        """The uids of the operands of a node, or of nodes that spread these over the steps of another operand.

        Operations spread one value a sequence by themselves here. CNTK's do not, nor do they know the steps of a loop
        that begins with such a value; where it builds a sum, product or comparison, it makes these nodes itself.
        """
        inputs = native_inputs(node)
        if not _spreads(node):
            return [self.uid(v) for v in inputs]
        steps = [v for v in inputs if v.sequence_axis is not None]
        outside = [v for v in steps if not self._is_in_loop_of(node, v)]
        is_binary = len(inputs) == 2 and not node.primitive.packed
        uids = []
        for i, v in enumerate(inputs):
            like = [*outside, *steps] if v.dynamic_axes == (BATCH,) else outside
            is_spread = v.dynamic_axes == (BATCH,) or (is_binary and self._is_in_loop_of(node, v))
            uids.append(self._spread(node, i, v, like[0]) if like and is_spread else self.uid(v))
        return uids

    def _is_in_loop_of(self, node: Node, variable: Edge) -> bool:
        owner = producer(variable)
        return owner is not None and node in self._loops and self._loops[node] == self._loops.get(owner)

    def _spread(self, node: Node, place: int, variable: Edge, like: Edge) -> str:
        """List a node that gives an operand the axes of another one; the uid of its output."""
        if (owner := producer(variable)) is not None and owner.primitive is SPREAD:  # there is one already
            return self.uid(variable)
        uid = f"{self.uid(node)}_Steps{place}"
        self.functions.append({
            "version": PRIMITIVE, "type": "PrimitiveFunction", "uid": uid, "op": SizeT(SPREAD.cntk_id),
            "attributes": {IMPLIED: True}, "inputs": [self.uid(variable), self.uid(like)],
        })
        return f"{uid}_Output_0"

    def _native_record(self, node: Node, primitive: Native) -> Record:
        """The record of a native function: the id of its operation, and the module and factory that make it."""
        state = {
            "type": "NativeUserDefinedFunction", "op": primitive.name, "module": primitive.module,
            "deserialize_method": primitive.factory, "user_defined_state": node.node_attributes, "version": 1,
        }
        return self._user_defined(node, True, state)

    def _user_defined(self, node: Node, native: bool, state: Record) -> Record:
        record: Record = {
            "version": USER_DEFINED,
            "type": "UserDefinedFunction",
            "uid": self.uid(node),
            "native": native,
            "inputs": [self.uid(variable) for variable in node.node_inputs],
            "user_defined_state": state,
        }
        return record | ({"name": node.name} if node.name else {})


def _operand_nodes(node: Node) -> Iterator[Node]:
    """The nodes that compute the operands of a node or block."""
    return (owner for v in node.node_inputs if (owner := producer(v)) is not None)


def _spreads(node: Node) -> bool:
    """Whether a node computes each step from that step of its operands."""
    p = node.primitive
    return node.block_composite is None and not p.passes_through and (not p.packed or p.concatenates)


def _variable_record(variable: Edge, uid: str) -> Record:
    kind = VariableKind.Placeholder if variable.is_output else kind_of(variable)
    declared = kind != VariableKind.Placeholder  # these properties of a placeholder are those of its replacement
    record: Record = {
        "version": VARIABLE,
        "type": "Variable",
        "uid": uid,
        "kind": SizeT(kind),
        "shape": StoredShape(variable.shape),
        "data_type": dtype_number(variable.dtype),
        "dynamic_axis": dynamic_axis_records(variable.dynamic_axes),
        "is_sparse": declared and variable.is_sparse,
        "needs_gradient": declared and variable.needs_gradient,
    }
    if variable.name:
        record["name"] = variable.name
    if isinstance(variable, Leaf):
        record["value"] = np.asarray(value_of(variable))
        record["shape"] = StoredShape(variable.shape)  # creating the value may have inferred dimensions
    return record
