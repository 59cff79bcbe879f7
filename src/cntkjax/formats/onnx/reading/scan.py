"""Scan as a recurrence."""

from __future__ import annotations

from .... import ops
from ....graph.edit import replace_placeholders
from ....graph.variable import Edge
from ....ops.functions import Function
from .table import OnnxNode, reads
from .values import OnnxTensor, Operand, Outputs


@reads("Scan")
def _scan(node: OnnxNode) -> Outputs:
    """The scanned axis becomes the sequence axis of a batch of one; states become delayed values."""
    graph = node.attribute("body")
    count = node.integer("num_scan_inputs", 0)
    state_count = len(node) - count
    output_count = len(graph.output) - state_count if graph is not None else -1
    if graph is None or count < 1 or state_count < 0 or output_count < 0 or len(graph.input) != len(node):
        raise node.error("its body does not fit its operands")
    input_directions = node.ints("scan_input_directions", [0] * count)
    output_directions = node.ints("scan_output_directions", [0] * output_count)
    for name in ("scan_input_axes", "scan_output_axes"):
        if any(node.ints(name, ()) or ()):
            raise node.error("only the first axis can be scanned")
    if len({*(input_directions or ()), *(output_directions or ())}) > 1:
        raise node.error("scans in both directions at once cannot be read")
    delayed = ops.sequence.future_value if input_directions and input_directions[0] else ops.sequence.past_value
    like = _as_sequence(node.operand(state_count), None)
    tensors: dict[str, OnnxTensor] = {}
    for i in range(count):
        steps = like if i == 0 else _as_sequence(node.operand(state_count + i), like)
        tensors[graph.input[state_count + i].name] = OnnxTensor(node.tensor(state_count + i).kind, steps.output)
    placeholders = []
    for i in range(state_count):
        begin = node.operand(i)
        placeholder = ops.input_variable(begin.shape, begin.dtype, dynamic_axes=like.dynamic_axes)
        placeholders.append(placeholder)
        tensors[graph.input[i].name] = OnnxTensor(node.tensor(i).kind, delayed(placeholder, initial_state=begin).output)
    inner = node.reader.body(graph, tensors)
    results = [inner.result(o.name) for o in graph.output]
    read = {name for n in graph.node for name in n.input}
    if not any(v.name in read for v in graph.input[state_count:]):  # only their length counts, as of generators
        results = [ops.reconcile_dynamic_axes(v, like).output for v in results]
    combined = ops.combine([ops.alias(v) for v in results])
    if state_count:
        next_values: dict[Edge, Edge] = {s: combined.outputs[i] for i, s in enumerate(placeholders)}
        replace_placeholders(combined, next_values)
    outputs = combined.outputs
    end = ops.sequence.first if input_directions and input_directions[0] else ops.sequence.last
    last = [_without_batch(end(o)) for o in outputs[:state_count]]
    steps_of = (ops.sequence.unpack(_at_each_step(o, like), 0, True) for o in outputs[state_count:])
    return [*last, *map(_without_batch, steps_of)]


def _as_sequence(x: Operand, like: Function | None) -> Function:
    """[steps, *shape] as a batch of one sequence."""
    batch = ops.to_batch(ops.expand_dims(x, -len(x.shape) - 1))
    return ops.to_sequence(batch) if like is None else ops.to_sequence_like(batch, like)


def _at_each_step(x: Operand, like: Function) -> Operand:
    """A sequence; a value that does not depend on the steps is repeated."""
    return x if x.dynamic_axes else ops.reconcile_dynamic_axes(x, like)


def _without_batch(x: Operand) -> Operand:
    """x without the batch axis, which is of size 1."""
    return ops.squeeze(ops.slice(ops.unpack_batch(x), 0, 0, 1), [0])
