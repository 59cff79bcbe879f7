"""Where a graph is cut for an evaluation with several batch sizes.

Nodes of which one computes from the other along dynamic axes have one number of samples: they are an island. Functions
of the user that can run outside of programs belong to none. What an island computes before it needs anything of another
one is a stage, and so is each of these functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ...graph.function import Function
from ...graph.variable import Variable
from .plan import Loop, Part, Plan, inputs_of, nodes_of


@dataclass(eq=False)
class Stage:
    """Nodes that are computed together, or one function of the user.

    `given`: what is computed in other stages; `makes`: what is needed outside of this one.
    """

    given: list[Variable]
    outputs: list[Variable]
    function: Function | None


def stages_of(plan: Plan) -> list[Stage]:
    """The stages of a plan, in the order of computation."""
    apart: dict[Part, Function] = {
        part: part for part in plan.parts if not isinstance(part, Loop) and part.primitive.runs_on_host
    }
    places = _places(plan, apart)
    stages: dict[Any, list[Part]] = defaultdict(list)
    for part in plan.parts:
        stages[places[part]].append(part)
    maker = {v: part for part in plan.parts for v in _made(part)}

    def entering(part: Part) -> list[Variable]:
        return [v for v in inputs_of(part) if v in maker and places[maker[v]] != places[part]]

    needed = {v for part in plan.parts for v in entering(part)} | set(plan.outputs)
    return [
        Stage(
            list(dict.fromkeys(v for part in parts for v in entering(part))),
            [v for part in parts for v in _made(part) if part in apart or v in needed],
            apart.get(parts[0]),
        )
        for _, parts in sorted(stages.items(), key=lambda item: item[0][0])
    ]


def _places(plan: Plan, apart: Collection[Part]) -> dict[Part, tuple[int, Any]]:
    """For each part its stage: how many borders of islands were crossed on the way to it, and its island."""
    above: dict[Any, Any] = {}

    def island(x: Any) -> Any:
        while (parent := above.setdefault(x, x)) is not x:
            x = parent
        return x

    readers: dict[Variable, set[Part]] = defaultdict(set)
    for part in reversed(plan.parts):
        if part not in apart:
            together: list[Any] = [v for v in (*inputs_of(part), *_made(part)) if v.dynamic_axes]
            if not together:  # it is computed where it is needed, if that is one island
                islands = {island(reader) for v in _made(part) for reader in readers[v]}
                together = [*islands] if len(islands) == 1 and islands.isdisjoint(apart) else []
            for x in together:
                above[island(x)] = island(part)
        for v in inputs_of(part):
            readers[v].add(part)
    places: dict[Part, tuple[int, Any]] = {}
    maker: dict[Variable, Part] = {}
    for part in plan.parts:
        own = island(part)
        below = [places[maker[v]] for v in inputs_of(part) if v in maker]
        places[part] = max((n + (other is not own) for n, other in below), default=0), own
        maker.update(dict.fromkeys(_made(part), part))
    return places


def _made(part: Part) -> list[Variable]:
    return [v for node in nodes_of(part) for v in node.node_outputs]
