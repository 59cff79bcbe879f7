"""CNTK binary format (CBF): the content of a CTF file in binary form, which needs no parsing.

All numbers are little-endian. The file begins with the magic number and uint32 1, the version; then come the chunks,
then the header, and in the last eight bytes the offset of the header:

    header   magic; uint32 chunks, streams; for each stream: uint8 sparse, uint32 bytes of the name, the name,
             uint8 double, uint32 elements of a sample; for each chunk: int64 offset, uint32 sequences, uint32 samples
    chunk    uint32 samples of each sequence (of its longest stream); then stream by stream, sequence by sequence:
    dense    uint32 samples, the values
    sparse   uint32 samples, uint32 nonzeros, their values, their int32 indices, uint32 nonzeros of each sample
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np

from .._typing import FileName
from ..engine.data.ragged import Ragged, SparseRows, offsets_of, ranges
from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..variables import Record
from ._ctf_rows import canonical
from ._files import cannot_open, open_binary
from ._streams import StreamInformation, stream_definitions
from .deserializer import ChunkedDeserializer, register_deserializer

MAGIC = b"nib_ktnc"
_VERSION = 1


@dataclass(frozen=True)
class _Stream:
    name: str
    width: int
    is_sparse: bool
    dtype: np.dtype


@public
def CBFDeserializer(filename: FileName, streams: Mapping[str, Record] = {}) -> Dictionary:
    """Read CNTK binary format.

    Args:
        filename: path of the file
        streams: name -> ``StreamDef``, as ``StreamDefs`` holds them; the field of each is its name in the file, by
            default the same name. Without any, all streams of the file are read, under their own names

    Errors: AttributeError if a stream has no shape.

    >>> CBFDeserializer("train.cbf")["type"]
    'CNTKBinaryFormatDeserializer'
    """
    named = {name: stream.updated_with(stream_alias=stream.stream_alias or name) for name, stream in streams.items()}
    return Dictionary(type="CNTKBinaryFormatDeserializer", file=filename, input=stream_definitions(named))


@register_deserializer("CNTKBinaryFormatDeserializer")
class CBFFile(ChunkedDeserializer):
    """A CBF file, opened from the description that ``CBFDeserializer`` returns.

    Errors: RuntimeError for a file that cannot be read or is damaged, or lacks a stream. The message has file and
            offset.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.path = description["file"]
        try:
            self._file = os.path.abspath(self.path)  # the script may change its working directory
            with open_binary(self._file) as file:
                if file.read(8) != MAGIC:
                    raise RuntimeError(
                        f"The input ({self.path}) is not a valid CNTK binary format file. "
                        "Read text with CTFDeserializer"
                    )
                version = _Bytes(self.path, file.read(4), 8).number("I")
                if version != _VERSION:
                    raise RuntimeError(
                        f"{self.path}, byte 8: the file has version {version}, but only version {_VERSION} can be "
                        "read; convert the data again"
                    )
                end = file.seek(-8, 2)
                header = _Bytes(self.path, file.read(8), end)
                begin = header.number("q")
                if not 12 <= begin < end:
                    raise _damaged(self.path, end, f"it has no byte {begin}, where its header would be")
                file.seek(begin)
                header = _Bytes(self.path, file.read(end - begin), begin)
        except OSError as error:
            raise cannot_open(self.path, error) from error
        if header.take(8).tobytes() != MAGIC:
            raise _damaged(self.path, begin, "there is no header")
        self.num_chunks, streams = header.number("I"), header.number("I")
        self._stored = [_stream(header) for _ in range(streams)]
        table = header.take(16 * self.num_chunks).view(
            np.dtype([("offset", "<i8"), ("sequences", "<u4"), ("samples", "<u4")])
        )
        self._ends = np.append(table["offset"][1:], begin)
        self._begins, self._sequences = table["offset"], table["sequences"].astype(np.int64)
        self._check_chunks(begin)
        inputs = description["input"] or {s.name: {"alias": s.name} for s in self._stored}
        self._names = {definition["alias"]: name for name, definition in inputs.items()}
        self.streams = [self._information(i, name, definition) for i, (name, definition) in enumerate(inputs.items())]

    def _check_chunks(self, header: int) -> None:
        """Raise for chunks that are out of order, without sequences, or with more than their bytes can hold."""
        sizes = self._ends - self._begins
        if (sizes < 0).any() or (self._begins < 12).any():
            raise _damaged(self.path, header, "chunk offsets are not in order")
        numbers = 1 + sum(2 if stream.is_sparse else 1 for stream in self._stored)  # with which a sequence is counted
        wrong = np.flatnonzero((self._sequences == 0) | (4 * numbers * self._sequences > sizes))
        if len(wrong):
            begin, size, sequences = (int(a[wrong[0]]) for a in (self._begins, sizes, self._sequences))
            reason = f"chunk {wrong[0]} has {size} bytes and {sequences} sequences, which cannot be"
            raise _damaged(self.path, begin, reason)

    def _information(self, number: int, name: str, definition: Mapping[str, Any]) -> StreamInformation:
        stored = next((s for s in self._stored if s.name == definition["alias"]), None)
        if stored is None:
            raise RuntimeError(
                f"{self.path}: has no stream '{definition['alias']}'; its streams: {[s.name for s in self._stored]}. "
                f"Write one of these as the field, as in {name}=StreamDef(field='...', shape=...)"
            )
        shape = definition.get("dim", stored.width)
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        storage = "sparse" if stored.is_sparse else "dense"
        if np.prod(shape) != stored.width or definition.get("format", storage) != storage:
            raise RuntimeError(
                f"{self.path}: stream '{stored.name}' is {storage} of dimension {stored.width}, but is requested as "
                f"{definition.get('format', storage)} of shape {shape}; change the StreamDef to shape={stored.width}, "
                f"is_sparse={stored.is_sparse}"
            )
        return StreamInformation(name, number, storage, stored.dtype, shape, definition.get("definesMBSize", False))

    def chunk_sizes(self) -> np.ndarray:
        """Number of sequences in each chunk. Shapes: int64 [chunks]."""
        return self._sequences

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """The lengths stated at the start of a chunk, so that it need not be read, unless a stream defines them."""
        if self._defines_lengths:
            return super().sequence_lengths(chunk)
        if chunk not in self._known_lengths:
            number = int(self._sequences[chunk])
            self._known_lengths[chunk] = self._bytes(chunk, 4 * number).take(4 * number).view("<u4").astype(np.int64)
        return self._known_lengths[chunk]

    def record_lengths(self, chunk: int, data: Mapping[str, Ragged]) -> None:
        """Keep the lengths of the stream that defines them."""
        if self._defines_lengths:
            super().record_lengths(chunk, data)

    @property
    def _defines_lengths(self) -> bool:
        return any(s.m_defines_mb_size for s in self.streams)

    def _bytes(self, chunk: int, size: int) -> _Bytes:
        """The first bytes of a chunk."""
        begin = int(self._begins[chunk])
        with open_binary(self._file) as file:
            file.seek(begin)
            return _Bytes(self.path, file.read(size), begin)

    def read_chunk(self, chunk: int) -> Mapping[str, Ragged]:
        """Decode a chunk."""
        number = int(self._sequences[chunk])
        data = self._bytes(chunk, int(self._ends[chunk] - self._begins[chunk]))
        data.take(4 * number)  # the lengths
        decoded = {s.name: (_sparse if s.is_sparse else _dense)(data, s, number) for s in self._stored}
        shapes = {info.name: info.sample_shape for info in self.streams}
        streams: dict[str, Ragged] = {}
        for alias, name in self._names.items():
            samples = decoded[alias].data
            if isinstance(samples, np.ndarray):
                samples = samples.reshape(-1, *shapes[name])
            streams[name] = Ragged(samples, decoded[alias].lengths)
        return streams


class _Bytes:
    """Bytes of a file that are consumed from front to back; errors have the offset in the file."""

    def __init__(self, path: str, data: bytes, offset: int) -> None:
        self.path, self.data, self.offset, self.position = path, np.frombuffer(data, np.uint8), offset, 0

    def take(self, count: int) -> np.ndarray:
        """The next bytes. Errors: RuntimeError if there are too few."""
        if not 0 <= count <= len(self.data) - self.position:
            raise _damaged(self.path, self.offset + self.position, f"expected {count} more bytes")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, kind: str) -> int:
        """The next number; ``kind`` is its character in ``struct``."""
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)).tobytes())[0]


def _damaged(path: str, offset: int, reason: str) -> RuntimeError:
    return RuntimeError(f"{path}, byte {offset}: the file is damaged; {reason}. Copy it or convert the data again")


def _stream(header: _Bytes) -> _Stream:
    is_sparse = header.number("B")
    name = header.take(header.number("I")).tobytes().decode("utf-8", "replace")
    double, width = header.number("B"), header.number("I")
    if is_sparse > 1 or double > 1 or width == 0:
        raise _damaged(header.path, header.offset + header.position, f"stream '{name}' is of unknown type")
    if is_sparse and width > 2**31:  # indices are int32
        raise _damaged(header.path, header.offset + header.position, f"sparse stream '{name}' has {width} elements")
    return _Stream(name, width, bool(is_sparse), np.dtype("<f8" if double else "<f4"))


@dataclass(frozen=True)
class _Records:
    """The sequences of a stream in a chunk: a header, then parts whose lengths follow from the header.

    Shapes: words uint32 [words], all records end to end; begins int64 [records + 1]; headers int64 [records, numbers].
    Units:  positions and lengths are in words of four bytes.
    """

    words: np.ndarray
    begins: np.ndarray
    headers: np.ndarray

    @staticmethod
    def read(data: _Bytes, number: int, weights: Sequence[int]) -> _Records:
        """Consume this many records; a header has as many numbers as there are weights, their weighted sum follows.

        Errors: RuntimeError if the data end before.
        """
        words = data.data[data.position : len(data.data) - (len(data.data) - data.position) % 4].view("<u4")
        headers = _equal_headers(words, number, weights)
        if headers is None:
            headers = np.array(_walk(data, words.data, number, weights), np.int64)
        begins = offsets_of(len(weights) + headers @ np.array(weights))
        return _Records(data.take(4 * int(begins[-1])).view("<u4"), begins, headers)

    def part(self, before: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """A part of each record. Equal ones are a view, [records, words]; others are end to end.

        Shapes: int64 [records] each, the words before the part and in it -> uint32.
        """
        sizes = np.diff(self.begins)
        if all((numbers == numbers[:1]).all() for numbers in (sizes, before, lengths)) and len(sizes):
            records = self.words.reshape(len(sizes), sizes[0])
            return records[:, before[0] : before[0] + lengths[0]]
        return self.words[ranges(self.begins[:-1] + before, lengths)]


def _equal_headers(words: np.ndarray, number: int, weights: Sequence[int]) -> np.ndarray | None:
    """The headers if all are the same, as those of frames are. Shapes: -> int64 [records, numbers]."""
    header = words[: len(weights)].astype(np.int64)
    size = len(weights) + sum(n * w for n, w in zip(header.tolist(), weights, strict=False))
    if len(header) < len(weights) or size * number > len(words):
        return None
    headers = words[: size * number].reshape(number, size)[:, : len(weights)]
    return headers.astype(np.int64) if (headers == header).all() else None


def _walk(data: _Bytes, words: memoryview, number: int, weights: Sequence[int]) -> list[list[int]]:
    """The headers of records one by one."""
    headers, position = [], 0
    for _ in range(number):
        header = words[position : position + len(weights)].tolist()
        position += len(weights) + sum(map(mul, header, weights))
        if position > len(words) or len(header) < len(weights):
            raise _damaged(data.path, data.offset + data.position, "its sequences are longer than the chunk")
        headers.append(header)
    return headers


def _dense(data: _Bytes, stream: _Stream, number: int) -> Ragged:
    words = stream.width * stream.dtype.itemsize // 4
    records = _Records.read(data, number, [words])
    lengths = records.headers[:, 0]
    values = records.part(np.ones(number, np.int64), lengths * words).view(stream.dtype)
    return Ragged(_native(values).reshape(-1, stream.width), lengths.astype(np.int32))


def _sparse(data: _Bytes, stream: _Stream, number: int) -> Ragged:
    words, offset = stream.dtype.itemsize // 4, data.offset + data.position
    records = _Records.read(data, number, [1, words + 1])
    lengths, nonzeros = records.headers.T
    values, indices = 2 + 0 * nonzeros, 2 + words * nonzeros
    counts = records.part(indices + nonzeros, lengths).astype(np.int64).reshape(-1)
    totals = offsets_of(counts)[offsets_of(lengths)]
    wrong = np.flatnonzero(np.diff(totals) != nonzeros)
    if len(wrong):
        at = offset + 4 * int(records.begins[wrong[0]])
        raise _damaged(data.path, at, f"the nonzeros of stream '{stream.name}' do not add up")
    index = _native(records.part(indices, nonzeros).view("<i4")).reshape(-1)
    if len(index) and not 0 <= index.min() <= index.max() < stream.width:
        reason = f"an index of stream '{stream.name}' is not below its dimension {stream.width}"
        raise _damaged(data.path, data.offset, reason)
    value = _native(records.part(values, words * nonzeros).view(stream.dtype)).reshape(-1)
    return Ragged(canonical(SparseRows(offsets_of(counts), index, value, stream.width)), lengths.astype(np.int32))


def _native(numbers: np.ndarray) -> np.ndarray:
    """In the byte order of the machine."""
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
