"""Text in the format of the UCI repository: a sample on each line, in columns of numbers and labels.

Source: CNTK's page "BrainScript UCI Fast Reader".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ._files import open_binary
from ._streams import StreamInformation
from .deserializer import ChunkedDeserializer, register_deserializer


@register_deserializer("UCIFastDeserializer")
class UCITable(ChunkedDeserializer):
    """All rows of a text in one chunk, opened from the description of a UCIFastReader block.

    ``input``: {name of a stream: ``dim`` columns of numbers from ``start`` on}; one with ``labelDim`` has a column of
    labels, which the lines of ``labelMappingFile`` name, as one-hot vectors. Columns are separated by blanks, and by
    the characters of ``customDelimiter``; decimals begin with ``customDecimalPoint``.

    Errors: RuntimeError for files that cannot be read, rows without these columns, and labels that are not listed.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w") as file:
    ...     print("0.5 1", "1.5 2", sep="\\n", file=file, flush=True)
    ...     table = UCITable({"file": file.name, "input": {"x": {"start": 1, "dim": 1}}})
    >>> table.take(np.array([0, 0]), np.array([1, 0]))["x"].data.tolist()
    [[2.0], [1.0]]
    """

    num_chunks = 1

    def __init__(self, description: Mapping[str, Any]) -> None:
        rows = _Rows(description)
        self.path, self.streams, self._data = rows.path, [], {}
        for i, (name, columns) in enumerate(description["input"].items()):
            is_label = "labelDim" in columns
            samples = rows.labels(**columns) if is_label else rows.numbers(**columns)
            storage, width = ("sparse", columns["labelDim"]) if is_label else ("dense", columns["dim"])
            self.streams.append(StreamInformation(name, i, storage, np.float32, (width,)))
            self._data[name] = Ragged(samples, np.ones(len(rows.lines), np.int32))

    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """All rows, which were read when the file was opened."""
        return self._data


def labels_in(description: Mapping[str, Any], start: int) -> list[str]:
    """The labels of a column, in the order in which they appear. Errors: as of `UCITable`."""
    return list(dict.fromkeys(label for _, (label,) in _Rows(description).columns(start, 1)))


class _Rows:
    """The rows of a text. `lines`: with their numbers, and with blanks between columns."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.path = description["file"]
        separators = str.maketrans(dict.fromkeys(description.get("customDelimiter", ""), " "))
        separators |= str.maketrans(dict.fromkeys(description.get("customDecimalPoint", "."), "."))
        lines = (line.translate(separators) for line in _lines(self.path))
        self.lines = [(number, line) for number, line in enumerate(lines, 1) if line and not line.isspace()]
        if not self.lines:
            raise RuntimeError(f"{self.path}: there are no rows")

    def columns(self, start: int, dim: int) -> Iterator[tuple[str, list[str]]]:
        """Where each row is, and what its columns have."""
        if start < 0 or dim < 1:
            raise RuntimeError(f"{self.path}: start = {start} and dim = {dim} are no columns; the first one is 0")
        for number, line in self.lines:
            fields, where = line.split(), f"{self.path}, line {number}"
            if len(fields) < start + dim:
                raise RuntimeError(f"{where}: there are {len(fields)} columns, but start = {start} and dim = {dim} "
                                   f"need {start + dim}; customDelimiter is what separates them besides blanks")
            yield where, fields[start : start + dim]

    def numbers(self, start: int, dim: int) -> np.ndarray:
        """Shapes: [rows, dim]."""
        samples = np.empty((len(self.lines), dim), np.float32)
        for i, (where, fields) in enumerate(self.columns(start, dim)):
            try:
                samples[i] = fields
            except ValueError as error:
                raise RuntimeError(f"{where}, columns {start} to {start + dim - 1}: {error}") from None
        return samples

    def labels(self, start: int, labelDim: int, labelMappingFile: str) -> SparseRows:
        """Shapes: [rows, labelDim]."""
        indices = {label.strip(): index for index, label in enumerate(_lines(labelMappingFile)) if label.strip()}
        if len(indices) > labelDim:
            raise RuntimeError(f"{labelMappingFile}: there are {len(indices)} labels, but labelDim is {labelDim}")
        rows = []
        for where, (label,) in self.columns(start, 1):
            if label not in indices:
                raise RuntimeError(f"{where}: label '{label}' is not in {labelMappingFile}")
            rows.append(indices[label])
        ends = np.arange(len(rows) + 1)
        return SparseRows(ends, np.array(rows, np.int32), np.ones(len(rows), np.float32), labelDim)


def _lines(path: str) -> list[str]:
    """The lines of a text. Errors: RuntimeError if the file cannot be read."""
    try:
        with open_binary(path) as file:
            return file.read().decode("utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise RuntimeError(f"Failed to open input file: {path}: {error}") from error
