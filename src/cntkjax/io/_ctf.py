"""CNTK text format (CTF): rows of ``[id] |stream values |stream index:value ... |# comment``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._typing import FileName
from .._user_code import call_stack, warn
from ..engine.data.ragged import Ragged, offsets_of
from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..variables import Record
from ._ahead import ReadAhead
from ._ctf_index import open_index
from ._ctf_parser import parse_chunk, parse_well_formed
from ._ctf_rows import Field, RowReporter, Samples
from ._files import cannot_open, open_binary
from ._streams import sample_size, stream_definitions, stream_information
from ._text import FileText
from .deserializer import ChunkedDeserializer, register_deserializer

CHUNK_SIZE = 32 * 2**20  # bytes
_FEW = 8  # a chunk is not read for less than this part of its sequences


@public
def CTFDeserializer(filename: FileName, streams: Mapping[str, Record]) -> Dictionary:
    """Read CNTK text format: rows of ``[sequence id] |stream values |sparse_stream index:value ... |# comment``.

    Rows with the same id, and rows without an id that follow them, form a sequence. If the first row has no id, each
    row is a sequence of its own. Set the options ``chunkSizeInBytes``, ``maxErrors`` (how many errors are reported as
    warnings before one is raised; a malformed value is one, and so is a row without any good sample) and
    ``skipSequenceIds`` as items of the result.

    Args:
        filename: path of the file
        streams: name -> ``StreamDef``, as ``StreamDefs`` holds them; the field of each is its name in the file

    Errors: ValueError if a stream has no field; AttributeError if it has no shape.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> streams = StreamDefs(query=StreamDef("S0", 943, True), labels=StreamDef("S2", 129, True))
    >>> deserializer = CTFDeserializer("atis.train.ctf", streams)
    >>> deserializer["chunkSizeInBytes"] = 2**20
    """
    for name, stream in streams.items():
        if not stream.stream_alias:
            raise ValueError(
                f"CTFDeserializer: stream name for key {name} must be specified, as in "
                f"{name}=StreamDef(field='{name}', shape=...)"
            )
        if not isinstance(stream.dim, int):
            raise NotImplementedError(
                f"CTFDeserializer: the shape of stream {name} has to be one number, not {stream.dim!r}; pass the "
                "number of elements, and reshape in the network"
            )
    return Dictionary(type="CNTKTextFormatDeserializer", file=filename, input=stream_definitions(streams))


@register_deserializer("CNTKTextFormatDeserializer")
class CTFFile(ChunkedDeserializer):
    """A CTF file, opened from the description that ``CTFDeserializer`` returns.

    Errors: ValueError if no file is given; RuntimeError for a file that cannot be read, is empty, or has more malformed
            rows than the description allows (key ``maxErrors``; up to that number they are skipped with a warning).
            The message has file, line and stream.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.path = description["file"]
        if not self.path:
            raise ValueError(f"CTFDeserializer: no file is given{call_stack()}")
        if not description["input"]:
            raise RuntimeError(
                f"CTF file '{self.path}': no stream is asked for; the deserializer needs at least one, as in "
                "StreamDefs(x=StreamDef('x', shape=...))"
            )
        inputs = sorted(description["input"].items(), key=lambda item: item[0].lower())  # numbered as in CNTK
        self.streams = [stream_information(name, i, stream) for i, (name, stream) in enumerate(inputs)]
        aliases = [stream["alias"] for _, stream in inputs]
        for alias in {a for a in aliases if aliases.count(a) > 1}:
            raise RuntimeError(f"CTF file '{self.path}': two streams are read from '|{alias}'; one has to be left out")
        self.fields = [
            Field(alias.encode(), sample_size(info), info.is_sparse)
            for alias, info in zip(aliases, self.streams, strict=True)
        ]
        self.max_errors = _integer(description.get("maxErrors", 0))
        chunk_size = _integer(description.get("chunkSizeInBytes", CHUNK_SIZE))
        try:
            self._file = os.path.abspath(self.path)  # the script may change its working directory
            with open_binary(self._file) as file:
                self.index = open_index(file, self.path, chunk_size, description.get("skipSequenceIds", False))
        except OSError as error:
            raise cannot_open(self.path, error) from error
        self.num_chunks = len(self.index.chunks) - 1
        self._errors_by_chunk: dict[int, int] = {}  # a chunk may be read again
        self._reading, self._ahead, self._order = threading.RLock(), ReadAhead(self), list[int]()

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """Rows of each sequence, which need no parsing, unless a stream defines the minibatch size."""
        if any(s.m_defines_mb_size for s in self.streams):
            return super().sequence_lengths(chunk)
        first, last = self.index.chunks[chunk : chunk + 2]
        return np.diff(self.index.rows[first : last + 1])

    def chunk_sizes(self) -> np.ndarray:
        """Number of sequences in each chunk. Shapes: int64 [chunks]."""
        return np.diff(self.index.chunks)

    def sequence_keys(self) -> np.ndarray:
        """The sequence ids. Shapes: int64 [sequences]."""
        return self.index.keys

    # ---- chunks as a whole
    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """Parse a chunk."""
        first, last = self.index.chunks[chunk : chunk + 2]
        (begin, end), rows = self.index.begins[[first, last]], self.index.rows[first : last + 1]
        text = FileText(self._file, int(begin), int(end))
        reporter = RowReporter(self.path, int(rows[0]), self.max_errors, self._errors_by_chunk, chunk)
        parsed = parse_chunk(text, self.fields, reporter, self.multithreaded)
        data = self._sequences(parsed, rows - rows[0])
        for info, field, samples in zip(self.streams, self.fields, parsed, strict=True):
            self._check(field, samples, np.diff(data[info.name].offsets), first, reporter)
        return data

    def _sequences(self, parsed: Sequence[Samples], rows: np.ndarray) -> dict[str, Ragged]:
        """The samples as sequences, which begin at these rows. Shapes: rows int64 [sequences + 1]."""
        data = {}
        for info, samples in zip(self.streams, parsed, strict=True):
            lengths = np.diff(np.searchsorted(samples.rows, rows)).astype(np.int32)
            values = samples.data
            if isinstance(values, np.ndarray):
                values = values.reshape(-1, *info.sample_shape)
            data[info.name] = Ragged(values, lengths)
        return data

    def _chunk(self, chunk: int) -> Mapping[str, Ragged]:
        with self._reading:  # by one thread at a time, so that each error is reported once
            return super()._chunk(chunk)

    def retain(self, chunks: Iterable[int]) -> None:
        """Keep these chunks in memory once they are read; several are read ahead, in this order."""
        order = list(chunks)
        super().retain(order)
        self._order = order
        if self.multithreaded and len(order) > 1 and self._next_chunk() is not None:
            self._ahead.start()

    def read_next(self) -> bool:
        """Read one of the chunks that are kept; called by a second thread."""
        with self._reading:
            chunk = self._next_chunk()
            if chunk is not None:
                self._chunk(chunk)
        return chunk is not None

    def _next_chunk(self) -> int | None:
        return next((chunk for chunk in self._order if chunk not in self._cache), None)

    # ---- single sequences
    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read sequences in this order. A few of chunks that are not in memory are read one by one."""
        alone = self._read_alone(chunks)
        data = self._read_sequences(self.index.chunks[chunks[alone]] + indices[alone]) if alone.any() else None
        if data is None:
            return super().take(chunks, indices)
        if alone.all():
            return data
        others = super().take(chunks[~alone], indices[~alone])
        order = np.argsort(np.concatenate([np.flatnonzero(alone), np.flatnonzero(~alone)]))
        return {name: Ragged.concatenate([data[name], others[name]]).take(order) for name in data}

    def _read_alone(self, chunks: np.ndarray) -> np.ndarray:
        """Which sequences are read without the others of their chunk. Shapes: int64 [sequences] -> bool [sequences].

        Those of which only few are needed, if their chunk is not in memory and would not stay there, or is read ahead.
        """
        if not (self._retained is None or self._ahead.is_running):
            return np.zeros(len(chunks), bool)
        needed = np.bincount(chunks, minlength=self.num_chunks)
        few = _FEW * needed < self.chunk_sizes()
        few[list(self._cache.copy())] = False
        return few[chunks]

    def _read_sequences(self, sequences: np.ndarray) -> dict[str, Ragged] | None:
        """Read single sequences, in this order; None if anything in them has to be reported."""
        by_place = np.argsort(sequences)
        ordered = sequences[by_place]
        begins, ends = self.index.begins[ordered].tolist(), self.index.begins[ordered + 1].tolist()
        with open_binary(self._file) as file:
            texts = []
            for begin, end in zip(begins, ends, strict=True):
                file.seek(begin)
                texts.append(_whole_rows(file.read(end - begin)))
        parsed = parse_well_formed(b"".join(texts), self.fields, self.multithreaded)
        if parsed is None:
            return None
        data = self._sequences(parsed, offsets_of(self.index.rows[ordered + 1] - self.index.rows[ordered]))
        order = np.argsort(by_place)
        if not all(np.diff(ragged.offsets).all() for ragged in data.values()):
            return None
        return {name: ragged.take(order) for name, ragged in data.items()}

    def _check(self, field: Field, samples: Samples, lengths: np.ndarray, first: int, reporter: RowReporter) -> None:
        """Raise for a sequence without samples; warn of samples with too few values."""
        name = field.alias.decode()
        if not lengths.all():
            empty = first + int(np.argmin(lengths))
            location = reporter.location(self.index.rows[empty] - reporter.first_row)
            raise RuntimeError(
                f"{location}: the sequence beginning here (id {self.index.keys[empty]}) has no sample of stream "
                f"'|{name}'. Malformed input file: add a sample, or leave out the stream"
            )
        if len(samples.too_short):
            more = f", and {len(samples.too_short) - 1} more" if len(samples.too_short) > 1 else ""
            warn(
                f"{reporter.location(samples.too_short[0])}{more}: stream '|{name}' has fewer than {field.width} "
                "values; the rest are zeros",
            )


def _whole_rows(text: bytes) -> bytes:
    """The text with a newline at its end, which the last row of a file may lack."""
    return text if text.endswith(b"\n") else text + b"\n"


def _integer(value: Any) -> int:
    """An option that may be wrapped as `SizeTWrapper`."""
    return int(getattr(value, "value", value))
