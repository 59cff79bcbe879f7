"""How images are to be read; _image_files.py reads them when a source is made."""

from __future__ import annotations

from collections.abc import Mapping

from ..formats.containers import Dictionary
from ..variables import Record

IMAGE_TYPES = ("ImageDeserializer", "Base64ImageDeserializer")


def ImageDeserializer(filename: str, streams: Mapping[str, Record]) -> Dictionary:
    """Reads image files that are listed in a text file, with a label each. It needs Pillow.

    Samples are (channels, height, width), blue, green, red, from 0 to 255. All images of a stream have to be of one
    size after its transforms. Labels are sparse, one of as many as their stream says.

    Args:
        filename: the list, with rows ``path <tab> label`` or ``number of the sequence <tab> path <tab> label``;
            ``archive.zip@/path`` is a file in an archive, ``.../path`` one beside the list
        streams: name -> ``StreamDef``, one with the field 'image' and its transforms, one with the field 'label' and
            the number of labels as shape

    Errors: ValueError for other fields.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs, transforms
        >>> images = StreamDef("image", transforms=[transforms.scale(32, 32, 3)])
        >>> streams = StreamDefs(x=images, y=StreamDef("label", 10))
        >>> ImageDeserializer("map.txt", streams)["input"]["y"]
        {'labelDim': 10}
    """
    return _describe("ImageDeserializer", filename, streams)


def Base64ImageDeserializer(filename: str, streams: Mapping[str, Record]) -> Dictionary:
    """The same for images that stand in the list itself, encoded with base64, in rows ``label <tab> image``.

    Example:
        >>> from cntkjax.io import StreamDef, StreamDefs
        >>> Base64ImageDeserializer("map.txt", StreamDefs(x=StreamDef("image", transforms=[])))["type"]
        'Base64ImageDeserializer'
    """
    return _describe("Base64ImageDeserializer", filename, streams)


def _describe(kind: str, filename: str, streams: Mapping[str, Record]) -> Dictionary:
    inputs = {}
    for name, stream in streams.items():
        if stream.stream_alias == "image":
            # Files have the colours of a pixel side by side; a tensor has them one plane after the other.
            inputs[name] = {"transforms": [*stream.transforms, {"type": "Transpose"}]}
        elif stream.stream_alias == "label":
            inputs[name] = {"labelDim": stream.dim}
        else:
            raise ValueError(
                f"{kind}: stream '{name}' has the field {stream.stream_alias!r}; it has to be 'image' or 'label'"
            )
    if not any("transforms" in stream for stream in inputs.values()):
        raise ValueError(f"{kind}: needs a stream with the field 'image'")
    return Dictionary(type=kind, file=filename, input=inputs)
