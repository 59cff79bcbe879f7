"""Files of other kinds, which people give to readers of models by mistake."""

from __future__ import annotations

import codecs

from .wire import Buffer

_BEGINNINGS = {
    b"PK\x03\x04": "a zip archive, such as an .npz file or a model of PyTorch or Keras",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file, such as a model of Keras",
    b"\x93NUMPY": "an array of NumPy",
    b"\x1f\x8b": "a compressed (gzip) file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x80\x02": "a pickle of Python", b"\x80\x03": "a pickle of Python", b"\x80\x04": "a pickle of Python",
    b"\x80\x05": "a pickle of Python",
}
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f") | {127}
_ENOUGH = 512  # bytes that tell text from other data


def kind_of(data: Buffer) -> str:
    """What the bytes are, in words, if they are no file of CNTK's; otherwise "".

    >>> kind_of(b"|x 1 2 3"), kind_of(b"\\x08\\x01")
    ('a text file', '')
    """
    beginning = bytes(memoryview(data)[:_ENOUGH])
    for signature, kind in _BEGINNINGS.items():
        if beginning.startswith(signature):
            return kind
    if _CONTROL.intersection(beginning):
        return ""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(beginning)  # which may end within a character
    except UnicodeDecodeError:
        return ""
    return "a text file"


__all__ = ["kind_of"]
