"""MinibatchSource: minibatches from files, in order or shuffled, for one or several workers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from .._typing import Limit, Seed
from ..device import DeviceDescriptor
from ..engine.data.ragged import Ragged
from ..graph.arguments import public
from ..logging import TraceLevel, get_trace_level
from ..variables import Record
from ._base_source import BaseSource, parse_request
from ._batcher import Batcher, PrefetchingBatcher, Shard
from ._config import Description, MinibatchSourceConfig
from ._keyed_join import JoinedDeserializer
from ._minibatch_data import Minibatch, MinibatchData
from ._sampler import Sampler, no_data
from ._streams import (
    DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
    FULL_DATA_SWEEP,
    INFINITELY_REPEAT,
    StreamInformation,
)
from ._truncation import OpenSequences, TruncatedBatcher
from ._user_deserializer import UserDeserializer, UserDeserializerReader
from .deserializer import Deserializer, open_deserializer

_POSITION = "minibatchSourcePosition"  # the key in checkpoints


@public
class MinibatchSource(BaseSource):
    """Reads minibatches of whole sequences from one or several deserializers.

    The sequences of several deserializers are matched by their ids. The first deserializer decides the order; sequences
    that another one lacks are skipped.

    Args:
        deserializers: the result of ``CTFDeserializer`` or the like, a ``UserDeserializer``, or a list of these
        max_samples: the source ends after this many samples; ``FULL_DATA_SWEEP``: after one sweep
        max_sweeps: the source ends after this many sweeps through the data
        randomization_window_in_chunks: sequences are shuffled within a sliding window of this many chunks, which
            themselves come in a random order; the window is held in memory. Each image is a chunk. 0: no shuffling
        randomization_window_in_samples: the size of the window in samples; requires
            ``randomization_window_in_chunks=0``
        randomization_seed: seed of the shuffling, whose order is CNTK's; a sweep's order depends on nothing else but
            the data
        trace_level: accepted; messages are Python warnings
        multithreaded_deserializer: False: chunks are not prefetched in a second thread
        frame_mode: asserts that every sequence has one sample
        truncation_length: cuts sequences into segments of this length for truncated back-propagation through time; a
            minibatch consists of segments of this length, side by side
        randomize: whether to shuffle
        max_errors: accepted; the deserializer decides about malformed rows, see ``CTFDeserializer``

    Units: windows, sweeps and ``max_samples`` count the samples and sequences of all workers.
    Errors: RuntimeError for arguments that exclude each other, streams with the same name, and files that cannot be
        read; ValueError if the stream of the first deserializer is to be broadcast; TypeError for anything that is no
        deserializer.

    >>> from tempfile import NamedTemporaryFile
    >>> from cntkjax.io import CTFDeserializer, StreamDef, StreamDefs
    >>> with NamedTemporaryFile("w", suffix=".ctf") as file:
    ...     print("|x 1 2 3 |label 0:1", "|x 4 5 6 |label 2:1", sep="\\n", file=file, flush=True)
    ...     source = MinibatchSource(CTFDeserializer(file.name, StreamDefs(x=StreamDef("x", 3))), randomize=False)
    ...     source.next_minibatch(2)[source.streams.x]
    MinibatchData(data=Value([2 x 1 x 3], CPU), samples=2, seqs=2)
    """

    def __init__(
        self,
        deserializers: Description | Sequence[Description],
        max_samples: Limit = INFINITELY_REPEAT,
        max_sweeps: Limit = INFINITELY_REPEAT,
        randomization_window_in_chunks: Limit = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
        randomization_window_in_samples: Limit = 0,
        randomization_seed: Seed = 0,
        trace_level: TraceLevel | int = get_trace_level(),
        multithreaded_deserializer: bool | None = None,
        frame_mode: bool = False,
        truncation_length: Limit = 0,
        randomize: bool = True,
        max_errors: int = 0,
    ) -> None:
        if max_samples == FULL_DATA_SWEEP:
            max_samples, max_sweeps = INFINITELY_REPEAT, 1
        is_list = isinstance(deserializers, (list, tuple))
        config = MinibatchSourceConfig(deserializers if is_list else [deserializers])  # type: ignore[arg-type, list-item]
        config.max_samples, config.max_sweeps = max_samples, max_sweeps
        config.randomization_window_in_chunks = randomization_window_in_chunks if randomize else 0
        config.randomization_window_in_samples = randomization_window_in_samples if randomize else 0
        config.is_frame_mode_enabled, config.truncation_length = frame_mode, truncation_length
        config.validate()
        prefetch = multithreaded_deserializer is not False
        deserializer = _join([_open(description, frame_mode, prefetch) for description in config.deserializers])
        self._streams = Record(**{info.name: info for info in deserializer.streams})
        self._infinite = max_samples == max_sweeps
        self._frame_mode, self._truncation_length = frame_mode, truncation_length
        windows = config.randomization_window_in_chunks, config.randomization_window_in_samples
        self._sampler = Sampler(deserializer, config.randomize, *windows, randomization_seed)
        batcher = Batcher(self._sampler, max_sweeps, max_samples, prefetch)
        self._batcher = PrefetchingBatcher(batcher) if prefetch and deserializer.reads_per_minibatch else batcher
        self._truncated = self._truncated_batcher()
        self._reading = threading.RLock()  # threads take turns
        self._unfinished: tuple[int, OpenSequences] | None = None  # what the read that was interrupted began with

    def _finish(self) -> None:
        """Move back to where a read that failed or was interrupted began."""
        if self._unfinished is not None:
            position, open_sequences = self._unfinished
            self._batcher.seek(position)
            self._truncated.reopen(open_sequences)
            self._unfinished = None

    def _ended(self) -> bool:
        with self._reading:
            return self._batcher.ended and not any(self._truncated.open_sequences())

    def _truncated_batcher(self) -> TruncatedBatcher:
        return TruncatedBatcher(self._batcher, list(self._streams), self._truncation_length)

    @property
    def streams(self) -> Record:
        """The streams by name, in reverse order as in CNTK; minibatches have them as keys, in order."""
        return Record(**dict(reversed(self._streams.items())))

    def stream_infos(self) -> list[StreamInformation]:
        """All streams, in reverse order as in CNTK."""
        return [*reversed(self._streams.values())]

    def is_infinite(self) -> bool:
        """Whether the source never ends."""
        return self._infinite

    @property
    def num_samples(self) -> int:
        """Number of samples in one sweep; for some formats all data are read to count them."""
        return int(self._sampler.samples_per_chunk.sum())

    def end_at(self, max_samples: int | None = None, max_sweeps: int | None = None) -> None:
        """End the data here for now, as an epoch of CNTK's command line does.

        No sequence begins after this many samples, or sweeps, from the beginning of the data on, and no minibatch goes
        across the end of a sweep. Without arguments, or with others, the data go on.
        """
        with self._reading:
            self._finish()
            self._batcher.end_at(max_samples, max_sweeps)

    @property
    def truncation_length(self) -> int:
        """The length of the segments that sequences are cut into; 0 if they are whole."""
        return self._truncation_length

    def next_minibatch(
        self,
        minibatch_size_in_samples: int,
        input_map: Mapping[Any, StreamInformation] | None = None,
        device: DeviceDescriptor | None = None,
        num_data_partitions: int | None = None,
        partition_index: int | None = None,
    ) -> dict[Any, MinibatchData]:
        """Read the next minibatch, by stream or by the keys of ``input_map``; empty at the end of the data.

        Args:
            minibatch_size_in_samples: the minibatch has as many whole sequences as fit, but at least one. A sequence
                counts with its longest stream, or with the one that defines the minibatch size
            input_map: variable -> stream, for the streams that are needed
            device: accepted; data are moved when they are used
            num_data_partitions: number of workers that share the minibatch
            partition_index: rank of this worker

        Errors: ValueError for a size that is not positive or a rank outside of the partitions; RuntimeError for
            malformed data; KeyError for a stream in ``input_map`` that the source lacks.
        """
        if minibatch_size_in_samples == 0 and self._ended():
            return Minibatch()
        if minibatch_size_in_samples <= 0:
            raise ValueError(f"next_minibatch: the minibatch size has to be positive, not {minibatch_size_in_samples}")
        workers, rank = num_data_partitions or 1, partition_index or 0
        if not 0 <= rank < workers:
            raise ValueError(
                f"next_minibatch: partition_index {rank} is not one of {workers} partitions; pass 0 to {workers - 1}"
            )
        with self._reading:
            self._finish()
            self._unfinished = self._batcher.position, self._truncated.open_sequences()
            if self._truncation_length:
                slots = _share(minibatch_size_in_samples // self._truncation_length, workers, rank)
                data, sweep_end = self._truncated.next_batch(slots, (workers, rank))
            else:
                max_samples = _share(minibatch_size_in_samples, workers, rank)
                data, sweep_end = self._whole_sequences(max_samples, (workers, rank))
            self._unfinished = None
        steps = self._truncation_length or 0
        minibatch = Minibatch({
            info: MinibatchData.from_ragged(info, data[name], sweep_end, steps)
            for name, info in self._streams.items() if name in data
        })
        if not input_map or not minibatch:
            return minibatch
        return _select(minibatch, input_map)

    def get_next_minibatch(self, *sizes_and_device: int | DeviceDescriptor) -> dict[Any, MinibatchData]:
        """Read the next minibatch, with the arguments of CNTK's compiled module (see ``BaseSource``)."""
        samples, workers, rank, device = parse_request(sizes_and_device)
        return self.next_minibatch(samples, None, device, workers, rank)

    def _whole_sequences(self, max_samples: int, shard: Shard) -> tuple[dict[str, Ragged], bool]:
        parts, sweep_end = self._batcher.next_batch(max_samples, shard)
        if not parts:
            return {}, False
        data = {name: Ragged.concatenate([p.data[name].take(p.rows) for p in parts]) for name in self._streams}
        for name, ragged in data.items() if self._frame_mode else ():
            if ragged.num_samples != ragged.num_sequences:
                raise RuntimeError(
                    f"frame_mode: stream '{name}' has a sequence of {np.diff(ragged.offsets).max()} samples; "
                    "leave out frame_mode=True to read sequences"
                )
        return data, sweep_end

    @property
    def current_position(self) -> dict[str, int]:
        """The position in the data, as ``get_checkpoint_state`` returns it; assign one to go there."""
        return self.get_checkpoint_state()

    @current_position.setter
    def current_position(self, position: Mapping[str, int]) -> None:
        self.restore_from_checkpoint(position)

    def get_checkpoint_state(self) -> dict[str, int]:
        """The position in the data, for ``restore_from_checkpoint`` of a source with the same arguments."""
        with self._reading:
            self._finish()
            return {_POSITION: self._batcher.position}

    def restore_from_checkpoint(self, checkpoint: Mapping[str, int]) -> None:
        """Resume from the position of another source; the rest of truncated sequences is skipped.

        Errors: ValueError if that is no checkpoint of a minibatch source.
        """
        if _POSITION not in dict(checkpoint.items()):
            raise ValueError(
                f"Checkpoint misses required field {_POSITION}; it has {sorted(checkpoint)}. Pass the result of "
                "get_checkpoint_state() of a MinibatchSource"
            )
        position = checkpoint[_POSITION]
        if not isinstance(position, Integral) or int(position) < 0:
            raise ValueError(f"{_POSITION} has to be a whole number of at least 0, not {position!r}")
        with self._reading:
            self._unfinished = int(position), []
            self._finish()


def _share(number: int, workers: int, rank: int) -> int:
    """How many of the samples or slots of a minibatch are those of one worker: at least one."""
    quotient, remainder = divmod(number, workers)
    return max(quotient + (rank < remainder), 1)


def _open(description: object, frame_mode: bool, multithreaded: bool) -> Deserializer:
    if isinstance(description, UserDeserializer):
        return UserDeserializerReader(description)
    deserializer = open_deserializer(description, frame_mode)
    deserializer.multithreaded = multithreaded
    if not deserializer.num_chunks:
        raise RuntimeError(no_data(deserializer))
    return deserializer


def _join(deserializers: Sequence[Deserializer]) -> Deserializer:
    """All deserializers as one."""
    if not deserializers:
        raise ValueError("MinibatchSource: needs at least one deserializer")
    first = deserializers[0]
    if first.broadcasts:
        raise ValueError(
            f"Cannot expand utterances of the primary stream {first.streams[0].name}: pass its deserializer after that "
            "of the frames"
        )
    joined = first if len(deserializers) == 1 else JoinedDeserializer(deserializers)
    defining = [s.name for s in joined.streams if s.m_defines_mb_size]
    if len(defining) > 1:
        raise RuntimeError(
            f"Only one stream can define the minibatch size, but several do: {', '.join(defining)}. Set "
            "defines_mb_size=True for one of them"
        )
    return joined


def _select(
    minibatch: Mapping[StreamInformation, MinibatchData], input_map: Mapping[Any, StreamInformation]
) -> dict[Any, MinibatchData]:
    for key, info in input_map.items():
        if info not in minibatch:
            streams = ", ".join(info.name for info in minibatch)
            raise KeyError(
                f"next_minibatch: input_map has {info!r} for {key!r}, which is no stream of this source. The streams "
                f"are: {streams}. Write input_map={{variable: source.streams.{next(iter(minibatch)).name}}}"
            )
    return Minibatch({key: minibatch[info] for key, info in input_map.items()})
