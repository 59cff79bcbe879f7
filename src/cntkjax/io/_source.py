"""MinibatchSource: minibatches from files, in order or shuffled, for one or several workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.data.ragged import Ragged
from ..formats.containers import Dictionary
from ..logging import TraceLevel, get_trace_level
from ..variables import Record
from . import _speech
from ._cbf import CBFFile
from ._config import MinibatchSourceConfig
from ._ctf import CTFFile
from ._cursor import Ahead, Cursor
from ._image_files import ImageFiles
from ._images import IMAGE_TYPES
from ._join import Joined
from ._minibatch import MinibatchData
from ._order import Order
from ._streams import (
    DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
    FULL_DATA_SWEEP,
    INFINITELY_REPEAT,
    Deserializer,
    Source,
    StreamInformation,
    share_of,
)
from ._truncation import Slots
from ._user import UserChunks, UserDeserializer

_READERS = {"CNTKTextFormatDeserializer": CTFFile, "CNTKBinaryFormatDeserializer": CBFFile}
_POSITION = "minibatchSourcePosition"


def CTFDeserializer(filename: str, streams: Mapping[str, Record]) -> Dictionary:
    """Reads CNTK text format: rows of ``[sequence id] |stream values |sparse_stream index:value ... |# comment``.

    Rows with the same id, and rows without one that follow them, are a sequence. If the first row has no id, each row
    is a sequence by itself. The options ``chunkSizeInBytes``, ``maxErrors`` (how many faults of rows are left out with
    a warning; a row without any good sample is one more) and ``skipSequenceIds`` are items of the result.

    Args:
        filename: the file
        streams: name -> ``StreamDef``, as ``StreamDefs`` gives it; the field of each is its name in the file

    Errors: ValueError if a stream has no field; AttributeError if it has no shape.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> streams = StreamDefs(query=StreamDef("S0", 943, True), labels=StreamDef("S2", 129, True))
        >>> reader = CTFDeserializer("atis.train.ctf", streams)
        >>> reader["chunkSizeInBytes"] = 2**20
    """
    for name, stream in streams.items():
        if not stream.stream_alias:
            raise ValueError(f"CTFDeserializer: stream name for key {name} must be specified")
        if not isinstance(stream.dim, int):
            raise NotImplementedError(
                f"CTFDeserializer: the shape of stream {name} has to be one number, not {stream.dim!r}"
            )
    return Dictionary(type="CNTKTextFormatDeserializer", file=filename, input=_definitions(streams))


def CBFDeserializer(filename: str, streams: Mapping[str, Record] = {}) -> Dictionary:
    """Reads CNTK binary format.

    Args:
        filename: the file
        streams: name -> ``StreamDef``; without any, all streams of the file under their own names

    Example:
        >>> CBFDeserializer("train.cbf")["type"]
        'CNTKBinaryFormatDeserializer'
    """
    named = {name: stream.updated_with(stream_alias=stream.stream_alias or name) for name, stream in streams.items()}
    return Dictionary(type="CNTKBinaryFormatDeserializer", file=filename, input=_definitions(named))


def _definitions(streams: Mapping[str, Record]) -> dict[str, dict]:
    return {
        name: {
            "alias": stream.stream_alias,
            "format": "sparse" if stream.is_sparse else "dense",
            "dim": stream.dim,
            "definesMBSize": stream.defines_mb_size,
        }
        for name, stream in streams.items()
    }


class MinibatchSource(Source):
    """Minibatches of whole sequences from one or several deserializers, whose sequences are then matched by their ids.

    Args:
        deserializers: what e.g. ``CTFDeserializer`` gives, a ``UserDeserializer``, or a list of them. The first decides
            the order; sequences that another one doesn't have are left out
        max_samples: ends after so many samples; ``FULL_DATA_SWEEP``: after one sweep
        max_sweeps: ends after so many sweeps through the data
        randomization_window_in_chunks: among how many chunks, of those in a random order, a sequence moves; so many
            are in memory. Of images each is a chunk. 0: no shuffling
        randomization_window_in_samples: the same in samples; the window in chunks has to be 0 then
        randomization_seed: the order of a sweep depends on nothing else but the data, and is CNTK's
        trace_level: accepted; messages are Python warnings
        multithreaded_deserializer: False: chunks are not read ahead in a second thread
        frame_mode: promises that every sequence has one sample
        truncation_length: cuts sequences into pieces of this length, and so many pieces side by side make a minibatch
            (truncated back-propagation through time)
        randomize: whether to shuffle
        max_errors: accepted; faulty rows are the deserializer's, see ``CTFDeserializer``

    Errors: RuntimeError for arguments that exclude each other, streams of the same name, files that cannot be read;
        ValueError if the first deserializer is one whose stream is to be broadcast.

    Example:
        >>> from tempfile import NamedTemporaryFile
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> with NamedTemporaryFile("w", suffix=".ctf") as file:
        ...     print("|x 1 2 3 |label 0:1", "|x 4 5 6 |label 2:1", sep="\\n", file=file, flush=True)
        ...     source = MinibatchSource(CTFDeserializer(file.name, StreamDefs(x=StreamDef("x", 3))), randomize=False)
        ...     source.next_minibatch(2)[source.streams.x]
        MinibatchData(data=Value([2 x 1 x 3], CPU), samples=2, seqs=2)
    """

    def __init__(
        self,
        deserializers: Any,
        max_samples: int = INFINITELY_REPEAT,
        max_sweeps: int = INFINITELY_REPEAT,
        randomization_window_in_chunks: int = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
        randomization_window_in_samples: int = 0,
        randomization_seed: int = 0,
        trace_level: TraceLevel | int = get_trace_level(),
        multithreaded_deserializer: bool | None = None,
        frame_mode: bool = False,
        truncation_length: int = 0,
        randomize: bool = True,
        max_errors: int = 0,
    ) -> None:
        if max_samples == FULL_DATA_SWEEP:
            max_samples, max_sweeps = INFINITELY_REPEAT, 1
        config = MinibatchSourceConfig(deserializers if isinstance(deserializers, (list, tuple)) else [deserializers])
        config.max_samples, config.max_sweeps = max_samples, max_sweeps
        config.randomization_window_in_chunks = randomization_window_in_chunks if randomize else 0
        config.randomization_window_in_samples = randomization_window_in_samples if randomize else 0
        config.is_frame_mode_enabled, config.truncation_length = frame_mode, truncation_length
        config.validate()
        parts = [_deserializer(given, frame_mode) for given in config.deserializers]
        if not parts:
            raise ValueError("MinibatchSource: needs at least one deserializer")
        if parts[0].expands:
            raise ValueError(
                f"Cannot expand utterances of the primary stream {parts[0].streams[0].name}: give its deserializer "
                "behind that of the frames"
            )
        joined = parts[0] if len(parts) == 1 else Joined(parts)
        defining = [s.name for s in joined.streams if s.m_defines_mb_size]
        if len(defining) > 1:
            raise RuntimeError(f"Only one stream can define the minibatch size, but several do: {', '.join(defining)}")
        self._streams = Record(**{info.name: info for info in joined.streams})
        self._infinite = max_samples == max_sweeps
        self._frame_mode, self._truncation_length = frame_mode, truncation_length
        windows = config.randomization_window_in_chunks, config.randomization_window_in_samples
        order = Order(joined, config.randomize, *windows, randomization_seed)
        ahead = multithreaded_deserializer is not False
        cursor = Cursor(order, max_sweeps, max_samples, ahead)
        self._cursor = Ahead(cursor) if ahead and joined.by_minibatch else cursor
        self._slots = self._new_slots()

    def _new_slots(self) -> Slots:
        return Slots(self._cursor, list(self._streams), self._truncation_length)

    @property
    def streams(self) -> Record:
        """The streams by name, the last one first, as in CNTK; each is a key of the minibatches, there in order."""
        return Record(**dict(reversed(self._streams.items())))

    def stream_infos(self) -> list[StreamInformation]:
        """All streams, the last one first."""
        return [*reversed(self._streams.values())]

    def is_infinite(self) -> bool:
        """Whether it never ends."""
        return self._infinite

    def next_minibatch(
        self,
        minibatch_size_in_samples: int,
        input_map: Mapping[Any, StreamInformation] | None = None,
        device: Any = None,
        num_data_partitions: int | None = None,
        partition_index: int | None = None,
    ) -> dict[Any, MinibatchData]:
        """The next minibatch by stream, or by the keys of ``input_map``; empty at the end of the data.

        Args:
            minibatch_size_in_samples: as many whole sequences as fit, but at least one; of a sequence the longest
                stream counts, or the one that defines the minibatch size
            input_map: variable -> stream, for the streams that are wanted
            device: accepted; data are moved when they are used
            num_data_partitions: number of workers that share the minibatch
            partition_index: which of them this one is

        Errors: ValueError for a size that is not positive or a partition that is not there; RuntimeError for bad data.
        """
        if minibatch_size_in_samples <= 0:
            raise ValueError(f"next_minibatch: the minibatch size has to be positive, not {minibatch_size_in_samples}")
        workers, rank = num_data_partitions or 1, partition_index or 0
        if not 0 <= rank < workers:
            raise ValueError(f"next_minibatch: partition_index {rank} is not one of {workers} partitions")
        whole, rest = divmod(minibatch_size_in_samples, workers)
        own = max(whole + (rank < rest), 1)
        if self._truncation_length:
            slots = max(own // self._truncation_length, 1)
            data, sweep_end = self._slots.take(slots, (workers, rank))
        else:
            data, sweep_end = self._whole_sequences(own, (workers, rank))
        time = self._truncation_length or None
        minibatch = {
            i: MinibatchData.of(i, data[name], sweep_end, time) for name, i in self._streams.items() if name in data
        }
        if not input_map or not minibatch:
            return minibatch
        return {key: minibatch[info] for key, info in input_map.items()}

    def get_next_minibatch(self, *sizes_and_device: Any) -> dict[Any, MinibatchData]:
        samples, parts, index, device = share_of(sizes_and_device)
        return self.next_minibatch(samples, None, device, parts, index)

    def _whole_sequences(self, budget: int, share: tuple[int, int]) -> tuple[dict[str, Ragged], bool]:
        pieces, sweep_end = self._cursor.take(budget, share)
        if not pieces:
            return {}, False
        data = {name: Ragged.concatenate([p.data[name].take(p.choice) for p in pieces]) for name in self._streams}
        for name, ragged in data.items() if self._frame_mode else ():
            if ragged.num_samples != ragged.num_sequences:
                raise RuntimeError(
                    f"frame_mode: stream '{name}' has a sequence of {np.diff(ragged.offsets).max()} samples; "
                    "leave out frame_mode=True to read sequences"
                )
        return data, sweep_end

    @property
    def current_position(self) -> dict[str, int]:
        """How far it has come; the same as a checkpoint."""
        return self.get_checkpoint_state()

    @current_position.setter
    def current_position(self, position: Mapping[str, int]) -> None:
        self.restore_from_checkpoint(position)

    def get_checkpoint_state(self) -> dict[str, int]:
        """What ``restore_from_checkpoint`` of a source with the same arguments needs to go on from here."""
        return {_POSITION: self._cursor.position}

    def restore_from_checkpoint(self, checkpoint: Mapping[str, int]) -> None:
        """Goes to where another source was. Of truncated sequences what was already begun is skipped.

        Errors: ValueError if that is no checkpoint of a source.
        """
        if _POSITION not in dict(checkpoint.items()):
            raise ValueError(f"Checkpoint misses required field {_POSITION}; it has {sorted(checkpoint)}")
        self._cursor.seek(int(checkpoint[_POSITION]))
        self._slots = self._new_slots()


def _deserializer(given: Any, frame_mode: bool) -> Deserializer:
    if isinstance(given, UserDeserializer):
        return UserChunks(given)
    if isinstance(given, Mapping) and given.get("type") in _speech.READERS:
        return _speech.READERS[given["type"]](given, frame_mode)
    if isinstance(given, Mapping) and given.get("type") in _READERS:
        return _READERS[given["type"]](given)
    if isinstance(given, Mapping) and given.get("type") in IMAGE_TYPES:
        return ImageFiles(given)
    raise TypeError(
        f"MinibatchSource: {given!r} is no deserializer; give what CTFDeserializer, CBFDeserializer or "
        "ImageDeserializer makes, or a UserDeserializer"
    )
