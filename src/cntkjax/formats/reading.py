"""The Dictionary of a model file as a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..graph.axis import UNKNOWN_AXES, Axis
from ..graph.build import BLOCK, BlockPrimitive, composite, infer_all, make_block, make_node, note_edit
from ..graph.function import REVERSED, Node, set_uid
from ..graph.public import classes
from ..graph.seed import next_seed
from ..graph.uid import new_uid
from ..graph.variable import Edge, VariableKind, set_type
from ..primitives import BY_ID, native
from ..primitives.base import Primitive
from .attributes import attributes_of, declared, dtype_of, dynamic_axes_of
from .dictionary import AxisRecord, FormatError, SizeT, StoredShape
from .records import check_version, take, take_names
from .writing import COMPOSITE, IMPLIED, PRIMITIVE, USER_DEFINED, VARIABLE

Record = dict[str, Any]

MAX_DEPTH = 100  # of nested blocks
_SEEDS_AT_NODES = 3  # models of earlier versions hold the state of all random numbers in one place
_WITHOUT_COUNT = 5  # inputs of a batch normalization up to CNTK 2.0
_STATE_KEYS = (("rngSeed", "rng_seed"), ("rngOffset", "rng_offset"))
_STORED_KINDS = frozenset(VariableKind) - {VariableKind.Output}


def graph_of(content: Record, name: str) -> Node:
    """The composite that a model file holds; `name` is the name of the file, for error messages.

    Errors: FormatError with the file, the node or variable, and the reason.
    """
    if "Learners" in content:
        raise FormatError(
            f"{name} is the state of a trainer, not a model", fix="load the file of the same name without '.ckp'"
        )
    kind = content.get("type")
    if not isinstance(kind, str) or kind != "CompositeFunction":
        raise FormatError(
            f"{name} holds no function, but a dictionary with {', '.join(content) or 'nothing'}",
            fix="load a file that Function.save wrote; other dictionaries load with Dictionary.load",
        )
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
        self.implied = self._without_implied()
        self.variables: dict[str, Edge] = {}
        for i, record in enumerate(take(content, "inputs", list, name)):
            self._add_variable(record, f"{name}, variable {i}")
        self.nodes: dict[str, Node] = {}
        self.composite_of: dict[str, int] = {}  # uid of a node -> number of the composite that contains it
        self.composites = 0
        self.sample_counts: list[Edge] = []  # constants of batch normalizations that the file lacks
        self.states: Record | None = None  # of random numbers, by node, in a model of such a version

    def _without_implied(self) -> dict[str, str]:
        """Drop the nodes that are there for CNTK alone; the operand of each, by its output."""
        operands = {}
        for uid in list(self.records):
            where = self._where(uid)
            if IMPLIED in take(self.records[uid], "attributes", dict, where):
                inputs = take_names(self.records.pop(uid), "inputs", where)
                if len(inputs) != 2:
                    raise FormatError(f"{where} has {len(inputs)} inputs instead of 2")
                operands[f"{uid}_Output_0"] = inputs[0]
        return operands

    # ---- variables
    def _add_variable(self, record: object, where: str) -> None:
        uid = take(record, "uid", str, where)
        where = f"{self.name}, variable {uid!r}"
        if uid in self.variables:
            raise FormatError(f"{self.name}: two variables have the uid {uid!r}")
        check_version(record, VARIABLE, where)
        kind = take(record, "kind", int, where)
        if kind not in _STORED_KINDS:
            raise FormatError(f"{where} is of kind {kind}, which a file cannot hold")
        kind = VariableKind(kind)
        shape = tuple(take(record, "shape", StoredShape, where))
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
    def _axes(record: object, where: str) -> tuple[Axis, ...]:
        axes = take(record, "dynamic_axis", list, where)
        if not all(isinstance(axis, AxisRecord) for axis in axes):
            raise FormatError(f"{where}: dynamic_axis has entries that are not axes")
        return dynamic_axes_of(axes)

    # ---- functions
    def graph(self, record: Record, where: str, depth: int = 0) -> Node:
        """The composite of a record, with all nodes that lead to its root."""
        if depth > MAX_DEPTH:
            raise FormatError(f"{where}: blocks are nested deeper than {MAX_DEPTH} levels")
        version = check_version(record, COMPOSITE, where)
        if depth == 0 and version < _SEEDS_AT_NODES:
            self.states = take(record, "state", dict, where)
        uid = take(record, "uid", str, where)
        root = take(record, "root", str, where)
        if root in self.composite_of:
            raise FormatError(f"{where}: its root {root!r} is part of another graph too")
        placeholders: dict[Edge, str] = {}
        members = list(self._operands_first(root, placeholders, where, depth))
        graph = composite(self.nodes[root], take(record, "name", str, where), uid=uid)
        if placeholders:
            self._close_cycles(graph, members, placeholders)
        return graph

    def _operands_first(
        self, root: str, placeholders: dict[Edge, str], where: str, depth: int
    ) -> Iterator[Node]:
        """Create the nodes that a root depends on. A placeholder replaces each output that would close a cycle."""
        self.composites += 1
        composite_number = self.composites
        opened: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = []

        def open_(uid: str, by: str) -> None:
            if uid not in self.records:
                raise FormatError(f"{by}: there is no function {uid!r} in the file")
            if self.composite_of.setdefault(uid, composite_number) != composite_number:
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
                        placeholder = self.variables[variable]
                        set_type(  # the axes come with the loop: two of one name in a file may differ in lengths
                            placeholder, placeholder.shape, placeholder.dtype, UNKNOWN_AXES, placeholder.is_sparse,
                            placeholder.needs_gradient,
                        )
                        placeholders[placeholder] = variable
                elif owner not in opened:
                    open_(owner, self._where(uid))
                    break
            else:
                stack.pop()
                yield self._make_node(uid, depth)

    def _inputs(self, uid: str) -> list[str]:
        return [self.implied.get(v, v) for v in take_names(self.records[uid], "inputs", self._where(uid))]

    def _owner(self, variable: str) -> str | None:
        """The uid of the function that has an output of that uid."""
        owner, separator, _ = variable.rpartition("_Output_")
        return owner if separator and owner in self.records else None

    def _where(self, uid: str) -> str:
        return f"{self.name}, function {uid!r}"

    def _variable(self, uid: str, where: str) -> Edge:
        owner = self.nodes.get(self._owner(uid) or "")
        if owner is None:
            return self.variables[uid]
        number = uid.rpartition("_")[2]
        if not number.isdecimal() or int(number) >= len(owner.node_outputs):
            raise FormatError(f"{where}: its input {uid!r} is not among the outputs of {owner.uid!r}")
        return owner.node_outputs[int(number)]

    def _make_node(self, uid: str, depth: int) -> Node:
        record, where = self.records[uid], self._where(uid)
        if take(record, "type", str, where) == "UserDefinedFunction":
            return self._make_user_function(record, uid, where)
        check_version(record, PRIMITIVE, where)
        op = take(record, "op", int, where)
        if op not in BY_ID:
            raise FormatError(
                f"{where}: operation number {op} is not known to this package",
                fix="define the primitive with this number before loading, or save the model without the operation",
            )
        primitive = BY_ID[op]
        where = f"{where} ({primitive.name})"
        block = _block_of(record, where) if "block_function_composite" in record else None
        if (primitive is BLOCK) != (block is not None):
            raise FormatError(f"{where}: a block needs the graph inside it, and only a block has one")
        inputs = self._operands(uid, primitive, block, where)
        stored = take(record, "attributes", dict, where)
        if self.states is not None and "rngSeed" in declared(primitive):
            stored = stored | self._random_state(uid, where)
        attributes = attributes_of(primitive, stored, where)
        name = take(record, "name", str, where)
        try:
            if block is None:
                node = make_node(primitive, inputs, attributes, name, uid=uid)
            else:
                node = self._block(block, attributes, name, uid, where, depth)
        except FormatError:
            raise
        except Exception as error:  # a damaged node can break a rule anywhere; the cause stays attached
            raise FormatError(f"{where} does not fit its inputs: {error}") from error
        # Of a double precision network CNTK converts the constants inside a block, and lists the original ones outside.
        if {v for v in node.node_inputs if not v.is_constant} != {v for v in inputs if not v.is_constant}:
            raise FormatError(f"{where}: its inputs are not those of the graph inside it")
        node.node_inputs = self._with_counts(inputs, node)
        self.nodes[uid] = node
        return node

    def _operands(
        self, uid: str, primitive: Primitive | BlockPrimitive, block: Record | None, where: str
    ) -> list[Edge]:
        """The inputs of a function. Batch normalizations of CNTK 2.0 do not count samples: 0, as in CNTK 2.7."""
        inputs = [self._variable(variable, where) for variable in self._inputs(uid)]
        if (block["op_name"] if block else primitive.name) in REVERSED:
            inputs.reverse()
        if primitive.name == "BatchNormalization" and len(inputs) == _WITHOUT_COUNT:
            dtype = inputs[-1].dtype
            self.sample_counts.append(classes.constant(
                VariableKind.Constant, (), dtype, array=np.zeros((), dtype), name="",
                uid=new_uid("BatchNormSampleCountConstant"), needs_gradient=False,
            ))
            inputs.append(self.sample_counts[-1])
        return inputs

    def _with_counts(self, inputs: list[Edge], node: Node) -> list[Edge]:
        """The inputs of a block, with the counts of samples inside it that the file lacks."""
        inputs = list(inputs)
        for i, variable in enumerate(node.node_inputs):
            if variable in self.sample_counts and variable not in inputs:
                inputs.insert(i, variable)
        return inputs

    def _random_state(self, uid: str, where: str) -> Record:
        """The attributes of a node of an old model; one without state gets a new seed, as in CNTK."""
        assert self.states is not None
        if uid not in self.states:
            return {"rngSeed": SizeT(next_seed()), "rngOffset": SizeT(0)}
        state = take(self.states, uid, dict, where)
        return {key: SizeT(take(state, old, int, where)) for key, old in _STATE_KEYS}

    def _make_user_function(self, record: Record, uid: str, where: str) -> Node:
        """The node of a user's class, or of a native function; only registered ones are used, nothing is imported."""
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
        node: Node = classes.user_function(state, inputs, name)
        set_uid(node, uid)
        self.nodes[uid] = node
        return node

    def _block(self, block: Record, attributes: Record, name: str, uid: str, where: str, depth: int) -> Node:
        inner = self.graph(block["composite"], where, depth + 1)
        operands = []
        for argument, operand in zip(block["keys"], block["values"], strict=True):
            if argument not in self.variables:
                raise FormatError(f"{where}: its argument {argument!r} is not in the file")
            operands.append((self.variables[argument], self._variable(operand, where)))
        return make_block(inner, operands, block["op_name"], name, attributes, uid)

    def _close_cycles(self, graph: Node, members: list[Node], placeholders: dict[Edge, str]) -> None:
        """Replace the placeholders of outputs by the outputs, which exist by now."""
        outputs = {placeholder: self._variable(uid, self.name) for placeholder, uid in placeholders.items()}
        for node in members:
            node.node_inputs = [outputs.get(v, v) for v in node.node_inputs]
            node.block_map = [(inner, outputs.get(v, v)) for inner, v in node.block_map]
        note_edit()
        try:
            infer_all([graph.root_function])
        except Exception as error:
            raise FormatError(
                f"{self.name}: a loop before {graph.root_function.uid!r} does not fit: {error}"
            ) from error


def _block_of(record: Record, where: str) -> Record:
    keys = take_names(record, "block_function_composite_arguments_map_keys", where)
    values = take_names(record, "block_function_composite_arguments_map_values", where)
    if len(keys) != len(values):
        raise FormatError(f"{where}: the block has {len(keys)} arguments, but {len(values)} operands")
    return {
        "composite": take(record, "block_function_composite", dict, where),
        "op_name": take(record, "block_function_op_name", str, where),
        "keys": keys,
        "values": values,
    }
