"""Random images, and random features and labels of speech: what minibatches contain is the same with CNTK 2.7.

The images are BMP files, since CNTK's libraries for other formats are in no present distribution: `image_libraries`.
"""

from __future__ import annotations

import random

from .reader_programs import Field, ReaderProgram, reading

TAB, LINE = "\t", "\n"


def images(seed: int) -> ReaderProgram:
    """A list of images of any sizes, transformed to one; sometimes joined with a text file."""
    draw = random.Random(seed)
    number, labels = draw.randint(1, 12), draw.randint(1, 4)
    lines = [
        f"bitmap('{i}.bmp', {draw.randrange(100)}, {draw.randint(2, 13)}, {draw.randint(2, 13)}, channels={channels})"
        for i, channels in enumerate(draw.choices([3, 3, 1], k=number))
    ]
    ids = draw.sample(range(3 * number), number) if draw.random() < 0.5 else list(range(number))
    with_ids = ids != list(range(number)) or draw.random() < 0.3
    rows = [(f"{key}{TAB}" if with_ids else "") + f"{i}.bmp{TAB}{draw.randrange(labels)}" for i, key in enumerate(ids)]
    lines.append(f"write('map.txt', {(LINE.join(rows) + LINE)!r})")
    width, height = draw.randint(2, 8), draw.randint(2, 8)
    transforms = _transforms(draw, width, height)
    if any("mean" in t for t in transforms):
        lines.append(f"mean_image('mean.xml', {height}, {width})")
    streams = (
        f"x_in=C.io.StreamDef('image', transforms=[{', '.join(transforms)}]), y_in=C.io.StreamDef('label', {labels})"
    )
    deserializers = [f"C.io.ImageDeserializer('map.txt', C.io.StreamDefs({streams}))"]
    fields: list[Field] = [("x_in", "image", (3, height, width), False), ("y_in", "label", labels, True)]
    if draw.random() < 0.3:
        keys = draw.sample(ids, len(ids)) if draw.random() < 0.7 else ids[:1]
        text = "".join(f"{key} |a {draw.randint(-9, 9)}\n" for key in keys)
        lines.append(f"write('more.txt', {text!r})")
        fields.append(("a_in", "a", 1, False))
        deserializers.append(f"deserializer(C.io.CTFDeserializer, 'more.txt', {fields[-1:]})")
    return reading(draw, seed, lines, deserializers, fields, number)


def _transforms(draw: random.Random, width: int, height: int) -> list[str]:
    """Those of a stream: each may be missing but the one that gives all images a size."""
    interpolation = draw.choice(["nearest", "linear", "lanczos"])
    crops = [_crop(draw)] if draw.random() < 0.6 else []
    scale = f"C.io.transforms.scale({width}, {height}, 3, interpolations={interpolation!r}"
    if draw.random() < 0.5:
        modes = ["fill", "crop"] if crops else ["fill", "crop", "pad"]  # docs/compatibility.md: pixels around a crop
        scale += f", scale_mode={draw.choice(modes)!r}, pad_value={draw.choice([-1, 0, 7])}"
    chosen = [*crops, f"{scale})"]
    if draw.random() < 0.3:
        chosen.append("C.io.transforms.mean('mean.xml')")
    if draw.random() < 0.3:
        radii = [draw.choice([0.0, 0.2, 0.5]) for _ in range(3)]
        chosen.insert(draw.randint(0, len(chosen)), f"C.io.transforms.color({radii[0]}, {radii[1]}, {radii[2]})")
    return chosen


def _crop(draw: random.Random) -> str:
    kind = draw.choice(["center", "randomside", "randomarea", "multiview10"])
    options: dict[str, object] = {"crop_type": kind}
    sizes = draw.choice(["crop_size", "side_ratio", "area_ratio"] if kind == "center" else [
        "area_ratio" if kind == "randomarea" else "side_ratio"
    ])
    ratio = draw.choice([0.5, 0.8, 1.0])
    options[sizes] = draw.choice([2, (2, 3), (3, 2)]) if sizes == "crop_size" else draw.choice([ratio, (0.4, ratio)])
    if sizes == "area_ratio" and draw.random() < 0.5:
        options["aspect_ratio"] = draw.choice([0.8, (0.6, 1.0)])
    if draw.random() < 0.5:
        options["jitter_type"] = draw.choice(["none", "uniratio"])
    return "C.io.transforms.crop(" + ", ".join(f"{k}={v!r}" for k, v in options.items()) + ")"


def speech(seed: int) -> ReaderProgram:
    """Features of utterances, which are parts of files, with or without labels of frames."""
    draw = random.Random(seed)
    mode = draw.choice(["", "", "", "truncation_length", "frame_mode"])
    number = draw.randint(1, 12)
    lengths = {f"u{i}": draw.choice([1, 2, 3, 5, 9]) for i in range(number)}
    lines: list[str] = []
    deserializers, fields = [], []
    for name in "xz"[: draw.choice([1, 1, 2])]:
        makes, description, field = _features(draw, name, lengths)
        lines += makes
        deserializers.append(f"C.io.HTKFeatureDeserializer(C.io.StreamDefs({description}))")
        fields.append(field)
    if draw.random() < 0.7:
        makes, labels, field = _labels(draw, lengths)
        lines += makes
        deserializers.append(labels)
        fields.append(field)
    return reading(draw, seed, lines, deserializers, fields, sum(lengths.values()), mode)


def _features(draw: random.Random, name: str, lengths: dict[str, int]) -> tuple[list[str], str, Field]:
    """The lines that write a stream of features, what describes it, and its field."""
    dim, context = draw.randint(1, 3), draw.choice([(0, 0), (0, 0), (1, 1), (2, 0), (1, 2)])
    utterances = list(lengths.items())
    if draw.random() < 0.5:
        draw.shuffle(utterances)
    files: list[int] = []  # how many frames each has
    rows = []
    for utterance, length in utterances:
        if not files or draw.random() < 0.4:
            files.append(draw.randint(0, 2))
        begin = files[-1]
        files[-1] += length
        rows.append(f"{utterance}.mfc={name}{len(files) - 1}.mfc[{begin},{files[-1] - 1}]")
    lines = [
        f"frames('{name}{i}.mfc', {draw.randrange(100)}, {n + draw.randint(0, 2)}, {dim})" for i, n in enumerate(files)
    ]
    lines.append(f"write('{name}.scp', {(LINE.join(rows) + LINE)!r})")
    options = f", context={context}" if context != (0, 0) else ""
    field = f"{name}_in", name, dim * (1 + sum(context)), False
    return lines, f"{name}_in=C.io.StreamDef(shape={dim}, scp='{name}.scp'{options})", field


def _labels(draw: random.Random, lengths: dict[str, int]) -> tuple[list[str], str, Field]:
    """The same of a stream of labels, in a text or binary file."""
    number = draw.randint(1, 4)
    utterances = [(name, _runs(draw, number, length)) for name, length in lengths.items()]
    if draw.random() < 0.5:
        draw.shuffle(utterances)
    if draw.random() < 0.2:
        utterances = utterances[: max(1, len(utterances) - 2)]
    field: Field = ("y_in", "y", number, True)
    streams = f"C.io.StreamDefs(y_in=C.io.StreamDef(shape={number}, mlf='y.mlf'))"
    if draw.random() < 0.4:
        return [f"binary_labels('y.mlf', {utterances})"], f"C.io.HTKMLFBinaryDeserializer({streams})", field
    text = "#!MLF!#\n"
    for name, runs in utterances:
        text += f'"{draw.choice(["", "*/"])}{name}.lab"\n'
        end = 0
        for label, length in runs:
            text += f"{end}00000 {end + length}00000 s{label}\n"
            end += length
        text += ".\n"
    names = "".join(f"s{i}\n" for i in range(number))
    boundaries = ", phoneBoundaries=True" if draw.random() < 0.2 else ""
    lines = [f"write('y.list', {names!r})", f"write('y.mlf', {text!r})"]
    return lines, f"C.io.HTKMLFDeserializer('y.list', {streams}{boundaries})", field


def _runs(draw: random.Random, labels: int, length: int) -> list[tuple[int, int]]:
    """Labels of an utterance, each with how many frames it lasts."""
    runs = []
    while length:
        lasts = draw.randint(1, length)
        runs.append((draw.randrange(labels), lasts))
        length -= lasts
    return runs
