"""Minibatches of files, and those of whole utterances as HTKMLFReader makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...device import DeviceDescriptor
from ...engine.data.ragged import Ragged
from ...io import MinibatchData, MinibatchSource, StreamInformation
from ...io._minibatch_data import Minibatch
from ..network import LATTICES

_AHEAD = 90_000  # frames that are read ahead to fill gaps: a quarter of an hour, as in a chunk


class FileSource(MinibatchSource):
    """Minibatches of files.

    `has_steps`: whether they are of sequences; False: of single samples. `are_full`: smaller ones are left out.
    `on_read`: called with each minibatch.
    """

    has_steps, are_full = True, False
    on_read: Callable[[Mapping[Any, MinibatchData]], object] = staticmethod(lambda minibatch: None)

    def keys(self) -> list[str]:
        """The keys of the sequences, in the order of the data; none for pieces of sequences."""
        if self._truncation_length:
            return []
        keys = self._sampler.deserializer.sequence_keys()
        return [str(key).partition("\0")[0] for key in keys]  # of frames: those of their utterances

    def next_minibatch(
        self, minibatch_size_in_samples: int, input_map: Mapping[Any, StreamInformation] | None = None,
        device: DeviceDescriptor | None = None, num_data_partitions: int | None = None,
        partition_index: int | None = None,
    ) -> dict[Any, MinibatchData]:
        """The next minibatch; empty at the end."""
        size, how = minibatch_size_in_samples, (device, num_data_partitions, partition_index)
        minibatch = self._sequences(size, *how)
        while minibatch and self.are_full and max(data.num_samples for data in minibatch.values()) < size:
            minibatch = self._sequences(size, *how)
        if not self.has_steps:
            minibatch = Minibatch({
                info: MinibatchData.from_ragged(info, Ragged(data.ragged.data, None), data.end_of_sweep)
                for info, data in minibatch.items()
            })
        self.on_read(minibatch)
        if not input_map or not minibatch:
            return minibatch
        return Minibatch({key: minibatch[info] for key, info in input_map.items()})

    def _sequences(self, size: int, *how: Any) -> dict[Any, MinibatchData]:
        return super().next_minibatch(size, None, *how)


class UtteranceSource(FileSource):
    """Minibatches of some utterances side by side, whatever size is asked for, as CNTK's log of Speech/LSTM shows.

    Behind short ones follow those of the epoch that are no longer than the rest of the longest one. Checkpoints are
    those of the ends of epochs.

    `together`: how many are side by side. `options`: those of MinibatchSource.
    """

    def __init__(self, deserializers: Sequence[Any], together: int, **options: Any) -> None:
        super().__init__(deserializers, **options)
        self._together = together
        self._ahead: list[dict[Any, MinibatchData]] = []
        self._ends_sweep = False  # one that was read

    def _sequences(self, size: int, *how: Any) -> dict[Any, MinibatchData]:
        lengths = [_length(each) for each in self._ahead]
        while sum(lengths) < _AHEAD and (utterance := super()._sequences(1, *how)):
            self._ahead.append(utterance)
            self._ends_sweep |= any(data.end_of_sweep for data in utterance.values())
            lengths.append(_length(utterance))
        if not lengths:
            return Minibatch()
        places = side_by_side(lengths, self._together)
        parts = [self._ahead[place] for place in places]
        self._ahead = [each for place, each in enumerate(self._ahead) if place not in places]
        ends_sweep = self._ends_sweep and not self._ahead
        self._ends_sweep &= not ends_sweep
        return Minibatch({
            info: MinibatchData.from_ragged(info, Ragged.concatenate([part[info].ragged for part in parts]), ends_sweep)
            for info in parts[0]
        })


def side_by_side(lengths: Sequence[int], slots: int) -> list[int]:
    """The places of the next utterances: the first ones, and those that fit behind them in a slot.

    >>> side_by_side([138, 328, 128, 158, 228], 2)
    [0, 1, 2]
    """
    used, places = list(lengths[:slots]), list(range(min(slots, len(lengths))))
    for place in range(len(places), len(lengths)):
        slot = next((i for i, n in enumerate(used) if n + lengths[place] <= max(used)), None)
        if slot is not None:
            used[slot] += lengths[place]
            places.append(place)
    return places


def _length(utterance: Mapping[Any, MinibatchData]) -> int:
    return max(data.num_samples for info, data in utterance.items() if info.name != LATTICES)


__all__ = ["FileSource", "UtteranceSource", "side_by_side"]
