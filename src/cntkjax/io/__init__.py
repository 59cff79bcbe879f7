"""Readers: where minibatches come from."""

from cntkjax.variables import Record

from ._minibatch import MinibatchData
from ._source import CBFDeserializer, CTFDeserializer, MinibatchSource
from ._streams import (
    DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
    FULL_DATA_SWEEP,
    INFINITELY_REPEAT,
    StreamConfiguration,
    StreamDef,
    StreamDefs,
    StreamInformation,
)
from ._text import sequence_to_cntk_text_format
from ._user import MinibatchSourceFromData, UserDeserializer, UserMinibatchSource

__all__ = [
    "DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS",
    "FULL_DATA_SWEEP",
    "INFINITELY_REPEAT",
    "CBFDeserializer",
    "CTFDeserializer",
    "MinibatchData",
    "MinibatchSource",
    "MinibatchSourceFromData",
    "Record",
    "StreamConfiguration",
    "StreamDef",
    "StreamDefs",
    "StreamInformation",
    "UserDeserializer",
    "UserMinibatchSource",
    "sequence_to_cntk_text_format",
]
