"""Images that are listed in a text file, as sequences of one sample."""

from __future__ import annotations

import base64
import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .._threads import cores
from .._typing import FileName, Shape
from ..engine.data.ragged import Ragged, SparseRows
from ..formats.containers import Dictionary
from ..graph.arguments import public
from ..variables import Record
from ._buffers import Buffers
from ._ctf import CHUNK_SIZE
from ._ctf_index import MAX_ID, chunks_of
from ._files import open_binary
from ._image_decoding import decoded, pillow
from ._image_transforms import TransformRandom, as_transform
from ._number_parsing import parse_decimal
from ._resize import store_planes
from ._streams import StreamInformation
from .deserializer import ChunkedDeserializer, register_deserializer

MAX_PIXELS = 64 * 2**20
_WHOLE = re.compile(r"\+?(\d+)(?:\.0*)?", re.ASCII)  # pandas writes labels as 1.0 where some are missing
_BYTES_PER_PIXEL, _METADATA_BYTES = 8, 2**20  # a file may have this many: four channels of 16 bits, uncompressed
_MOST_THREADS = 8
_LIST_FOLDER = ".../"  # prefix of paths relative to the folder of the list


@public
def ImageDeserializer(filename: FileName, streams: Mapping[str, Record], max_pixels: int = MAX_PIXELS) -> Dictionary:
    """Read image files that are listed in a text file, with a label each. Requires Pillow.

    All images of a stream must have the same size after its transforms. Labels are sparse.

    Args:
        filename: the list, with rows ``path <tab> label`` or ``sequence id <tab> path <tab> label``. Write
            ``archive.zip@/path`` for a file in an archive, and ``.../path`` for one relative to the folder of the list
        streams: name -> ``StreamDef``: one with the field 'image' and its transforms, one with the field 'label' and
            the number of labels as shape
        max_pixels: larger images are errors, and are not decoded, by default 64 megapixels. Files may have 8 bytes
            for each of these pixels

    Shapes: an image is [channels, height, width], channels in the order blue, green, red; a label [labels].
    Units: intensities are 0 to 255.
    Errors: ValueError for other fields.

    >>> from cntkjax.io import StreamDef, StreamDefs, transforms
    >>> images = StreamDef("image", transforms=[transforms.scale(32, 32, 3)])
    >>> streams = StreamDefs(x=images, y=StreamDef("label", 10))
    >>> ImageDeserializer("map.txt", streams)["input"]["y"]
    {'labelDim': 10}
    """
    return _describe("ImageDeserializer", filename, streams, max_pixels)


@public
def Base64ImageDeserializer(
    filename: FileName, streams: Mapping[str, Record], max_pixels: int = MAX_PIXELS
) -> Dictionary:
    """Read images that are contained in the list itself, encoded with base64. Requires Pillow.

    Args:
        filename: the list, with rows ``label <tab> image`` or ``sequence id <tab> label <tab> image``
        streams, max_pixels: as for ``ImageDeserializer``

    Shapes: as for ``ImageDeserializer``.
    Errors: ValueError for other fields.

    >>> from cntkjax.io import StreamDef, StreamDefs
    >>> Base64ImageDeserializer("map.txt", StreamDefs(x=StreamDef("image", transforms=[])))["type"]
    'Base64ImageDeserializer'
    """
    return _describe("Base64ImageDeserializer", filename, streams, max_pixels)


def _describe(kind: str, filename: FileName, streams: Mapping[str, Record], max_pixels: int) -> Dictionary:
    inputs: dict[str, dict[str, Any]] = {}
    for name, stream in streams.items():
        if stream.stream_alias == "image":
            # In files the channels of a pixel are adjacent; in a tensor, channels are separate planes.
            inputs[name] = {"transforms": [*stream.transforms, {"type": "Transpose"}]}
        elif stream.stream_alias == "label":
            inputs[name] = {"labelDim": stream.dim}
        else:
            raise ValueError(
                f"{kind}: stream '{name}' has the field {stream.stream_alias!r}; it has to be 'image' or 'label'"
            )
    if not any("transforms" in stream for stream in inputs.values()):
        raise ValueError(f"{kind}: needs a stream with the field 'image', as in StreamDef('image', transforms=[...])")
    if max_pixels < 1:
        raise ValueError(f"{kind}: max_pixels has to be positive, not {max_pixels!r}")
    limit = {} if max_pixels == MAX_PIXELS else {"maxPixels": max_pixels}  # by default the description is CNTK's
    return Dictionary(type=kind, file=filename, input=inputs, **limit)


@dataclass(frozen=True)
class _Row:
    """One row of the list; ``image`` is a path, or the encoded image itself."""

    line: int
    key: int | str
    image: str
    label: int


@register_deserializer("ImageDeserializer", "Base64ImageDeserializer")
class ImageFiles(ChunkedDeserializer):
    """The images of a list, opened from the description that ``ImageDeserializer`` or ``Base64ImageDeserializer``
    returns. For shuffling, each image file is a chunk; of embedded images, chunks have a number of bytes.

    Errors: RuntimeError for a list or an image that cannot be read, with file and line; ImportError without Pillow.
    """

    reads_whole_chunks, reads_per_minibatch, multithreaded_by_default = False, True, True

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.path, self.embedded = description["file"], description["type"] == "Base64ImageDeserializer"
        self._has_names = not description.get("useNumericSequenceKeys", True)
        pillow()
        self._max_pixels = int(description.get("maxPixels", MAX_PIXELS))  # CNTK's descriptions have no limit
        inputs = description["input"]
        self._images = {name: stream["transforms"] for name, stream in inputs.items() if "transforms" in stream}
        self._labels = {name: int(stream["labelDim"]) for name, stream in inputs.items() if "labelDim" in stream}
        self._transforms = {name: [as_transform(t) for t in options] for name, options in self._images.items()}
        self._channels = {
            name: next((int(t["channels"]) for t in options if t["type"] == "Scale"), 3)
            for name, options in self._images.items()
        }
        self._random: dict[str, list[list[TransformRandom]]] = {name: [] for name in self._images}
        self._buffers = Buffers()
        self._rows, bytes_before = self._read_list()
        images = np.arange(len(bytes_before))
        self._chunks = chunks_of(np.array(bytes_before), CHUNK_SIZE) if self.embedded else images
        self.num_chunks = len(self._chunks) - 1
        self.streams = [
            StreamInformation(name, i, "dense" if name in self._images else "sparse", np.float32, self._shape(name))
            for i, name in enumerate(inputs)
        ]

    def _shape(self, name: str) -> Shape:
        """Shape of a sample: the size to which images are scaled, or else that of the first image."""
        if name in self._labels:
            return (self._labels[name],)
        resizing = next((t for t in reversed(self._images[name]) if t["type"] in ("Crop", "Scale")), None)
        if resizing is not None and resizing["type"] == "Scale":
            return int(resizing["channels"]), int(resizing["height"]), int(resizing["width"])
        return self._sample(name, self._rows[0], self._random_of(name, 0)).shape

    # ---- the list
    def _read_list(self) -> tuple[list[_Row], list[int]]:
        """The rows, and the number of characters before each and in total."""
        rows, bytes_before = [], [0]
        for row, size in self._parsed_rows():
            rows.append(row)
            bytes_before.append(bytes_before[-1] + size)
        if not rows:
            raise RuntimeError(f"{self.path}: the list is empty; write one image per row")
        return rows, bytes_before

    def _parsed_rows(self) -> Iterator[tuple[_Row, int]]:
        """The rows and their sizes."""
        columns = ("sequence id", "label", "image") if self.embedded else ("sequence id", "image", "label")
        try:
            with io.TextIOWrapper(open_binary(self.path), encoding="utf-8-sig", newline="") as file:
                for line, text in enumerate(file):
                    parts = text.rstrip("\r\n").split("\t")
                    if len(parts) not in (2, 3):
                        self._fail(
                            line, f"has {len(parts)} columns; write 2 or 3, separated by tabs: {', '.join(columns)}"
                        )
                    image, label = parts[-2:][::-1] if self.embedded else parts[-2:]
                    key = self._key(line, parts[0]) if len(parts) == 3 else line
                    if image.startswith(_LIST_FOLDER):
                        image = os.path.join(os.path.dirname(self.path), image[len(_LIST_FOLDER) :])
                    yield _Row(line, key, image, self._label(line, label)), len(text)
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeError(f"Could not open {self.path} for reading: {error}") from error

    def _label(self, line: int, text: str) -> int:
        label = self._integer(line, text, "label")
        for name, dim in self._labels.items():
            if not 0 <= label < dim:
                self._fail(
                    line,
                    f"label {label} is outside of stream {name!r}, which has {dim} labels; correct it, or the shape in "
                    "StreamDef",
                )
        return label

    def _key(self, line: int, text: str) -> int | str:
        return text if self._has_names else self._integer(line, text, "sequence id")

    def _integer(self, line: int, text: str, column: str) -> int:
        whole = _WHOLE.fullmatch(text.strip())
        number = parse_decimal(whole[1], MAX_ID) if whole else None
        if number is None:
            self._fail(
                line,
                f"cannot parse the {column} {text[:40]!r}: it is no number, or above {MAX_ID}; separate the columns "
                "by tabs",
            )
        return number

    def _fail(self, line: int, reason: str) -> NoReturn:
        raise RuntimeError(f"{self.path}, line {line + 1}: {reason}")

    # ---- sequences
    def chunk_sizes(self) -> np.ndarray:
        """Number of images in each chunk. Shapes: int64 [chunks]."""
        return np.diff(self._chunks)

    def sequence_keys(self) -> np.ndarray:
        """Sequence ids, by default line numbers; names if these are no numbers. Shapes: int64 or str [images]."""
        keys = [row.key for row in self._rows]
        if self._has_names:
            return np.array(keys, str)
        return np.array(keys, np.uint64).view(np.int64)  # as those of text files

    def sequence_lengths(self, chunk: int) -> np.ndarray:
        """1 for each image of a chunk. Shapes: int64 [images]."""
        return np.ones(self._chunks[chunk + 1] - self._chunks[chunk], np.int64)

    def num_samples(self, chunks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """1 for each image. Shapes: int64 [images]."""
        return np.ones(len(chunks), np.int64)

    def retain(self, chunks: Iterable[int]) -> None:
        """Images are read when they are needed; at the end of the data, frees memory that is kept for minibatches."""
        if not list(chunks):
            self._buffers.clear()

    def take(self, chunks: np.ndarray, indices: np.ndarray) -> Mapping[str, Ragged]:
        """Read and transform the images of a minibatch, with several threads."""
        rows = [self._rows[i] for i in self._chunks[chunks] + indices]
        lengths = np.ones(len(rows), np.int32)
        streams: dict[str, Ragged] = {name: Ragged(self._read_images(name, rows), lengths) for name in self._images}
        for name, dim in self._labels.items():
            labels = np.array([row.label for row in rows], np.int32)
            ones = np.ones(len(rows), np.float32)
            streams[name] = Ragged(SparseRows(np.arange(len(rows) + 1), labels, ones, dim), lengths)
        return streams

    def _read_images(self, name: str, rows: Sequence[_Row]) -> np.ndarray:
        """Shapes: float32 [images, channels, height, width]."""
        random = self._random[name]
        while len(random) < len(rows):
            random.append(self._random_of(name, len(random)))
        shape = next(s.sample_shape for s in self.streams if s.name == name)
        samples = self._buffers.empty((len(rows), *shape))

        unread, errors = iter(range(len(rows))), dict[int, Exception]()

        def read(_: int) -> None:
            while not errors and (index := next(unread, None)) is not None:
                try:
                    sample = self._sample(name, rows[index], random[index])
                    if sample.shape != shape:
                        self._fail(
                            rows[index].line,
                            f"the image is {sample.shape}, others are {shape}: scale them to one size, with "
                            "transforms.scale",
                        )
                    store_planes(sample.transpose(1, 2, 0), samples[index])
                except Exception as error:
                    errors[index] = error

        workers = min(cores(), _MOST_THREADS)
        with ThreadPoolExecutor(workers, "cntkjax-images") as threads:
            list(threads.map(read, range(workers)))
        if errors:
            raise errors[min(errors)]  # images are begun in order, so none before this one failed
        return samples

    def _random_of(self, name: str, index: int) -> list[TransformRandom]:
        """The random numbers of each transform for the image at this index of every minibatch.

        As in CNTK, they depend on nothing else, so that two lists of the same sequences, such as images and masks, are
        cropped at the same places.
        """
        return [TransformRandom(index) for _ in self._transforms[name]]

    def _sample(self, name: str, row: _Row, random: Sequence[TransformRandom]) -> np.ndarray:
        """A transformed image. Shapes: uint8 or float32 [channels, height, width]."""
        image = self._pixels(row, self._channels[name])
        for transform, random_of_transform in zip(self._transforms[name], random, strict=True):
            image = transform(image, random_of_transform)
        return image

    def _pixels(self, row: _Row, channels: int) -> np.ndarray:
        """Shapes: uint8 [height, width, channels]."""
        try:
            is_file = not self.embedded and "@" not in row.image
            return decoded(self._bytes(row), channels, self._max_pixels, is_file)
        except Exception as error:  # whatever damaged data lead a decoder to; without a line it helps nobody
            image_name = "the image in it" if self.embedded else repr(row.image)
            self._fail(row.line, f"Cannot open file {image_name}: {error}")

    def _bytes(self, row: _Row) -> bytes:
        """The encoded image."""
        if self.embedded:
            self._check_size(len(row.image) * 3 // 4)
            return base64.b64decode(row.image, validate=True)
        path, is_member, member = row.image.partition("@")
        with open_binary(path) as file:
            if not is_member:
                self._check_size(os.fstat(file.fileno()).st_size)
                return file.read()
            with zipfile.ZipFile(file) as archive:
                entry = archive.getinfo(member.lstrip("/\\"))
                self._check_size(entry.file_size)  # unpacking stops there, whatever the archive holds
                return archive.read(entry)

    def _check_size(self, size: int) -> None:
        """Raise for files of more bytes than an image has with as many pixels as are allowed."""
        limit = _BYTES_PER_PIXEL * self._max_pixels + _METADATA_BYTES
        if size > limit:
            raise ValueError(
                f"it has {size} bytes, more than {limit}, too many for an image of {self._max_pixels} pixels; set "
                "max_pixels of the deserializer"
            )
