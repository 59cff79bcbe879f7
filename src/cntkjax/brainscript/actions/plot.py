"""The action plot: a network as a graph in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..building import PRECOMPUTED
from ..models import load_network
from ..network import Network
from ..writing import write_lines
from .session import Command


def plot(command: Command) -> None:
    """Write the graph of a model as CNTK does, node by node in the order of names."""
    path = command.block.file("outputDOTFile", f"{command.model_path}.dot")
    write_lines(path, graph(load_network(command.model_path)))
    if "renderCmd" in command.block:
        command.log.warn(f"renderCmd is not run: configurations start no process. Draw with: dot -Tpng -O {path}")
    command.log.line(f"Output network description in dot language to {path}")


def graph(network: Network) -> Iterator[str]:
    """The lines of the graph."""
    names, roles = sorted(network.nodes, key=str.lower), network.roles
    parameters = [name for name in names if network.operations[name] == "LearnableParameter"]
    precomputed = [name for name in names if network.operations[name] in PRECOMPUTED]
    yield from (" strict digraph {", " rankdir = BT ;  ", " // special nodes ")
    yield f' node [ shape = box     , color = gray , style = "filled, rounded"  ]; {_quoted(parameters)} ; '
    yield f" node [ shape = ellipse , color = red  , fillcolor = white ]; {_quoted(roles['feature'])} ; "
    yield f" node [ shape = diamond, color = brown, style = bold ] ;  {_quoted(roles['label'])} ; "
    yield f" node [ shape = doublecircle , color =  red , fillcolor = white  ]; {_quoted(roles['criterion'])} ; "
    yield (' node [ shape = box    , color = black, style = "dashed, filled",  fillcolor= limegreen ] ;'
           f"{_quoted(precomputed)} ; ")
    yield "   node [ shape = ellipse, color = blue, fillcolor = white, style = solid ];  "
    yield from (" ", "// add labels and operation name")
    shapes = network.shown_shapes()
    for name in names:
        yield f'  "{name}" [ label = "{name} {shapes[name]}\\n{network.operations[name]}" ] ;'
    yield from _ranked("source", roles["feature"])
    yield from _ranked("sink", [*roles["criterion"], *roles["output"], *roles["evaluation"]])
    for name, of in _edges(network, [*roles["criterion"], *roles["evaluation"], *roles["output"]]):
        yield f' "{name}" -> "{of}" ; '
    yield from (" ", "}")


def _quoted(names: Iterable[str]) -> str:
    return " ".join(f'"{name}"' for name in names)


def _ranked(rank: str, names: list[str]) -> Iterator[str]:
    yield from (" subgraph {", f" \t\t rank={rank} ;  {_quoted(names)}  ", "}")


def _edges(network: Network, roots: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Inputs and nodes, depth first from each root, the last input of a node first."""
    seen: set[str] = set()
    for root in roots:
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                inputs = network.inputs.get(name, [])
                yield from ((each, name) for each in inputs)
                waiting += inputs


__all__ = ["graph", "plot"]
