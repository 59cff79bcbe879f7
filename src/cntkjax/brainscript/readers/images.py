"""ImageReader, and the deserializers of images with their transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...configuration import Block
from ...io import Base64ImageDeserializer, ImageDeserializer, StreamDef, StreamDefs, transforms

_INTERPOLATIONS = ("nearest", "linear", "cubic", "lanczos")


def image_reader(block: Block) -> Sequence[Any]:
    """The deserializer of an ImageReader block, whose blocks have the sizes of images or the number of labels."""
    return [ImageDeserializer(block.existing_file("file"), _streams(
        block.inner(), lambda stream: [step for make in _TRANSFORMS.values() for step in make(stream)]
    ))]


def image_deserializer(block: Block) -> Sequence[Any]:
    """The deserializer of an ImageDeserializer or Base64ImageDeserializer block, whose images may have names."""
    describe = Base64ImageDeserializer if block.text("type").lower().startswith("base64") else ImageDeserializer
    description = describe(block.existing_file("file"), _streams(block.required_block("input").inner(), _listed))
    description["useNumericSequenceKeys"] = block.flag("useNumericSequenceKeys", True)
    return [description]


def _streams(streams: Iterable[Block], steps: Callable[[Block], list[Any]]) -> StreamDefs:
    """Labels, and images with their transforms."""
    return StreamDefs(**{
        each.name: StreamDef(field="label", shape=each.size("labelDim")) if "labelDim" in each else
        StreamDef(field="image", transforms=steps(each), defines_mb_size=each.flag("definesMBSize", False))
        for each in streams
    })


def _listed(stream: Block) -> list[Any]:
    """The transforms that a stream lists. Errors: ConfigError for one that there is not."""
    blocks = ((block.choice("type", tuple(_TRANSFORMS), "Crop"), block) for block in stream.blocks("transforms"))
    return [step for kind, block in blocks for step in _TRANSFORMS[kind](block)]


def _crop(block: Block) -> Any:
    """Cropping; ratios are a number, or a range a:b."""
    size, kind = block.integers("cropSize"), block.text("cropType", "Center").lower()
    step = transforms.crop(
        "randomside" if kind == "random" else kind, size[0] if len(size) == 1 else tuple(size) if size else 0,  # type: ignore[arg-type]
        _ratio(block, "sideRatio", "cropRatio"), _ratio(block, "areaRatio"), _ratio(block, "aspectRatio") or 1.0,
        block.text("jitterType", "None").lower(),
    )
    if "hflip" in block:
        step["hflip"] = block.flag("hflip", True)
    return step


def _ratio(block: Block, *names: str) -> Any:
    """A ratio or a range; 0 where there is none."""
    for name in names:
        if name in block:
            numbers = sorted(block.numbers(name))
            return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[-1])
    return 0.0


def _scale(block: Block) -> Any:
    kind = block.text("interpolations", "linear").split(":")[0].lower()
    return transforms.scale(
        block.size("width"), block.size("height"), block.size("channels"),
        kind if kind in _INTERPOLATIONS else "linear", block.text("scaleMode", "fill").lower(),
        block.integer("padValue", -1),
    )


def _mean(block: Block) -> list[Any]:
    return [transforms.mean(block.existing_file("meanFile"))] if block.file("meanFile", "") else []


def _color(block: Block) -> list[Any]:
    radii = [block.number(f"{name}Radius", 0) for name in ("brightness", "contrast", "saturation")]
    return [transforms.color(*radii)] if any(radii) else []


def _intensity(block: Block) -> list[Any]:
    file, deviation = block.file("intensityFile", ""), block.number("intensityStdDev", 0)
    step = transforms.ImageTransform(type="Intensity", intensityFile=file, intensityStdDev=deviation)
    return [step] if file and deviation else []


_TRANSFORMS: dict[str, Callable[[Block], list[Any]]] = {  # in the order of ImageReader
    "Crop": lambda block: [_crop(block)], "Scale": lambda block: [_scale(block)], "Color": _color,
    "Intensity": _intensity, "Mean": _mean, **dict.fromkeys(("Transpose", "Cast"), lambda block: []),
}

__all__ = ["image_deserializer", "image_reader"]
