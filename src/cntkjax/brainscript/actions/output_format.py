"""How values are written: the block ``format`` of the action write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from ...configuration import Block
from ...sgd import ConfigError

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\s": " ", "\\\\": "\\", "\\_": " "}
_FIELDS = re.compile(r"%([sndkx%])")
_PRECISION = re.compile(r"-?\d*(\.\d+)?")


@dataclass(frozen=True)
class Format:
    """The parts of a text that sequences are written as.

    In all parts ``%n`` is the number of the minibatch's sequence, ``%d`` that of the sequence in the data, ``%k`` its
    key, ``%s`` the name of the node, ``%x`` the shape of the sequence. `labels`: of the classes, for `kind` category.
    `rows`, `steps`: how many values of a sample and how many samples of a sequence are written; None: all.
    """

    kind: str = "real"
    labels: tuple[str, ...] = ()
    prologue: str = ""
    epilogue: str = "\n"
    separator: str = ""
    element: str = " "
    sample: str = "\n"
    precision: str = ""
    transposed: bool = True
    rows: int | None = None
    steps: int | None = None


def output_format(block: Block | None) -> Format:
    """The format that a block describes. Errors: ConfigError for types and precisions that there are not."""
    if block is None:
        return Format()
    kind = block.choice("type", ("real", "category", "sparse"), "real")
    precision = block.text("precisionFormat", "") if "precisionFormat" in block else ""
    if not _PRECISION.fullmatch(precision):
        raise ConfigError(f"precisionFormat = {precision}: give a width and precision, such as .4")
    labels = tuple(block.content("labelMappingFile").split("\n")) if "labelMappingFile" in block else ()

    def part(key: str, default: str) -> str:
        value = block.own(key)
        return default if value is None else _unescaped(block.text(key))

    return Format(
        kind, labels, part("sequencePrologue", ""), part("sequenceEpilogue", "\n"), part("sequenceSeparator", ""),
        part("elementSeparator", " "), part("sampleSeparator", "\n"), precision,
        block.flag("transpose", True) if "transpose" in block else True,
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\[ntrs_\\]", lambda match: _ESCAPES[match[0]], text)


class OutputWriter:
    """Writes the sequences of a node. `keys`: of the sequences in their order; otherwise these are their numbers."""

    def __init__(self, form: Format, name: str, file: TextIO, keys: Sequence[str] = ()) -> None:
        self._form, self._name, self._file, self._keys, self._number = form, name, file, keys, 0

    def sequence(self, values: Any, shape: Sequence[int]) -> None:
        """Write a sequence. Shapes: values [steps, *shape]."""
        form = self._form
        array = np.asarray(values)
        rows = array.reshape(len(array), -1)[: form.steps, : form.rows]
        is_line = form.kind == "category" and not form.transposed  # the words of a sequence beside each other
        samples = [self._sample(row) for row in (rows if form.transposed or is_line else rows.T)]
        joint = form.element if is_line else form.sample
        texts = form.separator if self._number else "", form.prologue, joint, form.epilogue
        separator, prologue, between, epilogue = (self._filled(text, rows.shape, shape) for text in texts)
        self._file.write(separator + prologue + between.join(samples) + epilogue)
        self._number += 1

    def _sample(self, row: np.ndarray) -> str:
        form = self._form
        if form.kind == "category":
            index = int(row.argmax())
            return form.labels[index] if index < len(form.labels) else str(index)
        if form.kind == "sparse":
            shown = (f"{i}:{value:{form.precision}g}" for i, value in enumerate(row) if value)
            return form.element.join(shown)
        return form.element.join(f"%{form.precision}f" % value for value in row)

    def _filled(self, text: str, size: tuple[int, ...], shape: Sequence[int]) -> str:
        """A part with its fields replaced."""
        dimensions = " ".join(map(str, [*reversed(shape), size[0]]))
        number = str(self._number)
        key = self._keys[self._number] if self._number < len(self._keys) else number
        fields = {"s": self._name, "n": number, "d": number, "k": key, "x": dimensions, "%": "%"}
        return _FIELDS.sub(lambda match: fields[match[1]], text)


__all__ = ["Format", "OutputWriter", "output_format"]
