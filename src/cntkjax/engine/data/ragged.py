"""Minibatches on the host: all samples end to end, dense or sparse, and the lengths of the sequences. NumPy only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...graph.errors import IndexRangeError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix, spmatrix

Rows = slice | npt.ArrayLike


def check_sparse_indices(matrix: spmatrix) -> None:
    """IndexRangeError if a matrix in a compressed format, which users can write to, has indices beyond its size."""
    along = {"csr": 1, "csc": 0}.get(matrix.format)
    if along is None or not matrix.indices.size:
        return
    size = matrix.shape[along]
    if matrix.indices.min() >= 0 and matrix.indices.max() < size:
        return
    entry = int(np.flatnonzero((matrix.indices < 0) | (matrix.indices >= size))[0])
    line = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    names = ("row", "column") if along else ("column", "row")
    raise IndexRangeError(
        f"a sparse matrix of shape {matrix.shape} has the {names[1]} index {matrix.indices[entry]} in {names[0]} "
        f"{line} (entry {entry} of its indices); indices go from 0 to {size - 1}"
    )


def ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The integers of all ranges ``[begin, begin + length)``, one range after the other.

    >>> ranges(np.array([10, 0, 5]), np.array([2, 0, 3]))
    array([10, 11,  5,  6,  7])
    """
    if len(lengths) and (lengths == lengths[0]).all():
        return (begins[:, None] + np.arange(lengths[0])).reshape(-1)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The start of each piece, and the end of the last one. Shapes: lengths [n] -> int64 [n + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Compressed sparse rows, one for each sample.

    Shapes: indptr int [rows + 1], indices int [nonzeros], values [nonzeros]; ``indptr[0] == 0``. ``width`` is the
            number of elements of a sample: of a sample with several axes, the indices are into its flattened form.
    Errors: ValueError if the three arrays do not fit together, or if int32 cannot number the elements of a sample.

    >>> rows = SparseRows(np.array([0, 1, 1, 3]), np.array([2, 0, 3]), np.array([1., 5., 7.], np.float32), width=4)
    >>> rows[1:].to_dense()
    array([[0., 0., 0., 0.],
           [5., 0., 0., 7.]], dtype=float32)
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    width: int

    def __post_init__(self):
        if len(self.indptr) == 0 or self.indptr[0] != 0 or not self.indptr[-1] == len(self.indices) == len(self.values):
            ends = [int(i) for i in (*self.indptr[:1], *self.indptr[-1:])]
            raise ValueError(
                f"SparseRows: indptr has to begin with 0 and to end with the number of nonzeros; its ends are {ends}, "
                f"with {len(self.indices)} indices and {len(self.values)} values"
            )
        if self.width > 2**31:
            raise ValueError(
                f"sparse samples have at most 2,147,483,648 elements, not {self.width:,}, since their indices are "
                "int32 in programs; hash the ids into a smaller range, or split them into several inputs"
            )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """The number of stored elements."""
        return len(self.indices)

    @cached_property
    def is_one_hot(self) -> bool:
        """True if every row has exactly one entry, a 1: then ``indices`` determine the rows."""
        rows = len(self)
        return self.nnz == rows and bool((self.values == 1).all()) and bool((np.diff(self.indptr) == 1).all())

    def __getitem__(self, rows: Rows) -> SparseRows:
        """Rows by slice (without a copy, if the step is 1), indices or mask."""
        if not isinstance(rows, slice):
            return self.take(np.flatnonzero(rows) if np.asarray(rows).dtype == bool else rows)
        first, last, step = rows.indices(len(self))
        if step != 1:
            return self.take(np.arange(first, last, step))
        indptr = self.indptr[first : max(first, last) + 1]
        begin, end = int(indptr[0]), int(indptr[-1])
        return SparseRows(indptr - begin, self.indices[begin:end], self.values[begin:end], self.width)

    def take(self, rows: npt.ArrayLike) -> SparseRows:
        """The rows with these indices, in this order; a row may occur more than once."""
        rows = np.asarray(rows, np.int64).reshape(-1)
        lengths = np.diff(self.indptr)[rows]
        where = ranges(self.indptr[:-1][rows], lengths)
        return SparseRows(offsets_of(lengths), self.indices[where], self.values[where], self.width)

    def to_dense(self) -> np.ndarray:
        """Shapes: -> [rows, width]. Entries of the same element are added up."""
        dense = np.zeros((len(self), self.width), self.dtype)
        row = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        np.add.at(dense, (row, self.indices), self.values)
        return dense

    def to_csr(self) -> csr_matrix:
        """As a SciPy matrix of shape (rows, width)."""
        from scipy.sparse import csr_matrix

        return csr_matrix((self.values, self.indices, self.indptr), shape=(len(self), self.width))

    @staticmethod
    def from_csr(matrix: spmatrix) -> SparseRows:
        """From a SciPy sparse matrix of any format. Errors: IndexRangeError for indices beyond its size."""
        check_sparse_indices(matrix)
        matrix = matrix.tocsr()
        return SparseRows(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])

    @staticmethod
    def from_dense(array: np.ndarray) -> SparseRows:
        """The nonzero elements. Shapes: array [rows, *sample_shape]."""
        array = np.asarray(array)
        width = int(np.prod(array.shape[1:], dtype=np.int64))
        array = array.reshape(len(array), width)
        row, column = np.nonzero(array)
        indptr = offsets_of(np.bincount(row, minlength=len(array)))
        return SparseRows(indptr, column.astype(np.int32), array[row, column], width)

    @staticmethod
    def concatenate(parts: Iterable[SparseRows]) -> SparseRows:
        """The rows of all parts. Errors: ValueError if the widths differ or there is no part."""
        parts = list(parts)
        widths = {part.width for part in parts}
        if len(widths) != 1:
            raise ValueError(f"SparseRows.concatenate: needs parts of one width, got widths {sorted(widths)}")
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        indices, values = (np.concatenate([getattr(part, a) for part in parts]) for a in ("indices", "values"))
        return SparseRows(offsets_of(lengths), indices, values, widths.pop())


def concatenate_rows(parts: Sequence[np.ndarray | SparseRows]) -> np.ndarray | SparseRows:
    """Samples end to end. Errors: ValueError if dense and sparse ones are mixed, or their samples differ in shape."""
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    if not sparse:
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    if len(sparse) < len(parts):
        raise ValueError("the samples of one minibatch are all dense or all sparse, not mixed")
    return SparseRows.concatenate(sparse)


@dataclass(frozen=True, eq=False)
class Ragged:
    """The samples of one variable in a minibatch, end to end, and the lengths of its sequences.

    Shapes: data [samples, *sample_shape], or ``SparseRows`` with a row for each sample; lengths int32 [sequences],
            summing to samples, or None for data without a sequence axis, whose samples are independent;
            starts bool [sequences], False for one that continues a truncated one of the previous minibatch, or None
            if all begin here; slots int [sequences], only with starts: a sequence that does not begin here continues
            the last one that was in its slot.
    Errors: ValueError if lengths do not add up to the number of samples, or starts or slots have another length.

    >>> batch = Ragged.from_sequences([np.array([[1.], [2.]]), np.array([[3.]])])
    >>> batch.num_samples, batch.num_sequences, batch.lengths
    (3, 2, array([2, 1], dtype=int32))
    >>> batch.take([1, 0]).data.ravel()
    array([3., 1., 2.])
    """

    data: np.ndarray | SparseRows
    lengths: np.ndarray | None
    starts: np.ndarray | None = None
    slots: np.ndarray | None = None

    def __post_init__(self):
        if self.lengths is not None and int(self.lengths.sum()) != len(self.data):
            total = int(self.lengths.sum())
            raise ValueError(f"Ragged: the lengths add up to {total}, but there are {len(self.data)} samples")
        for name, flags in (("starts", self.starts), ("slots", self.slots)):
            if flags is not None and len(flags) != self.num_sequences:
                raise ValueError(f"Ragged: {name} is for {len(flags)} sequences, but there are {self.num_sequences}")

    @property
    def num_samples(self) -> int:
        """The number of samples, of all sequences."""
        return len(self.data)

    @property
    def num_sequences(self) -> int:
        """The number of sequences; without a sequence axis, of samples."""
        return len(self.data) if self.lengths is None else len(self.lengths)

    @property
    def is_sparse(self) -> bool:
        """True if the samples are ``SparseRows``."""
        return isinstance(self.data, SparseRows)

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self.data.dtype

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first sample of each sequence, then the number of samples. Shapes: int64 [sequences + 1]."""
        return np.arange(len(self.data) + 1) if self.lengths is None else offsets_of(self.lengths)

    def take(self, sequences: Rows) -> Ragged:
        """These sequences in this order (dense data are not copied if they are a slice of step 1)."""
        if isinstance(sequences, slice) and sequences.step not in (None, 1):
            sequences = np.arange(self.num_sequences)[sequences]
        if isinstance(sequences, slice):
            first, last, _ = sequences.indices(self.num_sequences)
            last = max(first, last)
            samples: slice | np.ndarray = slice(int(self.offsets[first]), int(self.offsets[last]))
        else:
            sequences = np.asarray(sequences, np.int64).reshape(-1)
            samples = sequences if self.lengths is None else ranges(self.offsets[sequences], self.lengths[sequences])
        per_sequence = (self.lengths, self.starts, self.slots)
        return Ragged(self.data[samples], *(None if a is None else a[sequences] for a in per_sequence))

    def sequences(self) -> list[np.ndarray | SparseRows]:
        """Each sequence by itself: arrays [steps, *sample_shape], or ``SparseRows`` with a row for each step."""
        return [self.data[int(a) : int(b)] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def to_csr(self) -> csr_matrix:
        """All samples as a SciPy matrix, one row for each."""
        return (self.data if isinstance(self.data, SparseRows) else SparseRows.from_dense(self.data)).to_csr()

    def begun(self) -> Ragged:
        """The same data, with pieces of sequences as the first ones of theirs."""
        return self if self.starts is None else self.with_starts(np.ones_like(self.starts))

    def with_starts(self, starts: npt.ArrayLike | None) -> Ragged:
        """The same samples with a flag for each sequence that is True if it begins here; None: all do."""
        if starts is None:
            return self
        lengths = np.ones(self.num_samples, np.int32) if self.lengths is None else self.lengths
        return Ragged(self.data, lengths, np.asarray(starts, bool))

    @staticmethod
    def from_sequences(sequences: Sequence[npt.ArrayLike | SparseRows | spmatrix]) -> Ragged:
        """From a list of sequences: arrays [steps, *sample_shape], ``SparseRows``, or SciPy matrices with a row a step.

        Errors: ValueError if there is none (the shape of the samples would be unknown), or dense and sparse ones are
                mixed, or their samples differ in shape.
        """
        if not len(sequences):
            raise ValueError("Ragged.from_sequences: needs at least one sequence, for the shape of the samples")
        rows = [_rows(s) for s in sequences]
        return Ragged(concatenate_rows(rows), np.fromiter((len(r) for r in rows), np.int32, len(rows)))

    @staticmethod
    def concatenate(parts: Iterable[Ragged]) -> Ragged:
        """One minibatch after the other, without the slots, which mean nothing in the result.

        Errors: ValueError if there is none, or only some have sequences or are sparse, or samples differ in shape.
        """
        parts = list(parts)
        if len({part.lengths is None for part in parts}) != 1:
            raise ValueError("Ragged.concatenate: needs parts that all have sequences, or none of them")
        if len(parts) == 1:
            return parts[0]
        known = [part.lengths for part in parts if part.lengths is not None]
        starts = None
        if any(part.starts is not None for part in parts):
            starts = np.concatenate([np.ones(p.num_sequences, bool) if p.starts is None else p.starts for p in parts])
        return Ragged(concatenate_rows([part.data for part in parts]), np.concatenate(known) if known else None, starts)


_LONG = 32  # samples; sequences that are as long on average are copied one by one


def gathered(parts: Sequence[tuple[Ragged, np.ndarray, np.ndarray]]) -> Ragged:
    """Sequences of several minibatches as one: of each, those with these indices go to these places.

    Shapes: indices and places int64 [sequences of the part]; each place of the result is named once.
    Errors: those of ``concatenate_rows``.

    >>> a, b = (Ragged(np.array(x), np.array(n, np.int32)) for x, n in (([1, 2, 3], [2, 1]), ([4, 5], [1, 1])))
    >>> gathered([(a, np.array([1, 0]), np.array([0, 3])), (b, np.array([0, 1]), np.array([2, 1]))]).data
    array([3, 5, 4, 1, 2])
    """
    lengths = np.zeros(sum(len(places) for _, _, places in parts), np.int32)
    for part, indices, places in parts:
        lengths[places] = np.diff(part.offsets)[indices]
    begins = offsets_of(lengths)
    if begins[-1] >= _LONG * len(lengths) and not any(part.is_sparse for part, _, _ in parts):
        return Ragged(_gathered_slices(parts, begins), lengths)
    samples = [
        (part.data, ranges(part.offsets[indices], lengths[places]), ranges(begins[places], lengths[places]))
        for part, indices, places in parts
    ]
    return Ragged(_gathered_samples(samples, int(begins[-1])), lengths)


def _gathered_slices(parts: Sequence[tuple[Ragged, np.ndarray, np.ndarray]], begins: np.ndarray) -> np.ndarray:
    """The samples of long sequences, copied once, where indices of all samples would copy them twice."""
    first = np.concatenate([np.asarray(part.data[:0]) for part, _, _ in parts])  # checks that they fit together
    result = np.empty((int(begins[-1]), *first.shape[1:]), first.dtype)
    for part, indices, places in parts:
        offsets = part.offsets.tolist()
        for index, place in zip(indices.tolist(), places.tolist(), strict=True):
            result[begins[place] : begins[place + 1]] = part.data[offsets[index] : offsets[index + 1]]
    return result


def _gathered_samples(
    parts: Sequence[tuple[np.ndarray | SparseRows, np.ndarray, np.ndarray]], count: int
) -> np.ndarray | SparseRows:
    first = concatenate_rows([data[:0] for data, _, _ in parts])  # checks that they fit together
    if not isinstance(first, SparseRows):
        result = np.empty((count, *first.shape[1:]), first.dtype)
        for data, samples, places in parts:
            result[places] = data[samples]
        return result
    counts = np.zeros(count, np.int64)
    sparse = [(data, samples, places) for data, samples, places in parts if isinstance(data, SparseRows)]
    for data, samples, places in sparse:
        counts[places] = np.diff(data.indptr)[samples]
    indptr = offsets_of(counts)
    indices, values = np.empty(indptr[-1], first.indices.dtype), np.empty(indptr[-1], first.values.dtype)
    for data, samples, places in sparse:
        entries, targets = ranges(data.indptr[samples], counts[places]), ranges(indptr[places], counts[places])
        indices[targets], values[targets] = data.indices[entries], data.values[entries]
    return SparseRows(indptr, indices, values, first.width)


def _rows(data: npt.ArrayLike | SparseRows | spmatrix) -> np.ndarray | SparseRows:
    if isinstance(data, SparseRows):
        return data
    if hasattr(data, "tocsr"):
        return SparseRows.from_csr(data)
    if not np.ndim(array := np.asarray(data)):
        raise ValueError(f"a list of sequences has arrays [steps, *shape], not the number {data}: pass np.array(list)")
    return array
