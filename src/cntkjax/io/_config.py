"""Settings of a MinibatchSource and their validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._streams import DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, INFINITELY_REPEAT
from ._user_deserializer import UserDeserializer
from .deserializer import is_multithreaded_by_default

Description = Mapping[str, Any] | UserDeserializer
"""What a deserializer is given as."""


class OptionalBool:
    """A flag that falls back to a default unless it is set."""

    def __init__(self) -> None:
        self._value: bool | None = None

    def set(self, value: bool) -> None:
        """Set the flag."""
        self._value = value

    def reset(self) -> None:
        """Revert to the default."""
        self._value = None

    def is_initialized(self) -> bool:
        """Whether the flag is set."""
        return self._value is not None

    def get(self) -> bool | None:
        """The value of the flag, or None if it is not set."""
        return self._value


class MinibatchSourceConfig:
    """The arguments of ``MinibatchSource``, as attributes.

    Args:
        deserializers: descriptions of the data
        randomize: whether to shuffle; later, set the randomization windows instead

    >>> config = MinibatchSourceConfig([])
    >>> config.randomization_window_in_samples = 1000
    >>> config.validate()
    Traceback (most recent call last):
    RuntimeError: MinibatchSource: the randomization window is in chunks or in samples; to set it ...
    """

    def __init__(self, deserializers: Sequence[Description], randomize: bool = True) -> None:
        self.deserializers: list[Description] = [
            part
            for description in deserializers
            for part in (
                description.get("_deserializers", [description]) if isinstance(description, Mapping) else [description]
            )
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
        """Check the settings.

        Errors: RuntimeError for settings that exclude each other.
        """
        if INFINITELY_REPEAT not in (self.max_samples, self.max_sweeps):
            raise RuntimeError("MinibatchSource: max_samples and max_sweeps exclude each other; pass only one of them")
        if self.max_samples == 0:
            raise RuntimeError("MinibatchSource: max_samples is 0; pass the number of samples to read")
        if self.is_frame_mode_enabled and self.truncation_length:
            raise RuntimeError(
                "MinibatchSource: frame_mode and truncation_length exclude each other; sequences of one sample cannot "
                "be truncated, so leave out truncation_length"
            )
        if self.randomization_window_in_chunks and self.randomization_window_in_samples:
            raise RuntimeError(
                "MinibatchSource: the randomization window is in chunks or in samples; to set it in samples, pass "
                "randomization_window_in_chunks=0"
            )


def to_dictionary(config: MinibatchSourceConfig) -> dict[str, Any]:
    """Validated settings under the names that CNTK's readers use.

    Errors: those of ``MinibatchSourceConfig.validate``.

    >>> sorted(to_dictionary(MinibatchSourceConfig([], randomize=False)))
    ['deserializers', 'frameMode', 'multiThreadedDeserialization', 'randomize', 'traceLevel']
    """
    config.validate()
    default = any(map(is_multithreaded_by_default, config.deserializers))
    multithreaded = config.is_multithreaded.get()
    settings = {
        "deserializers": config.deserializers,
        "traceLevel": config.trace_level,
        "frameMode": config.is_frame_mode_enabled,
        "multiThreadedDeserialization": default if multithreaded is None else multithreaded,
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
