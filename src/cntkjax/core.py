"""Values: minibatches of data outside of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .engine.program import Result
from .engine.ragged import Ragged, SparseRows
from .graph.shape import Shape, shape_text
from .tensor import ArrayMixin


class Value(ArrayMixin):
    """Data of one variable for a minibatch.

    Shapes: [samples, *shape], or with sequences [sequences, longest, *shape] with a mask.
    """

    def __init__(self, batch: Any, seq_starts: Any = None, device: Any = None) -> None:
        made = _from_batch(batch)
        self.ragged: Ragged = made
        self._shape: Shape = () if isinstance(made.data, SparseRows) else made.data.shape[1:]
        if isinstance(made.data, SparseRows):
            self._shape = (made.data.width,)

    @staticmethod
    def from_ragged(ragged: Ragged, shape: Shape, dtype: Any = None) -> Value:
        """A value of samples that lie end to end; `shape` is that of one sample."""
        made = object.__new__(Value)
        made.ragged, made._shape = ragged, tuple(shape)
        return made

    @staticmethod
    def from_result(result: Result) -> Value:
        """The value that a program gave for a variable."""
        data = result.ragged()
        if not isinstance(data, Ragged):
            data = Ragged(data[None], None)
            made = Value.from_ragged(data, result.host.shape)
            made._static = True  # type: ignore[attr-defined]
            return made
        return Value.from_ragged(data, data.data.shape[1:])

    @property
    def is_sparse(self) -> bool:
        """True if the data are sparse."""
        return self.ragged.is_sparse

    @property
    def dtype(self) -> type:
        """NumPy type of the elements."""
        return self.ragged.dtype.type

    @property
    def shape(self) -> Shape:
        """Shape of the padded data, dynamic axes included."""
        if getattr(self, "_static", False):
            return self._shape
        ragged = self.ragged
        if ragged.lengths is None:
            return (ragged.num_samples, *self._shape)
        return (ragged.num_sequences, int(ragged.lengths.max(initial=0)), *self._shape)

    @property
    def is_valid(self) -> bool:
        """True: the data do not depend on a buffer that is used again."""
        return True

    @property
    def is_read_only(self) -> bool:
        """False."""
        return False

    @property
    def mask(self) -> np.ndarray:
        """2 where a sequence begins, 1 where it goes on, 0 in padding: [sequences, longest]; all 2 without sequences."""
        ragged = self.ragged
        if ragged.lengths is None:
            return np.full((ragged.num_samples, 1), 2, np.uint8)
        steps = np.arange(int(ragged.lengths.max(initial=0)))[None, :]
        mask = (steps < ragged.lengths[:, None]).astype(np.uint8)
        mask[:, :1] += np.ones((len(mask), 1), np.uint8) if ragged.starts is None else ragged.starts[:, None]
        return mask

    def as_sequences(self, variable: Any = None) -> list[Any]:
        """The sequences one by one: arrays [time, *shape], or CSR matrices with a row a step."""
        made = []
        for s in self.ragged.sequences():
            made.append(s.to_csr() if isinstance(s, SparseRows) else np.asarray(s).reshape(-1, *self._shape))
        return made

    def asarray(self) -> np.ndarray:
        """The data as an array, sequences padded with zeros."""
        if getattr(self, "_static", False):
            return np.asarray(self.ragged.data)[0]
        data = self.ragged.data
        if isinstance(data, SparseRows):
            data = data.to_dense().reshape(-1, *self._shape)
        if self.ragged.lengths is None:
            return np.asarray(data)
        padded = np.zeros(self.shape, data.dtype)
        padded[self.mask != 0] = data
        return padded

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Value({shape_text(self.shape)}, CPU)"


def _from_batch(batch: Any) -> Ragged:
    if isinstance(batch, (list, tuple)):
        return Ragged.from_sequences([b if hasattr(b, "tocsr") else np.asarray(b) for b in batch])
    if hasattr(batch, "tocsr"):
        return Ragged(SparseRows.from_csr(batch), None)
    return Ragged(np.asarray(batch), None)


def asarray(variable: Any, value: Any, dtype: Any = None) -> Any:
    """A value as a list of sequences or an array, as its variable's axes say."""
    if any(a.is_sequence_axis for a in variable.dynamic_axes):
        return value.as_sequences(variable)
    return value.asarray()
