"""Random files and sources: what minibatches contain is the same with CNTK 2.7, sample by sample."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .program import Program, Statement

Field = tuple[str, str, int | tuple[int, ...], bool]  # name, field in the file, shape, whether sparse
NUMBERS = ("{:g}", "{:.3f}", "{:+g}", "{:e}", "{:.1f}")


@dataclass(frozen=True)
class Stream:
    """`is_once`: of one step in each sequence, however long others are."""

    name: str
    dim: int
    is_sparse: bool
    is_once: bool


@dataclass(frozen=True)
class ReaderProgram(Program):
    """Lines that write files and show the minibatches of sources, instead of a graph."""

    text: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """One line of Python each."""
        return ["from reading import *", *self.text]

    def contributing(self, what: str, place: int) -> tuple[Statement, ...]:
        """No statements."""
        return ()


def write(seed: int) -> ReaderProgram:
    """The program of a seed."""
    draw = random.Random(seed)
    mode = draw.choice(["", "", "", "", "truncation_length", "frame_mode"])
    streams = _streams(draw, draw.randint(1, 3), "abc", mode)
    fields: list[Field] = []
    lines, deserializers = [], []
    ids = _ids(draw, draw.randint(1, 24))
    for i in range(draw.choice([1, 1, 1, 2])):
        those = streams if i == 0 else _streams(draw, draw.randint(1, 2), "de", mode)
        fields += [_field(s) for s in those]
        if i == 0 and draw.random() < 0.25 and ids == list(range(len(ids))):
            lines.append(_binary(draw, f"f{i}.bin", those, len(ids)))
            deserializers.append(_deserializer("C.io.CBFDeserializer", f"f{i}.bin", those, {}))
            continue
        order = ids if i == 0 else draw.sample(ids, len(ids))
        lines.append(f"write({f'f{i}.txt'!r}, {_text(draw, those, order)!r})")
        options = {"chunkSizeInBytes": draw.choice([20, 60, 200])} if draw.random() < 0.5 else {}
        deserializers.append(_deserializer("C.io.CTFDeserializer", f"f{i}.txt", those, options))
    return reading(draw, seed, lines, deserializers, fields, len(ids) * 3, mode)


def reading(
    draw: random.Random, seed: int, lines: list[str], deserializers: list[str], fields: list[Field], total: int,
    mode: str = "",
) -> ReaderProgram:
    """The program that also reads what its lines write, about `total` samples, with any options."""
    options = _options(draw, total, mode)
    source = f"lambda: C.io.MinibatchSource([{', '.join(deserializers)}]{options})"
    sizes = [draw.choice([1, 2, 3, 5, 8, 13, 40]) for _ in range(draw.randint(2, 8))]
    has_chunks = "True" in options and any(w in source for w in ("chunkSize", "CBF", "Image"))  # each image is one
    more = draw.choice(["", "", f", resumed_after={draw.randint(1, len(sizes))}", ", parts=(2,)", ", parts=(1, 3)"])
    if has_chunks and "resumed" in more:
        more = ""  # CNTK begins the sweep anew: docs/compatibility.md
    if "parts" in more or "truncation" in mode or has_chunks or draw.random() < 0.3:
        sizes = sizes[:1] * len(sizes)  # as above
    if "truncation" in mode:
        more += ", are_cut=True"
    lines.append(f'show("minibatches", minibatches({source}, {fields}, {sizes}{more}))')
    return ReaderProgram(seed, "float32", (), (), (), (), text=tuple(lines))


def _streams(draw: random.Random, number: int, names: str, mode: str) -> list[Stream]:
    is_frames = mode == "frame_mode" or (not mode and draw.random() < 0.3)
    return [
        Stream(
            name, draw.randint(1, 4), mode != "truncation_length" and draw.random() < 0.4,
            is_frames or (not mode and i > 0 and draw.random() < 0.3),
        )
        for i, name in enumerate(names[:number])
    ]


def _field(s: Stream) -> Field:
    return f"{s.name}_in", s.name, s.dim, s.is_sparse


def _ids(draw: random.Random, number: int) -> list[int]:
    return list(range(number)) if draw.random() < 0.6 else draw.sample(range(3 * number), number)


def _length(draw: random.Random) -> int:
    return draw.choice([1, 1, 2, 3, 4, 9])


def _text(draw: random.Random, streams: list[Stream], ids: list[int]) -> str:
    """Rows of a text file; without ids where each sequence is a row."""
    is_frames = all(s.is_once for s in streams)
    with_ids = not is_frames or ids != list(range(len(ids))) or draw.random() < 0.5
    number, space = draw.choice(NUMBERS), draw.choice([" ", " ", "\t", "  "])
    end = draw.choice(["\n", "\n", "\r\n"])
    rows = []
    for key in ids:
        longest = 1 if is_frames else _length(draw)
        for step in range(longest):
            fields = [
                f"|{s.name}{space}{_values(draw, s, number, space, step == 0)}" for s in streams
                if step == 0 or not s.is_once
            ]
            if draw.random() < 0.2:
                draw.shuffle(fields)
            if draw.random() < 0.1:
                fields.append("|# a comment ")
            if draw.random() < 0.1:
                fields.append("|other 1 2 3")
            rows.append((f"{key}{space}" if with_ids else "") + space.join(fields))
    return end.join(rows) + draw.choice([end, end, ""])


def _values(draw: random.Random, s: Stream, number: str, space: str, is_first: bool) -> str:
    values = [number.format(draw.randint(-16, 16) / 4) for _ in range(s.dim)]
    if not s.is_sparse:
        return space.join(values)
    # Of a sequence without any entry CNTK makes no arrays.
    indices = sorted(draw.sample(range(s.dim), draw.randint(1 if is_first else 0, s.dim)))
    return space.join(f"{i}:{values[i]}" for i in indices)


def _binary(draw: random.Random, path: str, streams: list[Stream], number: int) -> str:
    def step(s: Stream) -> object:
        values = [draw.randint(-16, 16) / 4 for _ in range(s.dim)]
        return {i: v for i, v in enumerate(values) if i == 0 or draw.random() < 0.5} if s.is_sparse else values

    sequences = []
    for _ in range(number):
        length = _length(draw)
        sequences.append([[step(s) for _ in range(1 if s.is_once else length)] for s in streams])
    size = draw.choice([1, 3, 100])
    chunks = [sequences[i : i + size] for i in range(0, number, size)]
    return f"cbf({path!r}, {[(s.name, s.dim, s.is_sparse) for s in streams]}, {chunks})"


def _deserializer(make: str, path: str, streams: list[Stream], options: dict[str, object]) -> str:
    return f"deserializer({make}, {path!r}, {[_field(s) for s in streams]}, **{options})"


def _options(draw: random.Random, total: int, mode: str) -> str:
    chosen: dict[str, object] = {"randomize": draw.random() < 0.6}
    if chosen["randomize"]:
        chosen["randomization_seed"] = draw.randint(0, 5)
        window = draw.choice(["", "chunks", "samples"])
        if window:
            chosen["randomization_window_in_chunks"] = draw.choice([1, 2, 3]) if window == "chunks" else 0
            chosen["randomization_window_in_samples"] = 0 if window == "chunks" else draw.randint(1, total)
    limit = draw.choice(["", "max_samples", "max_sweeps"])
    if limit:
        chosen[limit] = draw.randint(1, total) if limit == "max_samples" else draw.randint(1, 2)
    if mode:
        chosen[mode] = draw.choice([1, 2, 3]) if mode == "truncation_length" else True
    return "".join(f", {k}={v}" for k, v in chosen.items())
