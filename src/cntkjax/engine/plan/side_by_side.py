"""Independent loops that compute the same from different values, as the two directions of a bidirectional layer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...graph.variable import Edge
from .parts import Loop, Part, all_outputs_of, inputs_of
from .structure import loop_structure


def side_by_side(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts in an order of computation, where loops that can run side by side follow one another as one group.

    Loops with the same number of loops above them do not depend on each other.
    """
    if sum(isinstance(part, Loop) for part in parts) < 2:
        return [[part] for part in parts]
    loops_above: dict[Edge, int] = {}
    groups: dict[tuple[int, bool, Hashable], list[Part]] = {}
    for number, part in enumerate(parts):
        depth = max((loops_above.get(v, 0) for v in inputs_of(part)), default=0)
        is_loop = isinstance(part, Loop)
        loops_above |= dict.fromkeys(all_outputs_of(part), depth + is_loop)
        structure = loop_structure(part) if isinstance(part, Loop) and _may_share_steps(part) else number
        groups.setdefault((depth, is_loop, structure), []).append(part)
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]  # stable: the order of their first parts


def _may_share_steps(loop: Loop) -> bool:
    """True unless its steps do more than compute values: draw random numbers, call Python, or stop early."""
    special = any(n.primitive.calls_python or "rngSeed" in n.node_attributes for n in loop.nodes)
    return not special and not loop.fused_parts


__all__ = ["side_by_side"]
