"""Generators that stop: loops of which nobody looks at the steps after a condition has become 0 for good.

What `UnfoldFrom` makes is gathered where a second loop, the gate, is not 0: something times its own last value. Once
that is 0 in all sequences, no later step of the generator, the gate, and what lies between them is looked at. So they
are made one loop that can stop there; `loops.run_ending` does it where no gradient is taken. All this is seen from the
graph alone, whoever built it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.function import Function
from ...graph.variable import Variable
from .plan import Loop, Part, inputs_of, nodes_of, resolve

PER_STEP = ("PastValue", "ReconcileDynamicAxis", "ReduceElements", "Splice")  # packed, and fit for the inside of loops


def fuse_early_exit(parts: list[Part], outputs: Sequence[Variable]) -> list[Part]:
    """The parts of a plan, with each gate and the loops that may stop with it merged into one."""
    for gate in [part for part in parts if _is_gate(part)]:
        assert isinstance(gate, Loop)
        region = _leading_to(gate, parts, _seen_after(gate, parts, outputs))
        if region:
            parts = _reordered(parts, region, gate, _merged([*region, gate]))
    return parts


def _is_gate(part: Part) -> bool:
    """True for a loop that makes something that stays 0 once it is 0."""
    if not isinstance(part, Loop) or part.backwards or len(part.delays) != 1 or len(part.nodes) != 1:
        return False
    (delay,), (node,) = part.delays, part.nodes
    multiplies = node.op_name == "ElementTimes" and delay.node_outputs[0] in map(resolve, node.node_inputs)
    return multiplies and delay.node_attributes["offset"] == 1


def _outputs(part: Part) -> set[Variable]:
    return {v for node in nodes_of(part) for v in node.node_outputs}


def _goes_by_steps(part: Part, gate: Loop) -> bool:
    """True for what makes each step from that step and earlier ones alone, and can be computed in the gate's loop."""
    axes = gate.nodes[0].node_outputs[0].dynamic_axes
    delays = part.delays if isinstance(part, Loop) else [part] if part.op_name == "PastValue" else []
    if any(v.dynamic_axes != axes for v in _outputs(part)):
        return False
    if any(resolve(delay.node_inputs[1]).sequence_axis == gate.axis for delay in delays):  # has to be known before
        return False
    if isinstance(part, Loop):
        return not part.backwards and not part.apart
    here = all(resolve(v).sequence_axis in (None, gate.axis) for v in part.node_inputs)
    return here and (not part.primitive.packed or part.op_name in PER_STEP)


def _gathers(part: Part, gate: Loop) -> bool:
    """True for what takes of its first operand only the steps at which the gate is not 0."""
    if isinstance(part, Loop) or part.op_name not in ("GatherPacked", "PackedIndex"):
        return False
    steps = part.node_inputs[1] if part.op_name == "PackedIndex" else _operand(part.node_inputs[1], "PackedIndex", 1)
    condition = _operand(steps, "Where", 0)
    while condition is not None and condition is not gate.nodes[0].node_outputs[0]:
        condition = _operand(condition, "NoOp", 0)
    return condition is not None


def _operand(v: Variable | None, op_name: str, place: int) -> Variable | None:
    """An operand of the operation that made a variable, if it was that operation."""
    owner = None if v is None else resolve(v)._owner
    return resolve(owner.node_inputs[place]) if owner is not None and owner.op_name == op_name else None


def _seen_after(gate: Loop, parts: Sequence[Part], outputs: Sequence[Variable]) -> set[Variable]:
    """Variables whose values at steps after the gate became 0 somebody looks at, or might."""
    seen = set(outputs)
    for part in reversed(parts):
        if part is gate:
            continue
        if _gathers(part, gate):
            assert isinstance(part, Function)
            seen.add(resolve(part.node_inputs[1]))
        elif not _goes_by_steps(part, gate) or not seen.isdisjoint(_outputs(part)):
            seen.update(inputs_of(part))
    return seen


def _leading_to(gate: Loop, parts: Sequence[Part], seen: set[Variable]) -> list[Part]:
    """Unseen loops from which the gate is computed, and what lies between, in order."""
    needed = set(inputs_of(gate))
    leading = []
    for part in reversed(parts[: parts.index(gate)]):
        if not needed.isdisjoint(_outputs(part)):
            needed.update(inputs_of(part))
            leading.append(part)
    region: list[Part] = []
    made: set[Variable] = set()
    for part in reversed(leading):  # what comes from an unseen loop is unseen itself, or that loop would be seen
        if seen.isdisjoint(_outputs(part)) and (isinstance(part, Loop) or not made.isdisjoint(inputs_of(part))):
            region.append(part)
            made |= _outputs(part)
    return region


def _merged(region: Sequence[Part]) -> Loop:
    """One loop of several parts, of which the last one is the gate: its delay is the last."""
    nodes = [node for part in region for node in nodes_of(part)]
    delays = [node for node in nodes if node.primitive.delay]
    gate = region[-1]
    assert isinstance(gate, Loop)
    return Loop(delays, [node for node in nodes if not node.primitive.delay], gate.axis, False, apart=list(region))


def _reordered(parts: Sequence[Part], region: Sequence[Part], gate: Loop, merged: Loop) -> list[Part]:
    """The parts with the merged loop where the gate stood, and behind it what else comes from the region."""
    made = {v for part in region for v in _outputs(part)}
    before: list[Part] = []
    behind: list[Part] = []
    for part in parts[: parts.index(gate)]:
        if part in region:
            continue
        waits = not made.isdisjoint(inputs_of(part))
        (behind if waits else before).append(part)
        made |= _outputs(part) if waits else set()
    return [*before, merged, *behind, *parts[parts.index(gate) + 1 :]]
