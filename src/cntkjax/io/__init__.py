"""Readers: where minibatches come from."""

from ..core import Value
from ..device import use_default_device
from ..logging import TraceLevel, get_trace_level
from ..tensor import ArrayMixin
from ..variables import Record
from . import transforms
from ._images import Base64ImageDeserializer, ImageDeserializer
from ._minibatch import MinibatchData
from ._source import CBFDeserializer, CTFDeserializer, MinibatchSource
from ._speech import (
    HTKFeatureDeserializer,
    HTKMLFBinaryDeserializer,
    HTKMLFDeserializer,
    LatticeDeserializer,
)
from ._streams import (
    DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
    FULL_DATA_SWEEP,
    INFINITELY_REPEAT,
    StreamConfiguration,
    StreamDef,
    StreamDefs,
    StreamInformation,
)
from ._text import _is_tensor, sequence_to_cntk_text_format
from ._user import MinibatchSourceFromData, UserDeserializer, UserMinibatchSource

__all__ = [
    "DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS",
    "FULL_DATA_SWEEP",
    "INFINITELY_REPEAT",
    "Base64ImageDeserializer",
    "CBFDeserializer",
    "CTFDeserializer",
    "HTKFeatureDeserializer",
    "HTKMLFBinaryDeserializer",
    "HTKMLFDeserializer",
    "ImageDeserializer",
    "LatticeDeserializer",
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
    "transforms",
    "sequence_to_cntk_text_format",
]
