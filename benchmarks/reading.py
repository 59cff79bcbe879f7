"""python -m benchmarks.reading [--megabytes 200] [--kinds dense sparse ...]: reading files, with CNTK 2.7 beside it.

The files are made first, of random numbers: text with dense and with sparse samples, the dense ones in binary form,
JPEG images, and speech. Each side reads them in processes of its own, in turns. A speed is in megabytes of the file
per second of the first sweep, with the time to open it; images are counted, and also read by OpenCV alone.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.compare import environment
from benchmarks.reading_worker import CLASSES, DENSE_WIDTH, FRAME_WIDTH, SPARSE_WIDTH

WORKER, OPENCV_WORKER = (Path(__file__).with_name(f"{name}_worker.py") for name in ("reading", "opencv"))
CNTK27 = Path(__file__).resolve().parents[2] / "shared" / "oracle" / "cntk27"
_SPARSE_VALUES = 50  # in a sample
_PIECE = 2000  # rows that are made at once and then repeated, with other labels
_PHOTO = 320, 400  # height and width of an image file


def _rows(size: int, rows: Sequence[str], label: str) -> Iterator[bytes]:
    """Rows of a text file, each with a label that differs between repetitions, until they have so many bytes."""
    written = number = 0
    while written < size:
        text = "".join(f"{row} {label.format((number + i) % CLASSES)}\n" for i, row in enumerate(rows)).encode()
        yield text
        written, number = written + len(text), number + 7


def write_dense(folder: Path, size: int) -> None:
    """Samples like MNIST's, but real numbers, with a class each."""
    values = np.random.default_rng(0).random((_PIECE, DENSE_WIDTH), np.float32)
    rows = ["|x " + " ".join(f"{v:.5g}" for v in row) for row in values.tolist()]
    with open(folder / "dense.ctf", "wb") as file:
        file.writelines(_rows(size, rows, "|y {}:1"))


def write_sparse(folder: Path, size: int) -> None:
    """Samples of some of a hundred thousand elements, with a number each."""
    random = np.random.default_rng(1)
    rows = []
    for _ in range(_PIECE):
        where = np.sort(random.choice(SPARSE_WIDTH, _SPARSE_VALUES, replace=False))
        values = random.random(_SPARSE_VALUES)
        rows.append("|x " + " ".join(f"{i}:{v:.4g}" for i, v in zip(where, values, strict=True)))
    with open(folder / "sparse.ctf", "wb") as file:
        file.writelines(_rows(size, rows, "|y {}"))


def write_cbf(folder: Path, size: int) -> None:
    """The same kind of samples as in the dense text, in chunks of 32 MB."""
    chunk = 2**25 // (4 * DENSE_WIDTH)
    random, table, offset = np.random.default_rng(2), b"", 12
    with open(folder / "dense.cbf", "wb") as file:
        file.write(b"nib_ktnc" + struct.pack("<I", 1))
        for _ in range(max(size // 2**25, 1)):
            samples = np.empty((chunk, 1 + DENSE_WIDTH), np.uint32)
            samples[:, 0], samples[:, 1:] = 1, random.random((chunk, DENSE_WIDTH), np.float32).view(np.uint32)
            labels = np.ones((chunk, 5), np.uint32)  # samples, nonzeros, value, index, nonzeros of the sample
            labels[:, 2] = np.float32(1).view(np.uint32)
            labels[:, 3] = random.integers(CLASSES, size=chunk)
            content = np.ones(chunk, np.uint32).tobytes() + samples.tobytes() + labels.tobytes()
            table += struct.pack("<qII", offset, chunk, chunk)
            offset += file.write(content)
        streams = struct.pack("<BI1sBI", 0, 1, b"x", 0, DENSE_WIDTH) + struct.pack("<BI1sBI", 1, 1, b"y", 0, CLASSES)
        file.write(b"nib_ktnc" + struct.pack("<II", len(table) // 16, 2) + streams + table + struct.pack("<q", offset))


def write_images(folder: Path, size: int) -> None:
    """JPEG files with smooth content, as photographs have."""
    from PIL import Image

    random, written, number = np.random.default_rng(3), 0, 0
    (folder / "images").mkdir()
    with open(folder / "images.txt", "w") as listing:
        while written < size:
            small = Image.fromarray(random.integers(0, 256, (_PHOTO[0] // 8, _PHOTO[1] // 8, 3), np.uint8))
            encoded = io.BytesIO()
            small.resize(_PHOTO[::-1], Image.Resampling.BICUBIC).save(encoded, "JPEG", quality=90)
            path = folder / "images" / f"{number}.jpg"
            written += path.write_bytes(encoded.getvalue())
            listing.write(f"{path}\t{number % CLASSES}\n")
            number += 1


def write_htk(folder: Path, size: int) -> None:
    """Utterances of 200 to 800 frames in one feature file each, with a label for every 10 frames."""
    random, written, number = np.random.default_rng(4), 0, 0
    (folder / "htk").mkdir()
    (folder / "htk.list").write_text("".join(f"s{i}\n" for i in range(CLASSES)))
    with open(folder / "htk.scp", "w") as script, open(folder / "htk.mlf", "w") as labels:
        labels.write("#!MLF!#\n")
        while written < size:
            frames, path = int(random.integers(20, 80)) * 10, folder / "htk" / f"{number}.htk"
            header = struct.pack(">iihh", frames, 100_000, 4 * FRAME_WIDTH, 9)
            values = random.random((frames, FRAME_WIDTH), np.float32).astype(">f4")
            written += path.write_bytes(header + values.tobytes())
            script.write(f"u{number}.htk={path}[0,{frames - 1}]\n")
            labels.write(f'"u{number}.lab"\n')
            for begin in range(0, frames, 10):
                labels.write(f"{begin * 100_000} {(begin + 10) * 100_000} s{int(random.integers(CLASSES))}\n")
            labels.write(".\n")
            number += 1


WRITERS: dict[str, tuple[Callable[[Path, int], None], str]] = {
    "dense": (write_dense, "dense.ctf"), "sparse": (write_sparse, "sparse.ctf"), "cbf": (write_cbf, "dense.cbf"),
    "images": (write_images, "images"), "htk": (write_htk, "htk"),
}


class Side(NamedTuple):
    """Who reads: an interpreter, and what it runs."""

    interpreter: str
    worker: Path


def file_size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(p.stat().st_size for p in path.iterdir()) if path.is_dir() else path.stat().st_size


def read(side: Side, kind: str, folder: Path, options: Sequence[str]) -> dict[str, Any] | None:
    """What one side says of reading, in a process of its own without a kept index; None if it cannot read the file."""
    with tempfile.TemporaryDirectory() as cache:
        command = [side.interpreter, str(side.worker), kind, str(folder), *options]
        output = subprocess.run(command, env=environment(Path(cache)), capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1]) if output.returncode == 0 else None


def compare(
    kinds: Sequence[str], megabytes: float, rounds: int, sides: dict[str, Side], folder: Path, options: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """For each kind and side that reads it: medians over the rounds, and the megabytes of the file."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in kinds:
        write, name = WRITERS[kind]
        if not (folder / name).exists():
            write(folder, int(megabytes * 2**20))
        runs: dict[str, list[dict[str, Any] | None]] = {side: [] for side in sides}
        for _ in range(rounds):
            for name_of_side, side in sides.items():
                runs[name_of_side].append(read(side, kind, folder, options))
        readable = {side: [run for run in of_side if run] for side, of_side in runs.items()}
        size = file_size(folder / name) / 2**20
        results[kind] = {side: _medians(of_side, size) for side, of_side in readable.items() if of_side}
    return results


def _medians(runs: Sequence[dict[str, Any]], megabytes: float) -> dict[str, float]:
    keys = "first", "cpu", "memory", "before", "samples"
    return {key: median(run[key] for run in runs) for key in keys} | {
        "megabytes": megabytes,
        "sweep": median(run["sweeps"][0] for run in runs),
        "last": median(run["sweeps"][-1] for run in runs),
    }


def main() -> None:
    """Make the files, run all sides and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200, help="size of each file")
    parser.add_argument("--kinds", nargs="+", default=list(WRITERS), choices=list(WRITERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the files here, and use those that are there")
    parser.add_argument("--cntk27", default=str(CNTK27) if CNTK27.exists() else "", help="an interpreter with CNTK 2.7")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, default=[], help="options of reading_worker.py")
    options = parser.parse_args()
    sides = {"cntkjax": Side(sys.executable, WORKER), "opencv": Side(sys.executable, OPENCV_WORKER)}
    if options.cntk27:
        sides["cntk27"] = Side(options.cntk27, WORKER)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = compare(options.kinds, options.megabytes, options.rounds, sides, folder, options.worker)
    print("kind    side     first minibatch s  sweep s   MB/s  samples/s   CPU s  last sweep s  memory MB   before")
    for kind, of_kind in results.items():
        for side, r in of_kind.items():
            print(
                f"{kind:7} {side:8} {r['first']:17.2f} {r['sweep']:8.2f} {r['megabytes'] / r['sweep']:6.0f} "
                f"{r['samples'] / r['sweep']:10.0f} {r['cpu']:7.2f} {r['last']:13.2f} "
                f"{r['memory']:10.0f} {r['before']:8.0f}"
            )


if __name__ == "__main__":
    main()
