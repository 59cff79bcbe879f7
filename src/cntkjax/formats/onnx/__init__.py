"""ONNX models: what CNTK has as functions, read and written.

Loaded when the first one is. The readers speak in public operations and layers, so that what they make is what a user
would write; nothing else in `formats` knows these.
"""

from .reading.model import load
from .writing.model import save

__all__ = ["load", "save"]
