"""The settings of a MinibatchSource, checked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._images import IMAGE_TYPES
from ._streams import DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, INFINITELY_REPEAT


class OptionalBool:
    """A switch that may be left to a default."""

    def __init__(self) -> None:
        self._value: bool | None = None

    def set(self, value: bool) -> None:
        """Turns it on or off."""
        self._value = value

    def reset(self) -> None:
        """Leaves it to the default again."""
        self._value = None

    def is_initialized(self) -> bool:
        """Whether it was set."""
        return self._value is not None

    def get(self) -> bool | None:
        """What it was set to, or None."""
        return self._value


class MinibatchSourceConfig:
    """What ``MinibatchSource`` is told, by the names of its arguments.

    Args:
        deserializers: where the data come from
        randomize: whether to shuffle; afterwards the windows say

    Example:
        >>> config = MinibatchSourceConfig([])
        >>> config.randomization_window_in_samples = 1000
        >>> config.validate()
        Traceback (most recent call last):
        RuntimeError: MinibatchSource: the randomization window is in chunks or in samples; to give it ...
    """

    def __init__(self, deserializers: Sequence[Any], randomize: bool = True) -> None:
        self.deserializers = [
            part
            for given in deserializers
            for part in (given.get("_deserializers", [given]) if isinstance(given, Mapping) else [given])
        ]
        self.max_samples = self.max_sweeps = INFINITELY_REPEAT
        self.randomization_window_in_chunks = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS if randomize else 0
        self.randomization_window_in_samples = self.randomization_seed = 0
        self.trace_level = 1
        self.is_multithreaded = OptionalBool()
        self.is_frame_mode_enabled = False
        self.truncation_length = self.max_errors = 0

    @property
    def randomize(self) -> bool:
        """Whether sequences are shuffled."""
        return bool(self.randomization_window_in_chunks or self.randomization_window_in_samples)

    def validate(self) -> None:
        """Errors: RuntimeError for settings that exclude each other."""
        if INFINITELY_REPEAT not in (self.max_samples, self.max_sweeps):
            raise RuntimeError("MinibatchSource: max_samples and max_sweeps exclude each other; give only one of them")
        if self.max_samples == 0:
            raise RuntimeError("MinibatchSource: max_samples is 0; give the number of samples to read")
        if self.is_frame_mode_enabled and self.truncation_length:
            raise RuntimeError(
                "MinibatchSource: frame_mode and truncation_length exclude each other; single samples need no cutting"
            )
        if self.randomization_window_in_chunks and self.randomization_window_in_samples:
            raise RuntimeError(
                "MinibatchSource: the randomization window is in chunks or in samples; to give it in samples, set "
                "randomization_window_in_chunks=0"
            )


def to_dictionary(config: MinibatchSourceConfig) -> dict[str, Any]:
    """Checked settings under the names that CNTK's readers know them by.

    Example:
        >>> sorted(to_dictionary(MinibatchSourceConfig([], randomize=False)))
        ['deserializers', 'frameMode', 'multiThreadedDeserialization', 'randomize', 'traceLevel']
    """
    config.validate()
    images = any(isinstance(d, Mapping) and d["type"] in IMAGE_TYPES for d in config.deserializers)
    multithreaded = config.is_multithreaded.get()
    settings = {
        "deserializers": config.deserializers,
        "traceLevel": config.trace_level,
        "frameMode": config.is_frame_mode_enabled,
        "multiThreadedDeserialization": images if multithreaded is None else multithreaded,
        "randomize": config.randomize,
    }
    if config.randomize:
        settings |= {
            "randomizationWindow": config.randomization_window_in_chunks or config.randomization_window_in_samples,
            "sampleBasedRandomizationWindow": not config.randomization_window_in_chunks,
            "randomizationSeed": config.randomization_seed,
        }
    if config.truncation_length:
        settings |= {"truncated": True, "truncationLength": config.truncation_length}
    return settings
