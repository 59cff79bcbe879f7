"""Scan as a recurrence, and If where its condition is known."""

from __future__ import annotations

from typing import Any

from .... import ops
from ....graph.edit import replace_placeholders
from .table import Node, reads
from .values import Tensor


@reads("Scan")
def _scan(node: Node) -> Any:
    """The scanned axis becomes a sequence axis, of a batch of one; states are delayed values."""
    graph = node.attribute("body")
    count = node.whole("num_scan_inputs", 0)
    states = len(node) - count
    results = len(graph.output) - states if graph is not None else -1
    if graph is None or count < 1 or states < 0 or results < 0 or len(graph.input) != len(node):
        raise node.fail("its body does not fit its operands")
    ways = node.ints("scan_input_directions", [0] * count)
    back = node.ints("scan_output_directions", [0] * results)
    for name in ("scan_input_axes", "scan_output_axes"):
        if any(node.ints(name, ()) or ()):
            raise node.fail("only the first axis can be scanned")
    if len({*(ways or ()), *(back or ())}) > 1:
        raise node.fail("scans in both directions at once cannot be read")
    delayed = ops.sequence.future_value if ways and ways[0] else ops.sequence.past_value
    like: Any = None
    given: dict[str, Tensor] = {}
    for i in range(count):
        steps = _as_sequence(node.x(states + i), like)
        like = steps if like is None else like
        given[graph.input[states + i].name] = Tensor(node.tensor(states + i).kind, steps.output)
    stand_ins = []
    for i in range(states):
        begin = node.x(i)
        stand_in = ops.input_variable(begin.shape, begin.dtype, dynamic_axes=like.dynamic_axes)
        stand_ins.append(stand_in)
        given[graph.input[i].name] = Tensor(node.tensor(i).kind, delayed(stand_in, initial_state=begin).output)
    inner = node.reader.body(graph, given)
    made = [inner.result(o.name) for o in graph.output]
    whole = ops.combine([ops.alias(v) for v in made])
    if states:
        closing: dict[Any, Any] = {s: whole.outputs[i] for i, s in enumerate(stand_ins)}
        replace_placeholders(whole, closing)
    outs = whole.outputs
    end = ops.sequence.first if ways and ways[0] else ops.sequence.last
    last = [_alone(end(o)) for o in outs[:states]]
    return [*last, *(_alone(ops.sequence.unpack(_spread(o, like), 0, True)) for o in outs[states:])]


def _as_sequence(x: Any, like: Any) -> Any:
    """[steps, *shape] as one sequence."""
    one = ops.to_batch(ops.expand_dims(x, -len(x.shape) - 1))
    return ops.to_sequence(one) if like is None else ops.to_sequence_like(one, like)


def _spread(x: Any, like: Any) -> Any:
    """A value that does not depend on the steps, for each of them."""
    return x if x.dynamic_axes else ops.reconcile_dynamic_axes(x, like)


def _alone(x: Any) -> Any:
    """Without the batch axis of one."""
    return ops.squeeze(ops.slice(ops.unpack_batch(x), 0, 0, 1), [0])


@reads("If")
def _if(node: Node) -> Any:
    condition = node.known(0)
    if condition is None or condition.size != 1:
        raise node.fail("only conditions that are known can be read")
    graph = node.attribute("then_branch" if bool(condition.reshape(())) else "else_branch")
    if graph is None:
        raise node.fail("it has no branch")
    inner = node.reader.body(graph, {})
    return [inner.tensors[o.name] for o in graph.output]
