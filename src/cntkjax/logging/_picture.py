"""Pictures of graphs: by Graphviz if its program is there, else by matplotlib in layers laid out here."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections import defaultdict
from itertools import pairwise
from typing import Any

from ._drawing import Drawing, dot_text

_SWEEPS = 8  # how often the order inside layers is mended; more hardly changes anything
_COLUMN, _ROW = 1.7, 1.0  # inches between nodes
_COLORS = {"symbol": "#cfe2f3", "operation": "#cfe2f3", "block": "#b6d7a8", "leaf": "#eeeeee", "number": "white",
           "data": "#fff2cc"}
_TIMELESS: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def picture(drawn: Drawing, kind: str) -> bytes:
    """The drawing as a file of the kind svg, pdf or png.

    Errors: ImportError if there is neither Graphviz nor matplotlib.
    """
    program = shutil.which("dot")
    if program is not None:
        given = dot_text(drawn).encode()
        return subprocess.run([program, f"-T{kind}"], input=given, stdout=subprocess.PIPE, check=True).stdout
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "a picture of a graph needs Graphviz (apt-get install graphviz) or matplotlib (pip install "
            "'cntkjax[plot]'); a .dot or .txt file needs neither"
        ) from None
    places, ways = layers(drawn)
    wide, high = (max(p[i] for p in places.values()) + 1 for i in (0, 1))
    figure = Figure(figsize=(wide * _COLUMN, high * _ROW))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.5, wide - 0.5)
    axes.set_ylim(high - 0.5, -0.5)
    axes.axis("off")
    for (source, _, text), way in zip(drawn.edges, ways, strict=True):
        _edge(axes, way, text if drawn.nodes[source][1] in ("symbol", "operation", "block") else "")
    for uid, (text, look) in drawn.nodes.items():
        style = "round" if look in ("symbol", "data") else "square"
        axes.text(
            *places[uid], text.strip(), ha="center", va="center", fontsize=9, zorder=3,
            bbox={"boxstyle": f"{style},pad=0.3", "fc": _COLORS[look], "ec": "none" if look == "number" else "black"},
        )
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=_TIMELESS[kind])
    return file.getvalue()


def _edge(axes: Any, way: list[tuple[float, float]], text: str) -> None:
    """An arrow along points, with the shape of what flows there; upwards, where a loop closes, it is dashed."""
    closes = way[-1][1] <= way[0][1]
    line = {"color": "gray", "lw": 1.0, "ls": "--" if closes else "-", "zorder": 1}
    for a, b in pairwise(way[:-1]):
        axes.plot((a[0], b[0]), (a[1], b[1]), **line)
    bend = "arc3,rad=0.4" if closes else "arc3"
    arrow = {"arrowstyle": "-|>", "color": "gray", "ls": line["ls"], "connectionstyle": bend, "shrinkB": 14,
             "shrinkA": 0 if len(way) > 2 else 10}
    axes.annotate("", xy=way[-1], xytext=way[-2], arrowprops=arrow, zorder=1)
    x, y = ((way[0][i] + way[1][i]) / 2 for i in (0, 1))
    box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
    if text:
        axes.text(x, y, text.split("\n")[-1], fontsize=6, ha="center", va="center", zorder=2, bbox=box)


def layers(drawn: Drawing) -> tuple[dict[str, tuple[float, float]], list[list[tuple[float, float]]]]:
    """A place (column, layer) for each node, and for each edge the points through which it goes.

    Each node lies below all its operands, except where a loop closes; an edge over several layers has a place in each,
    so that it passes beside other nodes. Neighbours are brought near each other by the mean of their places.
    """
    order = {uid: i for i, uid in enumerate(drawn.nodes)}
    down = [(a, b) for a, b, _ in drawn.edges if order[a] < order[b]]
    layer = dict.fromkeys(order, 0)
    for a, b in sorted(down, key=lambda edge: order[edge[0]]):
        layer[b] = max(layer[b], layer[a] + 1)
    first_use: dict[str, int] = {}
    for a, b in down:
        first_use[a] = min(first_use.get(a, layer[b]), layer[b])
    targets = {b for _, b in down}
    layer |= {a: use - 1 for a, use in first_use.items() if a not in targets}  # leaves stand next to their use
    chains: list[list[str]] = []
    for i, (a, b, _) in enumerate(drawn.edges):
        between = [f"{i}.{level}" for level in range(layer[a] + 1, layer[b])]
        layer |= {name: layer[a] + 1 + k for k, name in enumerate(between)}
        chains.append([a, *between, b])
    rows: dict[int, list[str]] = defaultdict(list)
    for name, level in layer.items():
        rows[level].append(name)
    column = _ordered(rows, chains, layer)
    places = {name: (column[name], float(level)) for name, level in layer.items()}
    return {uid: places[uid] for uid in order}, [[places[name] for name in chain] for chain in chains]


def _ordered(rows: dict[int, list[str]], chains: list[list[str]], layer: dict[str, int]) -> dict[str, float]:
    """Columns: each row is sorted again and again by the mean column of what its nodes are joined to."""
    joined: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for a, b in pairwise(chain):
            joined[a].append(b)
            joined[b].append(a)
    column = _centred(rows)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for level in sorted(rows, reverse=not down):
            behind = level - 1 if down else level + 1
            means = {}
            for name in rows[level]:
                near = [column[n] for n in joined[name] if layer[n] == behind]
                means[name] = sum(near) / len(near) if near else column[name]
            rows[level].sort(key=means.__getitem__)
            column = _centred(rows)
    return column


def _centred(rows: dict[int, list[str]]) -> dict[str, float]:
    widest = max(map(len, rows.values()))
    return {name: i + (widest - len(row)) / 2 for row in rows.values() for i, name in enumerate(row)}


__all__ = ["layers", "picture"]
