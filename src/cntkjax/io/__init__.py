"""Minibatch sources and deserializers. ``deserializer`` shows how a file format is added."""

from ..core import Value
from ..device import use_default_device
from ..logging import TraceLevel, get_trace_level
from ..tensor import ArrayMixin
from ..variables import Record
from . import _uci, deserializer, transforms  # _uci: registers its format, which has no function in CNTK's API
from ._cbf import CBFDeserializer
from ._ctf import CTFDeserializer
from ._ctf_writer import _is_tensor, sequence_to_cntk_text_format
from ._htk import HTKFeatureDeserializer, HTKMLFBinaryDeserializer, HTKMLFDeserializer
from ._images import Base64ImageDeserializer, ImageDeserializer
from ._iterable_source import IterableSource, from_iterable
from ._lattices import LatticeDeserializer
from ._minibatch_data import MinibatchData
from ._source import MinibatchSource
from ._streams import (
    DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS,
    FULL_DATA_SWEEP,
    INFINITELY_REPEAT,
    StreamConfiguration,
    StreamDef,
    StreamDefs,
    StreamInformation,
)
from ._user_deserializer import UserDeserializer
from ._user_source import MinibatchSourceFromData, UserMinibatchSource

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
    "IterableSource",
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
    "from_iterable",
    "transforms",
    "sequence_to_cntk_text_format",
]

