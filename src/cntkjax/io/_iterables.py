"""Data that Python code provides, as passes over items: iterables, data sets, frames and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

Item = Mapping[str, Any]
"""One sample or sequence: the value of each stream."""


class Passes(Protocol):
    """Data that are iterated over, once or again and again."""

    is_repeatable: bool
    """Whether there may be more than one pass."""

    def items(self, first: int) -> Iterator[Any]:
        """A new pass, without this many items at its beginning."""


def passes_over(data: Any, batched: bool | None) -> Passes:
    """How data of this kind are iterated over.

    Errors: TypeError for anything that cannot be iterated over; RuntimeError for a path without a file.
    """
    if isinstance(data, (str, os.PathLike)):
        return _Parquet(os.fspath(data))
    if isinstance(data, Mapping):
        raise TypeError(
            "from_iterable: a dict holds columns, not items; write MinibatchSourceFromData(data), or pass an iterable "
            "of dicts"
        )
    if hasattr(data, "iloc"):  # a frame of pandas
        return _Indexed(_Rows({str(name): data[name].to_numpy() for name in data.columns}))
    if batched is None:  # a DataLoader of PyTorch; without a batch size it has samples
        batched = getattr(data, "batch_size", None) is not None and hasattr(data, "collate_fn")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not batched:
        return _Indexed(data)
    passes: Passes
    if callable(data) and not hasattr(data, "__iter__"):
        passes = _Repeated(data)
    elif not hasattr(data, "__iter__"):
        raise TypeError(f"from_iterable: {type(data).__name__} cannot be iterated over; pass an iterable of dicts")
    elif iter(data) is data:
        passes = _Once(data)
    else:
        passes = _Repeated(lambda: iter(data), getattr(data, "skip", None))
    return _Batched(passes) if batched else passes


class _Repeated:
    """An iterable, or a function that returns one. ``skip(n)`` is a method of data sets that can begin later."""

    is_repeatable = True

    def __init__(self, begin: Callable[[], Iterable[Any]], skip: Callable[[int], Iterable[Any]] | None = None) -> None:
        self._begin, self._skip = begin, skip

    def items(self, first: int) -> Iterator[Any]:
        if first and self._skip:
            return iter(self._skip(first))
        return islice(self._begin(), first, None)


class _Once:
    """An iterator, such as a generator: it cannot go back."""

    is_repeatable = False

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator, self._taken = iterator, 0

    def items(self, first: int) -> Iterator[Any]:
        if first < self._taken:
            raise RuntimeError(
                f"from_iterable: a generator cannot go back to item {first}, as {self._taken} have been read; pass a "
                "function that returns a new one, as in from_iterable(lambda: generate())"
            )
        for item in self._iterator:
            self._taken += 1
            if self._taken > first:
                yield item


class _Indexed:
    """A sequence, or a data set with ``__getitem__`` and ``__len__``: begins anywhere."""

    is_repeatable = True

    def __init__(self, data: Any) -> None:
        self._data = data

    def items(self, first: int) -> Iterator[Any]:
        return (self._data[i] for i in range(first, len(self._data)))


class _Rows(Sequence[Item]):
    """The rows of a table. Shapes: columns [rows, ...]."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, row: Any) -> Any:
        return {name: column[row] for name, column in self._columns.items()}


class _Parquet:
    """A Parquet file, read by row groups. Needs pyarrow."""

    is_repeatable = True

    def __init__(self, path: str) -> None:
        if not os.path.isfile(path):
            raise RuntimeError(f"from_iterable: there is no file {path!r}; a text is the path of a Parquet file")
        try:
            import pyarrow.parquet as parquet  # loaded late, as it is optional
        except ImportError as missing:
            raise ImportError("reading Parquet files needs pyarrow: pip install pyarrow") from missing
        self._path, self._open = path, parquet.ParquetFile

    def items(self, first: int) -> Iterator[Any]:
        try:
            file = self._open(self._path)
        except (OSError, ValueError) as error:  # pyarrow's errors of damaged files are ValueErrors
            raise RuntimeError(f"from_iterable: cannot read '{self._path}' as a Parquet file: {error}") from error
        with file:
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if first < rows:
                    table = file.read_row_group(group)
                    columns = {name: table.column(name).to_pylist() for name in table.column_names}
                    yield from islice(_Rows(columns), first, None)
                first = max(first - rows, 0)


class _Batched:
    """Items that are batches, as those of a DataLoader: arrays [batch, ...] in a dict or tuple."""

    def __init__(self, batches: Passes) -> None:
        self._batches, self.is_repeatable = batches, batches.is_repeatable

    def items(self, first: int) -> Iterator[Any]:
        return islice(self._samples(), first, None)

    def _samples(self) -> Iterator[Any]:
        for batch in self._batches.items(0):
            if isinstance(batch, Mapping):
                yield from _Rows(batch)
            elif isinstance(batch, (tuple, list)):
                yield from zip(*batch, strict=True)
            else:
                yield from batch
