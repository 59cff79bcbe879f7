"""Renders drawings of graphs: with Graphviz if it is installed, else with matplotlib and a layout of our own."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ._drawing import Drawing, dot_source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]

_SWEEPS = 8  # of the barycentre heuristic; more hardly change anything
_COLUMN, _ROW = 1.7, 1.0  # distance of nodes in inches
_COLORS = {"symbol": "#cfe2f3", "operation": "#cfe2f3", "block": "#b6d7a8", "leaf": "#eeeeee", "number": "white",
           "data": "#fff2cc"}
_TIMELESS: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def render(drawing: Drawing, kind: str) -> bytes:
    """Render a drawing as the content of a file of the kind svg, pdf or png.

    Errors: ImportError if neither Graphviz nor matplotlib is installed.
    """
    program = shutil.which("dot")
    if program is not None:
        source = dot_source(drawing).encode()
        return subprocess.run([program, f"-T{kind}"], input=source, stdout=subprocess.PIPE, check=True).stdout
    try:
        from matplotlib.figure import Figure  # loaded late, as it is slow and optional
    except ImportError:
        raise ImportError(
            "a picture of a graph needs Graphviz (apt-get install graphviz) or matplotlib (pip install "
            "'cntkjax[plot]'); a .dot or .txt file needs neither"
        ) from None
    positions, routes = layered_layout(drawing)
    width, height = (max(p[i] for p in positions.values()) + 1 for i in (0, 1))
    figure = Figure(figsize=(width * _COLUMN, height * _ROW))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.axis("off")
    for (source_uid, _, label), route in zip(drawing.edges, routes, strict=True):
        is_result = drawing.nodes[source_uid][1] in ("symbol", "operation", "block")
        _draw_edge(axes, route, label if is_result else "")
    for uid, (label, style) in drawing.nodes.items():
        box_style = "round" if style in ("symbol", "data") else "square"
        axes.text(
            *positions[uid], label.strip(), ha="center", va="center", fontsize=9, zorder=3,
            bbox={
                "boxstyle": f"{box_style},pad=0.3", "fc": _COLORS[style], "ec": "none" if style == "number" else "black"
            },
        )
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=_TIMELESS[kind])
    return file.getvalue()


def _draw_edge(axes: Axes, route: Sequence[Point], label: str) -> None:
    """Draw an arrow along points, labelled with the shape of the data; an upward arrow, closing a loop, is dashed."""
    closes_loop = route[-1][1] <= route[0][1]
    line_style = "--" if closes_loop else "-"
    for a, b in pairwise(route[:-1]):
        axes.plot((a[0], b[0]), (a[1], b[1]), color="gray", lw=1.0, ls=line_style, zorder=1)
    connection = "arc3,rad=0.4" if closes_loop else "arc3"
    arrow = {"arrowstyle": "-|>", "color": "gray", "ls": line_style, "connectionstyle": connection, "shrinkB": 14,
             "shrinkA": 0 if len(route) > 2 else 10}
    axes.annotate("", xy=route[-1], xytext=route[-2], arrowprops=arrow, zorder=1)
    x, y = ((route[0][i] + route[1][i]) / 2 for i in (0, 1))
    box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
    if label:
        axes.text(x, y, label.split("\n")[-1], fontsize=6, ha="center", va="center", zorder=2, bbox=box)


def layered_layout(drawing: Drawing) -> tuple[dict[str, Point], list[list[Point]]]:
    """The position (column, layer) of each node, and for each edge the points through which it is routed.

    Each node lies below all its operands, except where a loop closes; an edge that spans several layers has a dummy
    node in each, so that it passes beside other nodes. Nodes are ordered by the barycentre heuristic.
    Source: Sugiyama, Tagawa and Toda, Methods for Visual Understanding of Hierarchical System Structures (1981).
    """
    layer = _assign_layers(drawing)
    chains: list[list[str]] = []
    for i, (a, b, _) in enumerate(drawing.edges):
        dummies = [f"{i}.{level}" for level in range(layer[a] + 1, layer[b])]
        layer |= {name: layer[a] + 1 + k for k, name in enumerate(dummies)}
        chains.append([a, *dummies, b])
    rows: dict[int, list[str]] = defaultdict(list)
    for name, level in layer.items():
        rows[level].append(name)
    column = _order_rows(rows, chains, layer)
    positions = {name: (column[name], float(level)) for name, level in layer.items()}
    routes = [[positions[name] for name in chain] for chain in chains]
    return {uid: positions[uid] for uid in drawing.nodes}, routes


def _assign_layers(drawing: Drawing) -> dict[str, int]:
    """The layer of each node: below its operands, and leaves next to their first use."""
    order = {uid: i for i, uid in enumerate(drawing.nodes)}
    downward = [(a, b) for a, b, _ in drawing.edges if order[a] < order[b]]
    layer = dict.fromkeys(order, 0)
    for a, b in sorted(downward, key=lambda edge: order[edge[0]]):
        layer[b] = max(layer[b], layer[a] + 1)
    first_use: dict[str, int] = {}
    for a, b in downward:
        first_use[a] = min(first_use.get(a, layer[b]), layer[b])
    targets = {b for _, b in downward}
    return layer | {a: use - 1 for a, use in first_use.items() if a not in targets}


def _order_rows(rows: dict[int, list[str]], chains: list[list[str]], layer: dict[str, int]) -> dict[str, float]:
    """The column of each node: rows are sorted repeatedly by the mean column of the neighbours in the row before."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for a, b in pairwise(chain):
            neighbours[a].append(b)
            neighbours[b].append(a)
    column = _centre(rows)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for level in sorted(rows, reverse=not downward):
            previous = level - 1 if downward else level + 1
            means = {}
            for name in rows[level]:
                columns = [column[n] for n in neighbours[name] if layer[n] == previous]
                means[name] = sum(columns) / len(columns) if columns else column[name]
            rows[level].sort(key=means.__getitem__)
            column = _centre(rows)
    return column


def _centre(rows: dict[int, list[str]]) -> dict[str, float]:
    """Columns of the nodes if all rows are centred."""
    widest = max(map(len, rows.values()))
    return {name: i + (widest - len(row)) / 2 for row in rows.values() for i, name in enumerate(row)}


__all__ = ["layered_layout", "render"]
