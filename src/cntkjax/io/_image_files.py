"""Images that a text file lists, as sequences of one sample."""

from __future__ import annotations

import base64
import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from ..engine.data.ragged import Ragged, SparseRows
from ._ctf import CHUNK_SIZE
from ._ctf_index import chunks_of
from ._pixels import Draws, transform_of
from ._streams import Deserializer, StreamInformation

_HERE = ".../"  # the folder of the list


@dataclass(frozen=True)
class _Row:
    """One row of the list: a path, or the image itself."""

    line: int
    key: int
    image: str
    label: int


class ImageFiles(Deserializer):
    """The images of a list, by the configuration that ``ImageDeserializer`` or ``Base64ImageDeserializer`` makes.

    For the order, each image is a chunk, or so many bytes of images in the list.

    Errors: RuntimeError for a list or an image that cannot be read, with the file and the line; ImportError without
    Pillow.
    """

    in_chunks, by_minibatch = False, True

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self.path, self.embedded = configuration["file"], configuration["type"] == "Base64ImageDeserializer"
        _pillow()
        self._images = {n: s["transforms"] for n, s in configuration["input"].items() if "transforms" in s}
        self._labels = {n: int(s["labelDim"]) for n, s in configuration["input"].items() if "labelDim" in s}
        self._transforms = {n: [transform_of(t) for t in given] for n, given in self._images.items()}
        self._channels = {
            n: next((int(t["channels"]) for t in given if t["type"] == "Scale"), 3) for n, given in self._images.items()
        }
        self._draws: dict[str, list[list[Draws]]] = {name: [] for name in self._images}
        bytes_before = [0]
        self._rows = []
        for row, size in self._parsed():
            self._rows.append(row)
            bytes_before.append(bytes_before[-1] + size)
        if not self._rows:
            raise RuntimeError(f"{self.path}: the list is empty")
        images = np.arange(len(bytes_before))
        self._chunks = chunks_of(np.array(bytes_before), CHUNK_SIZE) if self.embedded else images
        self.num_chunks = len(self._chunks) - 1
        self.streams = [
            StreamInformation(name, i, "dense" if name in self._images else "sparse", np.float32, self._shape(name))
            for i, name in enumerate(configuration["input"])
        ]

    def _shape(self, name: str) -> tuple[int, ...]:
        """Of a sample: what the scaling says, or what the first image comes out as."""
        if name in self._labels:
            return (self._labels[name],)
        scale = next((t for t in reversed(self._images[name]) if t["type"] in ("Crop", "Scale")), None)
        if scale is not None and scale["type"] == "Scale":
            return int(scale["channels"]), int(scale["height"]), int(scale["width"])
        return self._sample(name, self._rows[0], self._draws_of(name, 0)).shape

    # ---- the list
    def _parsed(self) -> Iterator[tuple[_Row, int]]:
        """The rows and their bytes."""
        columns = ("number of the sequence", "label", "image") if self.embedded else ("number", "image", "label")
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                for line, text in enumerate(file):
                    parts = text.rstrip("\r\n").split("\t")
                    if len(parts) not in (2, 3):
                        self._fail(line, f"{len(parts)} columns with tabs between them; 2 or 3 belong there: {columns}")
                    image, label = parts[-2:][::-1] if self.embedded else parts[-2:]
                    key = self._number(line, parts[0], columns[0]) if len(parts) == 3 else line
                    if image.startswith(_HERE):
                        image = os.path.join(os.path.dirname(self.path), image[len(_HERE) :])
                    yield _Row(line, key, image, self._label(line, label)), len(text)
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeError(f"Could not open {self.path} for reading: {error}") from error

    def _label(self, line: int, text: str) -> int:
        number = self._number(line, text, "label")
        for name, dim in self._labels.items():
            if not 0 <= number < dim:
                self._fail(line, f"label {number} is outside of stream {name!r}, which has {dim} labels")
        return number

    def _number(self, line: int, text: str, what: str) -> int:
        if not text.strip().isdecimal():
            self._fail(line, f"cannot parse the {what} {text[:40]!r}: it is no number")
        return int(text)

    def _fail(self, line: int, reason: str) -> NoReturn:
        raise RuntimeError(f"{self.path}, line {line + 1}: {reason}")

    # ---- sequences
    def sizes(self) -> np.ndarray:
        return np.diff(self._chunks)

    def keys(self) -> np.ndarray:
        wrapped = [row.key % 2**64 for row in self._rows]  # as of text files, whose numbers may be as large
        return np.array(wrapped, np.uint64).view(np.int64)

    def lengths(self, chunk: int) -> np.ndarray:
        return np.ones(self._chunks[chunk + 1] - self._chunks[chunk], np.int64)

    def samples(self, chunk: np.ndarray, place: np.ndarray) -> np.ndarray:
        return np.ones(len(chunk), np.int64)

    def hold(self, chunks: Iterable[int]) -> None:
        """Images are read when they come."""

    def take(self, chunk: np.ndarray, place: np.ndarray) -> Mapping[str, Ragged]:
        rows = [self._rows[i] for i in self._chunks[chunk] + place]
        lengths = np.ones(len(rows), np.int32)
        made: dict[str, Ragged] = {}
        for name in self._images:
            while len(self._draws[name]) < len(rows):
                self._draws[name].append(self._draws_of(name, len(self._draws[name])))
            samples = list(self._threads.map(self._sample, [name] * len(rows), rows, self._draws[name]))
            wanted = next(s.sample_shape for s in self.streams if s.name == name)
            for row, sample in zip(rows, samples, strict=True):
                if sample.shape != wanted:
                    self._fail(row.line, f"the image is {sample.shape}, others are {wanted}: scale them to one size")
            made[name] = Ragged(np.stack(samples), lengths)
        for name, dim in self._labels.items():
            indices = np.array([row.label for row in rows], np.int32)
            values = np.ones(len(rows), np.float32)
            made[name] = Ragged(SparseRows(np.arange(len(rows) + 1), indices, values, dim), lengths)
        return made

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(os.cpu_count() or 1, 8), "cntkjax-images")

    def _draws_of(self, name: str, number: int) -> list[Draws]:
        """The random numbers of each transform for the image that stands in this place of every minibatch, as in CNTK:
        two lists of the same sequences, as of images and masks, are cut in the same places.
        """
        return [Draws(number) for _ in self._transforms[name]]

    def _sample(self, name: str, row: _Row, draws: Sequence[Draws]) -> np.ndarray:
        """An image after all transforms: float32 [channels, height, width]."""
        image = self._pixels(row, self._channels[name])
        for transform, own in zip(self._transforms[name], draws, strict=True):
            image = transform(image, own)
        return np.ascontiguousarray(image, np.float32)

    def _pixels(self, row: _Row, channels: int) -> np.ndarray:
        try:
            with _pillow().open(io.BytesIO(self._bytes(row))) as image:
                if channels == 1:
                    return np.asarray(image.convert("L"))[:, :, None]
                return np.asarray(image.convert("RGB"))[:, :, ::-1]
        except (OSError, ValueError, KeyError, SyntaxError, zipfile.BadZipFile) as error:
            what = "the image in it" if self.embedded else repr(row.image)
            self._fail(row.line, f"Cannot open file {what}: {error}")

    def _bytes(self, row: _Row) -> bytes:
        if self.embedded:
            return base64.b64decode(row.image, validate=True)
        archive, inside, member = row.image.partition("@")
        if not inside:
            with open(row.image, "rb") as file:
                return file.read()
        with zipfile.ZipFile(archive) as files:
            return files.read(member.lstrip("/\\"))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as missing:
        raise ImportError("reading images needs Pillow: pip install 'cntkjax[images]'") from missing
    return Image


__all__ = ["ImageFiles"]
