"""Creation of nodes, and inference of the shapes, types and axes of their outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .axis import BATCH, UNKNOWN_AXES, axes_text
from .errors import AxisError, ShapeError, explain, in_layer, layer_title, of_layer
from .function import Node, leaves, native_inputs, nodes
from .public import classes
from .shape import UNKNOWN_SHAPE, Shape, is_unknown
from .uid import skip_uid
from .variable import (
    Axes,
    Edge,
    Leaf,
    VariableKind,
    bind,
    bindings,
    confirm_dtype,
    has_assumed_dtype,
    infer_dtype,
    is_undetermined,
    outside,
    set_type,
)

_EDITS = 0


def edits() -> int:
    """The number of edits of existing graphs so far: a plan from before the last one may be out of date."""
    return _EDITS


def note_edit() -> None:
    """Record that an existing graph was changed."""
    global _EDITS
    _EDITS += 1


@dataclass
class Spec:
    """What a primitive's shape rule says about one output. None: inferred from all operands."""

    shape: Shape
    dtype: Any = None
    axes: Axes | None = None
    is_sparse: bool = False
    needs_gradient: bool | None = None
    assumed_dtype: bool = False


class BlockPrimitive:
    """The primitive of a block: it computes nothing of its own."""

    name = "Block"
    cntk_id = 57
    passes_through = is_identity = keeps_elements = False


BLOCK = BlockPrimitive()


def apply(
    primitive: Any, inputs: Sequence[Edge], attributes: dict[str, Any] | None = None, name: str = ""
) -> Node:
    """A composite around a new node of the primitive; its outputs are inferred at once."""
    return composite(make_node(primitive, inputs, primitive.complete(attributes or {}), name))


def make_node(
    primitive: Any, inputs: Sequence[Edge], attributes: dict[str, Any], name: str = "", uid: str | None = None
) -> Node:
    """A primitive node with inferred outputs."""
    primitive = primitive.specialize(attributes)
    node = classes.function(primitive=primitive, inputs=inputs, attributes=attributes, name=name, uid=uid)
    infer(node)
    return node


def composite(root: Node, name: str | None = None, uid: str | None = None) -> Node:
    """The composite that represents the graph rooted at a node; by default it has the name of the node."""
    function = classes.function(root=root, name=root._name if name is None else name, uid=uid)
    if uid is None:
        skip_uid()
    return function


def make_block(
    inner: Node, operands: Sequence[tuple[Edge, Edge]], op_name: str, name: str = "",
    attributes: dict[str, Any] | None = None, uid: str | None = None,
) -> Node:
    """A block around a composite: `operands` are pairs (argument of `inner`, operand outside)."""
    node = classes.function(primitive=BLOCK, attributes=attributes or {}, name=name, uid=uid)
    node.block_composite, node.block_map, node.block_name = inner, list(operands), op_name
    node.node_inputs = block_inputs(node)
    infer(node)
    return node


def block_inputs(block: Node) -> list[Edge]:
    """What a block depends on: leaves of the wrapped graph that are no arguments, and its operands."""
    assert block.block_composite is not None
    arguments = {argument for argument, _ in block.block_map}
    leaf_variables = dict.fromkeys(leaves(block.block_composite.root_function, native_inputs))
    return [v for v in leaf_variables if v not in arguments] + [outer for _, outer in block.block_map]


# ---- inference
def infer(node: Node, guess: int = 0) -> bool:
    """Infer a node's outputs from its inputs; True if anything changed.

    With `guess`, an operation with operands of unknown shape is inferred from the others where possible: with 1 only if
    they have a dimension above 1, with 2 if they have a dimension, with 3, the last resort, in any case. A delay is
    inferred from its initial state: only with 3 if that has one element, as it might be broadcast, and only with 4 if
    it is a scalar.
    """
    if node.primitive.passes_through:
        differs = node.node_outputs != node.node_inputs
        node.node_outputs = list(node.node_inputs)
        return differs
    specs = _infer_block(node, guess) if node.block_composite is not None else _infer_primitive(node, guess)
    if not node.node_outputs:
        node.node_outputs += [
            classes.variable(
                VariableKind.Output, spec.shape, spec.dtype, spec.axes or (), name=name, uid=f"{node.uid}_Output_{i}",
                needs_gradient=bool(spec.needs_gradient), is_sparse=spec.is_sparse, owner=node,
                assumed_dtype=spec.assumed_dtype,
            )
            for i, (spec, name) in enumerate(zip(specs, _output_names(node, len(specs)), strict=True))
        ]
        return True
    changed = [
        set_type(v, s.shape, s.dtype, s.axes or (), s.is_sparse, bool(s.needs_gradient), s.assumed_dtype)
        for v, s in zip(node.node_outputs, specs, strict=True)
    ]
    return any(changed)


def _output_names(node: Node, count: int) -> Sequence[str]:
    """The names of new outputs; all outputs of a block have its name."""
    if node.block_composite is not None:
        return [node._name] * count
    appended = node.primitive.output_names
    return [node._name and node._name + a for a in appended[:count]] if count <= len(appended) else [""] * count


def _infer_primitive(node: Node, guess: int) -> list[Spec]:
    primitive, inputs = node.primitive, node.node_inputs
    known = [v for v in inputs if not is_unknown(v.shape)]
    outputs = _guessed(node, known, guess)
    if outputs is None and len(known) < len(inputs) and not primitive.infers_partially:
        outputs = [Spec(UNKNOWN_SHAPE) for _ in range(primitive.number_of_outputs)]
    elif outputs is None:
        outputs = primitive.outputs(inputs, node.node_attributes)
    specs = [s if isinstance(s, Spec) else Spec(s) for s in (outputs if isinstance(outputs, list) else [outputs])]
    for spec in specs:
        if spec.dtype is None:  # otherwise operands need not have one type
            spec.dtype, spec.assumed_dtype = _inferred_dtype(primitive, inputs)
        if spec.axes is None:
            spec.axes = merged_axes(primitive.name, inputs)
        if spec.needs_gradient is None:
            spec.needs_gradient = True in [v.needs_gradient for v in inputs]
    return specs


def _guessed(node: Node, known: list[Edge], guess: int) -> Any:
    """What follows from the operands of known shape alone, as `infer` says; None if nothing is guessed."""
    primitive, inputs = node.primitive, node.node_inputs
    if not guess or not known or len(known) == len(inputs):
        return None
    least = (2, 2, 1, 0)[guess - 1]  # the size from which on an initial state tells the shape
    if primitive.delay and known == inputs[1:] and max(inputs[1].shape, default=0) >= least:
        return Spec(inputs[1].shape, axes=inputs[0].dynamic_axes)  # the initial state of a generator
    is_determined = guess > 2 or any(v.shape if guess == 2 else max(v.shape, default=1) > 1 for v in known)
    return primitive.outputs_of_known(known, node.node_attributes) if is_determined else None


@contextmanager
def bound_arguments(block_map: Sequence[tuple[Edge, Edge]], block_name: str, name: str) -> Iterator[None]:
    """Give each argument of a block the type of its operand; errors on the way name the block and the operands."""
    for argument, operand in block_map:
        if argument in bindings(operand):
            raise ValueError(explain(
                f"an argument of block {block_name!r} would stand for itself", {"argument": argument},
                "bind it to another variable than the block's own placeholder",
            ))
        bind(argument, operand)
        # As in CNTK an argument inside needs no gradient: only parameters inside make a block need one.
        set_type(
            argument, operand.shape, operand.dtype, operand.dynamic_axes, operand.is_sparse, False,
            has_assumed_dtype(operand),
        )
    try:
        yield
    except (ShapeError, AxisError) as error:
        raise of_layer(error, layer_title(block_name, name), [outside(v) for _, v in block_map]) from None


def _infer_block(node: Node, guess: int) -> list[Spec]:
    assert node.block_composite is not None
    with bound_arguments(node.block_map, node.block_name, node._name):
        infer_all([node.block_composite.root_function], guess)
    return [
        Spec(v.shape, v.dtype, v.dynamic_axes, v.is_sparse, v.needs_gradient, has_assumed_dtype(v))
        for v in node.block_composite.root_function.node_outputs
    ]


def infer_all(roots: Iterable[Node], guess: int = 0) -> None:
    """Infer all nodes that the roots depend on; with cycles, repeatedly until nothing changes.

    A loop may stay unknown although its operands are known: in x + past_value(h), a size of 1 does not determine the
    shape, as it might be broadcast. Such a loop is inferred from its known operands. `guess`: for a block inside one.
    """
    order = nodes(list(roots))
    _settle(order)
    placeholders = {v for n in order for v in n.node_inputs if v.is_placeholder}
    if not any(v.dtype is None or has_assumed_dtype(v) for v in placeholders):
        for v in (v for n in order for v in n.node_outputs):
            confirm_dtype(v)
    if any(map(is_undetermined, placeholders)) and not guess:
        return
    for strength in (guess,) if guess else (1, 2, 3, 4):
        if not any(is_unknown(v.shape) for n in order for v in n.node_outputs):
            return
        _settle(order, strength)  # until the guess has gone round: nested loops wait for the shape of each other
        if not guess:
            _settle(order)


def infer_from_data(roots: Iterable[Node], shapes: Mapping[Edge, Shape], unknown_leaves: Iterable[Leaf]) -> None:
    """Give inputs with inferred dimensions these shapes, of the first data that they are fed, for good.

    Errors: ShapeError if the graph does not fit these sizes; it then stays as it was, with the leaves that wait for a
            shape.
    """
    roots, declared = list(roots), {v: v.shape for v in (*shapes, *unknown_leaves)}
    note_edit()
    try:
        _infer_with(roots, shapes)
    except (ShapeError, AxisError):
        _infer_with(roots, declared)
        raise


def _infer_with(roots: Iterable[Node], shapes: Mapping[Edge, Shape]) -> None:
    for v, shape in shapes.items():
        v._shape = shape
    infer_all(roots)


def _infer_each(order: Sequence[Node], guess: int = 0) -> bool:
    """Infer every node once; True if anything changed."""
    changed = False
    for node in order:
        try:
            changed |= infer(node, guess)
        except (ShapeError, AxisError) as error:
            raise in_layer(error, node._layer) from None
    return changed


def _settle(order: Sequence[Node], guess: int = 0) -> None:
    for _ in range(len(order) + 2):
        if not _infer_each(order, guess):
            return
    raise ShapeError(explain(
        "the shapes in a recurrent loop do not converge: each pass through the loop gives another shape",
        {"root": order[-1].node_outputs[0]},
        "give the delayed value and the value it is computed from the same shape",
    ))


def _inferred_dtype(primitive: Any, inputs: Sequence[Edge]) -> tuple[type | None, bool]:
    """The element type of a node's outputs, and whether it is only assumed. Leaves without a type get it.

    Operands whose types are unknown are assumed to have the type of constants, or that of operands which need not share
    it, such as an initial state, as in CNTK. What they become later may have another.
    """
    types = {v.dtype for v in inputs}
    if len(types) == 1 and None not in types and not any(map(has_assumed_dtype, inputs)):
        return types.pop(), False
    sharing = inputs[primitive.dtype_operands]
    dtype = _merged_dtype(primitive.name, sharing)
    if dtype is None:
        return _merged_dtype(primitive.name, inputs), True
    for v in inputs:
        if isinstance(v, Leaf) and v.dtype is None:
            infer_dtype(v, dtype)
    is_open = any(v.dtype is None or has_assumed_dtype(v) for v in sharing)
    return dtype, is_open and all(v.dtype is None or _yields(v) for v in sharing)


def _merged_dtype(op: str, inputs: Sequence[Edge]) -> type | None:
    """The element type that all operands other than constants share; None while it is unknown.

    Constants by themselves take the widest of theirs.
    """
    typed = [(v, v.dtype) for v in inputs if v.dtype is not None]
    types = dict.fromkeys(dtype for _, dtype in typed)
    for yields in (_yields, has_assumed_dtype):  # of those that yield, constants have the say
        if len(types) > 1:
            types = dict.fromkeys(dtype for v, dtype in typed if not yields(v)) or types
    if len(types) > 1 and all(v.is_constant for v, _ in typed):  # such as those that freezing makes of parameters
        return max(types, key=lambda dtype: np.dtype(dtype).itemsize)
    if len(types) > 1 and not all(has_assumed_dtype(v) for v, _ in typed):  # assumptions are settled later
        raise ShapeError(explain(
            f"{op}: operands of different types: " + " and ".join(t.__name__ for t in types),
            {f"[{i}]": v for i, v in enumerate(inputs)}, "convert one of them with cntk.cast",
        ))
    return next(iter(types), None)


def _yields(v: Edge) -> bool:
    """True if a variable takes the type of the operands beside it."""
    return v.is_constant or has_assumed_dtype(v)


def _names(axes: Axes) -> set[str]:
    """What tells axes apart; whether sequences of one name have equal lengths shows when they are combined."""
    return {axis.name for axis in axes}


def merged_axes(op: str, inputs: Sequence[Edge]) -> Axes:
    """The dynamic axes of an operation: those of the operand that has most of them; the others are broadcast."""
    merged: Axes = ()
    unknown = False
    for v in inputs:
        axes = v.dynamic_axes
        if not axes or axes is merged:
            continue
        if axes == UNKNOWN_AXES:
            unknown = True
        elif merged and _names(axes) <= _names(merged):
            continue
        elif not merged or _names(merged) <= _names(axes) or set(merged) == {BATCH}:
            merged = axes
        else:
            raise AxisError(explain(
                f"{op}: operand {v!r} has dynamic axes that do not match the dynamic axes {axes_text(merged)} "
                "of the other operands",
                {f"[{i}]": w for i, w in enumerate(inputs)},
                "sequences of different axes have different lengths: use cntk.sequence.broadcast_as to repeat one "
                "value per sequence, cntk.reconcile_dynamic_axes if the lengths are the same, or declare both inputs "
                "with the same sequence axis (cntk.sequence.input_variable(..., sequence_axis=...))",
            ))
    return UNKNOWN_AXES if unknown and not merged else merged
