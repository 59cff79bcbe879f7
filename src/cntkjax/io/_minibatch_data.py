"""The data of one stream of a minibatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import AnyArray, Shape
from ..core import Value
from ..engine.data.ragged import Ragged
from ..graph.arguments import public
from ..tensor import ArrayMixin
from ._streams import StreamInformation

if TYPE_CHECKING:
    from ..graph.variable import Edge


@public
class MinibatchData(ArrayMixin):
    """The sequences of one stream in a minibatch.

    Args:
        value: a ``Value``, or a ``Ragged``, whose sequences are stored end to end
        num_sequences: number of sequences
        num_samples: number of samples
        sweep_end: whether the minibatch contains the last sample of a sweep through the data

    >>> data = MinibatchData(Ragged(np.array([[1.], [2.], [3.]]), np.array([2, 1])), 2, 3, False)
    >>> data
    MinibatchData(data=Value([2 x 2 x 1], CPU), samples=3, seqs=2)
    >>> [sequence.ravel() for sequence in data.as_sequences()]
    [array([1., 2.]), array([3.])]
    """

    def __init__(self, value: Value | Ragged, num_sequences: int, num_samples: int, sweep_end: bool) -> None:
        self._value = value
        self._steps = 0
        self._shape: Shape | None = None
        self.number_of_sequences, self.number_of_samples, self.sweep_end = num_sequences, num_samples, sweep_end

    @staticmethod
    def from_ragged(
        info: StreamInformation, ragged: Ragged, sweep_end: bool, steps: int = 0
    ) -> MinibatchData:
        """The data of a stream, padded to the longest sequence, but at least to this many steps."""
        data = MinibatchData(ragged, ragged.num_sequences, ragged.num_samples, sweep_end)
        data._shape, data._steps = info.sample_shape, steps
        return data

    @property
    def ragged(self) -> Ragged:
        """The sequences end to end, and their lengths."""
        return self._value if isinstance(self._value, Ragged) else self._value.ragged

    @property
    def held(self) -> AnyArray:
        """The array that a ``Value`` was made of: how many samples it holds depends on the variable that it is fed to.

        Errors: AttributeError for other values, whose sequences are known.
        """
        if isinstance(self._value, Ragged):
            raise AttributeError("held")
        return self._value.held

    @property
    def data(self) -> Value:
        """The data as a ``Value``; another one may be assigned, to replace what a reader has read."""
        if not isinstance(self._value, Ragged):
            return self._value
        return Value.from_ragged(self._value, self._sample_shape, steps=self._steps)

    @data.setter
    def data(self, value: Value) -> None:
        if not isinstance(value, Value):
            raise TypeError(f"MinibatchData.data has to be a Value, not {type(value).__name__}: use cntk.Value(array)")
        self._value, self._shape, self._steps = value, None, 0

    @property
    def _sample_shape(self) -> Shape:
        if self._shape is not None:
            return self._shape
        data = self.ragged.data
        return data.shape[1:] if isinstance(data, np.ndarray) else (data.width,)

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return self.number_of_sequences

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return self.number_of_samples

    @property
    def end_of_sweep(self) -> bool:
        """Whether the minibatch contains the last sample of a sweep through the data."""
        return self.sweep_end

    @property
    def shape(self) -> Shape:
        """Shape of the padded data, [sequences, steps, *sample_shape]; without steps if there is no sequence axis."""
        if not isinstance(self._value, Ragged):
            return self._value.shape
        if self._value.lengths is None:
            return (self._value.num_samples, *self._sample_shape)
        steps = int(self._value.lengths.max(initial=self._steps))
        return (self._value.num_sequences, steps, *self._sample_shape)

    @property
    def is_sparse(self) -> bool:
        """Whether the samples are sparse."""
        return self.ragged.is_sparse

    @property
    def mask(self) -> np.ndarray:
        """2 where a sequence begins, 1 where it continues, 0 for padding.

        Shapes: int [sequences, steps].
        Errors: AttributeError if nothing is padded.
        """
        return self.data.mask

    def asarray(self) -> np.ndarray:
        """The data as an array, padded with zeros. Shapes: [sequences, steps, *sample_shape]."""
        return self.data.asarray()

    def as_sequences(self, variable: Edge | None = None) -> list[np.ndarray]:
        """The sequences one by one: arrays [steps, *sample_shape], or CSR matrices with a row for each step."""
        return self.data.as_sequences(variable)

    def __len__(self) -> int:
        return self.num_sequences

    def __repr__(self) -> str:
        """As it is printed."""
        return f"MinibatchData(data={self.data!r}, samples={self.num_samples}, seqs={self.num_sequences})"

    as_string = __repr__

class Minibatch(dict[Any, MinibatchData]):
    """What a source returns: {stream, or key of the input map: data}; a plain dict but for its errors.

    Errors: KeyError and AttributeError, which list the streams that there are, for one that is missing.

    >>> import cntkjax as C, numpy as np
    >>> C.io.MinibatchSourceFromData({"x": np.ones((2, 3), np.float32)}).next_minibatch(2)["features"]
    Traceback (most recent call last):
        ...
    KeyError: "a minibatch has no 'features'; its streams are x: write minibatch[source.streams.x]"
    """

    def __missing__(self, key: object) -> MinibatchData:
        raise KeyError(self._problem(repr(getattr(key, "name", "") or key)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(self._problem(f"attribute {name!r}"))

    def _problem(self, shown: str) -> str:
        names = [getattr(k, "name", "") or str(k) for k in self]
        if not names:
            return f"a minibatch has no {shown}: it is empty, since the data have ended"
        if not all(isinstance(k, StreamInformation) for k in self):
            return f"a minibatch has no {shown}; with this input_map it has {', '.join(names)}"
        streams = ", ".join(names)
        return f"a minibatch has no {shown}; its streams are {streams}: write minibatch[source.streams.{names[0]}]"
