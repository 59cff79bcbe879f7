"""The Dictionary of a model file as a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..graph.axis import Axis
from ..graph.build import composite, infer_all, make_block, make_node, note_edit
from ..graph.function import REVERSED, Function
from ..graph.public import classes
from ..graph.variable import Variable, VariableKind
from ..primitives import BY_ID, native
from ._attributes import attributes_of, dtype_of, dynamic_axes_of
from ._records import check_version, take, texts
from ._writing import COMPOSITE, PRIMITIVE, USER_DEFINED, VARIABLE
from .dictionary import AxisRecord, FormatError, Shape

Record = dict[str, Any]

DEEPEST = 100  # blocks within blocks


def graph_of(content: Record, name: str) -> Function:
    """The composite that a model file holds; `name` is the file's, for error messages.

    Errors: FormatError; nothing is left over of a file that is not whole.
    """
    if "Learners" in content:
        raise FormatError(f"{name} is the state of a trainer; its model is in the file without '.ckp' at the end")
    kind = content.get("type")
    if not isinstance(kind, str) or kind != "CompositeFunction":
        raise FormatError(f"{name} holds no function, but a dictionary with {', '.join(content) or 'nothing'}")
    return _Reader(content, name).graph(content, name)


class _Reader:
    def __init__(self, content: Record, name: str) -> None:
        self.name = name
        self.records: dict[str, Record] = {}
        for i, record in enumerate(take(content, "primitive_functions", list, name)):
            uid = take(record, "uid", str, f"{name}, function {i}")
            if uid in self.records:
                raise FormatError(f"{name}: two functions have the uid {uid!r}")
            self.records[uid] = record
        self.variables: dict[str, Variable] = {}
        for i, record in enumerate(take(content, "inputs", list, name)):
            self._add_variable(record, f"{name}, variable {i}")
        self.nodes: dict[str, Function] = {}
        self.home: dict[str, int] = {}  # uid of a node -> number of the composite that it stands in
        self.composites = 0

    # ---- variables
    def _add_variable(self, record: Any, where: str) -> None:
        uid = take(record, "uid", str, where)
        where = f"{self.name}, variable {uid!r}"
        if uid in self.variables:
            raise FormatError(f"{self.name}: two variables have the uid {uid!r}")
        check_version(record, VARIABLE, where)
        kind = take(record, "kind", int, where)
        if kind not in set(VariableKind) - {VariableKind.Output}:
            raise FormatError(f"{where} is of kind {kind}, which cannot stand in a file")
        kind = VariableKind(kind)
        shape = tuple(take(record, "shape", Shape, where))
        dtype = dtype_of(take(record, "data_type", int, where), where)
        name = take(record, "name", str, where)
        needs_gradient = take(record, "needs_gradient", bool, where)
        if kind in (VariableKind.Parameter, VariableKind.Constant):
            array = take(record, "value", np.ndarray, where)
            if array.shape != shape or array.dtype != dtype:
                raise FormatError(
                    f"{where} has shape {shape}, but its value is of shape {array.shape} and {array.dtype}"
                )
            make = classes.parameter if kind == VariableKind.Parameter else classes.constant
            self.variables[uid] = make(
                kind, shape, dtype, array=array, name=name, uid=uid, needs_gradient=needs_gradient
            )
        else:
            self.variables[uid] = classes.variable(
                kind,
                shape,
                dtype,
                self._axes(record, where),
                name=name,
                uid=uid,
                needs_gradient=needs_gradient,
                is_sparse=take(record, "is_sparse", bool, where),
            )

    @staticmethod
    def _axes(record: Record, where: str) -> tuple[Axis, ...]:
        axes = take(record, "dynamic_axis", list, where)
        if not all(isinstance(axis, AxisRecord) for axis in axes):
            raise FormatError(f"{where}: dynamic_axis lists something else than axes")
        return dynamic_axes_of(axes)

    # ---- functions
    def graph(self, record: Record, where: str, depth: int = 0) -> Function:
        """The composite of a record, with everything that leads to its root."""
        if depth > DEEPEST:
            raise FormatError(f"{where}: blocks are nested deeper than {DEEPEST} levels")
        check_version(record, COMPOSITE, where)
        uid = take(record, "uid", str, where)
        root = take(record, "root", str, where)
        if root in self.home:
            raise FormatError(f"{where}: its root {root!r} is part of another graph too")
        stand_ins: dict[Variable, str] = {}
        own = list(self._operands_first(root, stand_ins, where, depth))
        made = composite(self.nodes[root], take(record, "name", str, where), uid=uid)
        if stand_ins:
            self._close_cycles(made, own, stand_ins)
        return made

    def _operands_first(self, root: str, stand_ins: dict[Variable, str], where: str, depth: int) -> Iterator[Function]:
        """Makes the nodes that lead to a root. Where a cycle would close, a placeholder stands for the output."""
        self.composites += 1
        home = self.composites
        opened: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = []

        def open_(uid: str, by: str) -> None:
            if uid not in self.records:
                raise FormatError(f"{by}: there is no function {uid!r} in the file")
            if self.home.setdefault(uid, home) != home:
                raise FormatError(f"{by}: function {uid!r} is part of another graph too")
            opened.add(uid)
            stack.append((uid, iter(self._inputs(uid))))

        open_(root, where)
        while stack:
            uid, inputs = stack[-1]
            for variable in inputs:
                owner = self._owner(variable)
                if owner is None or (owner in opened and owner not in self.nodes):
                    if variable not in self.variables:
                        raise FormatError(f"{self._where(uid)}: its input {variable!r} is not in the file")
                    if owner is not None:
                        stand_ins[self.variables[variable]] = variable
                elif owner not in opened:
                    open_(owner, self._where(uid))
                    break
            else:
                stack.pop()
                yield self._make_node(uid, depth)

    def _inputs(self, uid: str) -> list[str]:
        return texts(self.records[uid], "inputs", self._where(uid))

    def _owner(self, variable: str) -> str | None:
        """The uid of the function that has an output of that uid."""
        owner, made, _ = variable.rpartition("_Output_")
        return owner if made and owner in self.records else None

    def _where(self, uid: str) -> str:
        return f"{self.name}, function {uid!r}"

    def _variable(self, uid: str, where: str) -> Variable:
        owner = self.nodes.get(self._owner(uid) or "")
        if owner is None:
            return self.variables[uid]
        number = uid.rpartition("_")[2]
        if not number.isdecimal() or int(number) >= len(owner.node_outputs):
            raise FormatError(f"{where}: its input {uid!r} is not among the outputs of {owner.uid!r}")
        return owner.node_outputs[int(number)]

    def _make_node(self, uid: str, depth: int) -> Function:
        record, where = self.records[uid], self._where(uid)
        if take(record, "type", str, where) == "UserDefinedFunction":
            return self._make_user_function(record, uid, where)
        check_version(record, PRIMITIVE, where)
        op = take(record, "op", int, where)
        if op not in BY_ID:
            raise FormatError(f"{where}: operation number {op} is not known to this package")
        primitive = BY_ID[op]
        where = f"{where} ({primitive.name})"
        inputs = [self._variable(variable, where) for variable in self._inputs(uid)]
        called = take(record, "block_function_op_name", str, where) if "block_function_composite" in record else ""
        if (called or primitive.name) in REVERSED:
            inputs.reverse()
        attributes = attributes_of(primitive, take(record, "attributes", dict, where), where)
        name = take(record, "name", str, where)
        block = _block_of(record, where) if "block_function_composite" in record else None
        if (primitive.name == "Block") != (block is not None):
            raise FormatError(f"{where}: a block needs the graph inside it, and only a block has one")
        try:
            if block is None:
                node = make_node(primitive, inputs, attributes, name, uid=uid)
            else:
                node = self._block(block, attributes, name, uid, where, depth)
        except FormatError:
            raise
        except Exception as error:  # a damaged node can break a rule anywhere; what it broke stays attached
            raise FormatError(f"{where} does not fit its inputs: {error}") from error
        if set(node.node_inputs) != set(inputs):
            raise FormatError(f"{where}: its inputs are not those of the graph inside it")
        node.node_inputs = inputs
        self.nodes[uid] = node
        return node

    def _make_user_function(self, record: Record, uid: str, where: str) -> Function:
        """What the user's class makes of its record, or the native function; only such as are known already."""
        check_version(record, USER_DEFINED, where)
        state = take(record, "user_defined_state", dict, where)
        inputs = [self._variable(variable, where) for variable in self._inputs(uid)]
        name = take(record, "name", str, where)
        if take(record, "native", bool, where):
            for key in ("op", "module", "deserialize_method"):
                take(state, key, str, where)
            attributes = take({"user_defined_state": {}} | state, "user_defined_state", dict, where)
            self.nodes[uid] = native.from_file(state).node(inputs, attributes, name, uid)
            return self.nodes[uid]
        for key in ("module", "class"):
            take(state, key, str, where)
        assert classes.user_function is not None
        node: Function = classes.user_function(state, inputs, name)
        node._uid = uid
        self.nodes[uid] = node
        return node

    def _block(self, block: Record, attributes: Record, name: str, uid: str, where: str, depth: int) -> Function:
        inner = self.graph(block["composite"], where, depth + 1)
        operands = []
        for argument, operand in zip(block["keys"], block["values"], strict=True):
            if argument not in self.variables:
                raise FormatError(f"{where}: its argument {argument!r} is not in the file")
            operands.append((self.variables[argument], self._variable(operand, where)))
        return make_block(inner, operands, block["op_name"], name, attributes, uid)

    def _close_cycles(self, made: Function, own: list[Function], stand_ins: dict[Variable, str]) -> None:
        """Puts the outputs that are made by now in the place of what stood for them."""
        found = {stand_in: self._variable(uid, self.name) for stand_in, uid in stand_ins.items()}
        for node in own:
            node.node_inputs = [found.get(v, v) for v in node.node_inputs]
            node.block_map = [(inner, found.get(v, v)) for inner, v in node.block_map]
        note_edit()
        try:
            infer_all([made.root_function])
        except Exception as error:
            raise FormatError(f"{self.name}: a loop before {made.root_function.uid!r} does not fit: {error}") from error


def _block_of(record: Record, where: str) -> Record:
    keys = texts(record, "block_function_composite_arguments_map_keys", where)
    values = texts(record, "block_function_composite_arguments_map_values", where)
    if len(keys) != len(values):
        raise FormatError(f"{where}: {len(keys)} arguments of the block stand for {len(values)} operands")
    return {
        "composite": take(record, "block_function_composite", dict, where),
        "op_name": take(record, "block_function_op_name", str, where),
        "keys": keys,
        "values": values,
    }
