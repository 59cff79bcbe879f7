"""How two models differ: in their graphs, attributes, and values of parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from ..graph.function import Node
from ..graph.names import paths_of
from ..graph.shape import is_known, shape_text
from ..graph.variable import Edge, Leaf, value_of
from .document import Json, attributes_of, document

_GRAPH, _ATTRIBUTES, _VALUES = "graph", "attributes", "parameters and constants"
NOT_COMPARED = frozenset({"rngSeed", "rngOffset"})  # of random operations: every copy of a model gets its own


class Line(NamedTuple):
    """One difference: the section it belongs to, the path of the blocks in which it lies, and the text."""

    section: str
    place: str
    text: str


@dataclass(frozen=True)
class Differences:
    """Differences between two models, each as one line of text.

    `changed`: the lines about operations of the second model, by uid; `added`: uids of those that the first one lacks.
    """

    lines: tuple[Line, ...]
    changed: dict[str, list[str]]
    added: frozenset[str]
    model: Node

    def __bool__(self) -> bool:
        """True if the models differ in anything."""
        return bool(self.lines)

    @property
    def graph(self) -> tuple[str, ...]:
        """Operations and inputs that only one of the models has."""
        return self._of(_GRAPH)

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes of operations that both have."""
        return self._of(_ATTRIBUTES)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Values of parameters and constants."""
        return self._of(_VALUES)

    def _of(self, section: str) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines if line.section == section)

    def __str__(self) -> str:
        sections = [text for section in (_GRAPH, _ATTRIBUTES, _VALUES) for text in self._section(section)]
        return "\n".join(sections) or "The models are equal: same operations, attributes and values."

    def _section(self, section: str) -> Iterator[str]:
        """The lines of a section, grouped by the blocks in which they lie; equal ones are counted."""
        groups: dict[str, Counter[str]] = {}
        for line in self.lines:
            if line.section == section:
                groups.setdefault(line.place, Counter())[line.text] += 1
        if groups:
            yield f"{section}:"
        for place, counts in sorted(groups.items(), key=lambda group: group[0] != ""):
            if place:
                yield f"  {place}:"
            for text, count in counts.items():
                yield f"  {'  ' if place else ''}{text}{f' ({count} times)' if count > 1 else ''}"

    def document(self, title: str) -> Json:
        """The page of the second model with its differences marked; see `document.document`."""
        content = document(self.model, title)
        for node in content["nodes"]:
            uid = node.get("uid")
            if uid in self.added:
                node["change"], node["differences"] = "added", ["the first model lacks this"]
            elif uid in self.changed:
                node["change"], node["differences"] = "changed", self.changed[uid]
        content["differences"] = [*self.graph, *self.attributes, *self.parameters] or ["none"]
        return content


def compare(first: Node, second: Node) -> Differences:
    """The differences of two models.

    Operations are matched in the order of computation, by kind and name. Their parameters are compared with those of
    their counterpart, so that copies of a model need not have the same uids.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, name='x')
    >>> print(compare(C.tanh(x * 2), C.relu(x * 3)))
    graph:
      - Tanh
      + ReLU
    parameters and constants:
      Constant in ElementTimes: largest deviation 1 at [], 2 and 3; 1 of 1 values differ
    """
    paths = [paths_of(model.root_function) for model in (first, second)]
    lines, pairs, added = _aligned(*paths)
    inputs = [_signature(model.arguments) for model in (first, second)]
    lines += [Line(_GRAPH, "", f"- input {text}") for text in inputs[0] if text not in inputs[1]]
    lines += [Line(_GRAPH, "", f"+ input {text}") for text in inputs[1] if text not in inputs[0]]
    changed: dict[str, list[str]] = {}
    compared: set[tuple[Edge, Edge]] = set()
    for one, other in pairs:
        texts = list(_attribute_lines(one, other))
        place = paths[1][other]
        lines += [Line(_ATTRIBUTES, place, f"{_title(other)}: {text}") for text in texts]
        for leaf, counterpart in _leaf_pairs(one, other):
            if (leaf, counterpart) not in compared and (text := _value_line(leaf, counterpart, other)):
                lines.append(Line(_VALUES, place, text))
                texts.append(text)
            compared.add((leaf, counterpart))
        if texts:
            changed[other.uid] = texts
    return Differences(tuple(lines), changed, frozenset(node.uid for node in added), second)


def _aligned(
    paths_a: Mapping[Node, str], paths_b: Mapping[Node, str]
) -> tuple[list[Line], list[tuple[Node, Node]], list[Node]]:
    """Lines about operations that one model lacks, pairs of counterparts, and operations that the first lacks.

    The arguments are the operations of the models, in order, with the blocks in which they lie.
    """
    a, b = list(paths_a), list(paths_b)
    lines: list[Line] = []
    pairs: list[tuple[Node, Node]] = []
    added: list[Node] = []
    matcher = SequenceMatcher(None, [(n.op_name, n.name) for n in a], [(n.op_name, n.name) for n in b], autojunk=False)
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal" or (
            tag == "replace" and [n.op_name for n in a[a0:a1]] == [n.op_name for n in b[b0:b1]]  # only names differ
        ):
            pairs += zip(a[a0:a1], b[b0:b1], strict=True)
            continue
        lines += [Line(_GRAPH, paths_a[node], f"- {_title(node)}") for node in a[a0:a1]]
        lines += [Line(_GRAPH, paths_b[node], f"+ {_title(node)}") for node in b[b0:b1]]
        added += b[b0:b1]
    return lines, pairs, added


def _title(node: Node) -> str:
    return f"{node.op_name} '{node.name}'" if node.name else node.op_name


def _signature(arguments: Sequence[Edge]) -> list[str]:
    return [f"{v.name or 'unnamed'} {shape_text(v.shape)}{' sparse' if v.is_sparse else ''}" for v in arguments]


def _attribute_lines(a: Node, b: Node) -> Iterator[str]:
    if a.name != b.name:
        yield f"name '{a.name}' and '{b.name}'"
    one, other = attributes_of(a), attributes_of(b)
    for name in dict.fromkeys([*one, *other]):
        if name not in NOT_COMPARED and not np.array_equal(one.get(name), other.get(name)):  # type: ignore[arg-type]
            yield f"{name} {one.get(name, 'missing')} and {other.get(name, 'missing')}"


def _leaf_pairs(a: Node, b: Node) -> Iterator[tuple[Leaf, Leaf]]:
    if a.is_block:  # its parameters are compared where operations inside use them
        return
    for one, other in zip(a.node_inputs, b.node_inputs, strict=False):
        if isinstance(one, Leaf) and isinstance(other, Leaf):
            yield one, other


def _value_line(a: Leaf, b: Leaf, node: Node) -> str:
    """How the values of two parameters differ; '' if they are equal or not known yet."""
    where = f"{b.name or ('Parameter' if b.is_parameter else 'Constant')} in {_title(node)}"
    if a.shape != b.shape:
        return f"{where}: shape {shape_text(a.shape)} and {shape_text(b.shape)}"
    if not is_known(a.shape) or a.dtype is None or b.dtype is None:
        return ""
    one, other = (np.asarray(value_of(leaf)).astype(np.float64) for leaf in (a, b))
    if np.array_equal(one, other, equal_nan=True):
        return f"{where}: type {np.dtype(a.dtype)} and {np.dtype(b.dtype)}" if a.dtype != b.dtype else ""
    differing = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    with np.errstate(invalid="ignore", over="ignore"):
        deviation = np.where(differing, np.nan_to_num(np.abs(one - other), nan=np.inf), 0)
    worst = np.unravel_index(int(deviation.argmax()), deviation.shape)
    return (
        f"{where}: largest deviation {deviation[worst]:.6g} at {[int(i) for i in worst]}, {one[worst]:.6g} and "
        f"{other[worst]:.6g}; {int(differing.sum()):,} of {one.size:,} values differ"
    )


__all__ = ["Differences", "compare"]
