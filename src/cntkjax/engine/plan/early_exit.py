"""Generators that stop early: loops whose values are not used at any step after a flag has become 0 for good.

The output of `UnfoldFrom` is gathered at the steps at which a second loop, the active flag, is not 0; the flag
multiplies a value by its own last value. Once it is 0 in all sequences, no later step of the generator, of the flag, or
of what lies between them is live. They are fused into one loop that can exit there, which it does where no gradient is
taken (`lower/early_exit.py`). The pattern is recognized in the graph alone, whatever built it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.function import Node
from ...graph.variable import Edge, producer
from .parts import Loop, Part, all_outputs_of, inputs_of, nodes_of, resolve


def fuse_early_exit(parts: list[Part], outputs: Sequence[Edge]) -> list[Part]:
    """The parts of a plan, with each active flag and the loops that may exit with it fused into one."""
    for flag in [part for part in parts if _is_active_flag(part)]:
        assert isinstance(flag, Loop)
        fusible = _fusible_parts(flag, parts, _live_after_exit(flag, parts, outputs))
        if fusible:
            parts = _with_fused(parts, fusible, flag, _fuse([*fusible, flag]))
    return parts


def _is_active_flag(part: Part) -> bool:
    """True for a loop whose value stays 0 once it is 0."""
    if not isinstance(part, Loop) or part.reverse or len(part.delays) != 1 or len(part.nodes) != 1:
        return False
    (delay,), (node,) = part.delays, part.nodes
    stays_0 = node.primitive.multiplies and delay.node_outputs[0] in map(resolve, node.node_inputs)
    return stays_0 and delay.node_attributes["offset"] == 1


def _is_stepwise(part: Part, flag: Loop) -> bool:
    """True if each step is computed from that step and earlier ones alone, so that it can move into the loop."""
    axes = flag.nodes[0].node_outputs[0].dynamic_axes
    if any(v.dynamic_axes != axes for v in all_outputs_of(part)):
        return False
    delays = [node for node in nodes_of(part) if node.primitive.delay < 0]
    if any(resolve(delay.node_inputs[1]).sequence_axis == flag.axis for delay in delays):  # needed before the loop
        return False
    if isinstance(part, Loop):
        return not part.reverse and not part.fused_parts
    same_axis = all(resolve(v).sequence_axis in (None, flag.axis) for v in part.node_inputs)
    return same_axis and (not part.primitive.packed or part.primitive.stepwise)


def _selects_by(part: Part, flag: Loop) -> bool:
    """True if a node uses only those steps of its first operand at which the flag is not 0."""
    if isinstance(part, Loop):
        return False
    condition = part.primitive.step_condition(part)
    while condition is not None and condition is not flag.nodes[0].node_outputs[0]:
        owner = producer(condition)
        condition = resolve(owner.node_inputs[0]) if owner is not None and owner.primitive.is_identity else None
    return condition is not None


def _live_after_exit(flag: Loop, parts: Sequence[Part], outputs: Sequence[Edge]) -> set[Edge]:
    """The variables that are used, or may be, at steps after the flag became 0."""
    live = set(outputs)
    for part in reversed(parts):
        if part is flag:
            continue
        if _selects_by(part, flag):
            assert isinstance(part, Node)
            live.add(resolve(part.node_inputs[1]))
        elif not _is_stepwise(part, flag) or not live.isdisjoint(all_outputs_of(part)):
            live.update(inputs_of(part))
    return live


def _fusible_parts(flag: Loop, parts: Sequence[Part], live: set[Edge]) -> list[Part]:
    """The loops that the flag is computed from and that are not live after it, and nodes between, in order."""
    needed = set(inputs_of(flag))
    ancestors = []
    for part in reversed(parts[: parts.index(flag)]):
        if not needed.isdisjoint(all_outputs_of(part)):
            needed.update(inputs_of(part))
            ancestors.append(part)
    fusible: list[Part] = []
    computed: set[Edge] = set()
    for part in reversed(ancestors):  # what depends on a loop that is not live is not live either
        if live.isdisjoint(all_outputs_of(part)) and (
            isinstance(part, Loop) or not computed.isdisjoint(inputs_of(part))
        ):
            fusible.append(part)
            computed |= all_outputs_of(part)
    return fusible


def _fuse(parts: Sequence[Part]) -> Loop:
    """One loop of several parts, of which the flag is the last: its delay comes last too."""
    nodes = [node for part in parts for node in nodes_of(part)]
    delays = [node for node in nodes if node.primitive.delay]
    flag = parts[-1]
    assert isinstance(flag, Loop)
    body = [node for node in nodes if not node.primitive.delay]
    return Loop(delays, body, flag.axis, reverse=False, fused_parts=list(parts))


def _with_fused(parts: Sequence[Part], fusible: Sequence[Part], flag: Loop, fused: Loop) -> list[Part]:
    """The parts with the fused loop in place of the flag, and after it what else depends on the fused parts."""
    dependent = {v for part in fusible for v in all_outputs_of(part)}
    before: list[Part] = []
    after: list[Part] = []
    for part in parts[: parts.index(flag)]:
        if part in fusible:
            continue
        if dependent.isdisjoint(inputs_of(part)):
            before.append(part)
        else:
            after.append(part)
            dependent |= all_outputs_of(part)
    return [*before, fused, *after, *parts[parts.index(flag) + 1 :]]
