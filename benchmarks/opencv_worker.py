"""Reads the images of `benchmarks.reading` with OpenCV alone, and prints what that took like `reading_worker.py`.

python opencv_worker.py images FOLDER [--size SAMPLES]: decodes, crops, mirrors and scales as that does, and stores
planes of float32, with a thread for each core: the speed of the library that an image source is made of. Two arrays are
filled in turns, since a caller has one minibatch while the next is read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import numpy as np
from reading_worker import SIDE, memory


def read(path: str, planes: np.ndarray) -> None:
    """Store a random square of an image. Shapes: float32 [channels, SIDE, SIDE]."""
    import cv2  # with the first image, as the package loads it, so that both sides' times contain this

    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    side = int(min(image.shape[:2]) * random.uniform(0.5, 1))
    top, left = (random.randint(0, size - side) for size in image.shape[:2])
    part = image[top : top + side, left : left + side]
    if random.random() < 0.5:
        part = cv2.flip(part, 1)
    scaled = cv2.resize(part, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    cv2.split(scaled.astype(np.float32), list(planes))


def main() -> None:
    """Read all images once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["images"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    before, cpu, start = memory(), time.process_time(), time.perf_counter()
    paths = [row.split("\t")[0] for row in (options.folder / "images.txt").read_text().splitlines()]
    minibatches = cycle(np.empty((2, options.size, 3, SIDE, SIDE), np.float32))
    first = None
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for begin in range(0, len(paths), options.size):
            list(threads.map(read, paths[begin : begin + options.size], next(minibatches)))
            first = first or time.perf_counter() - start
    print(json.dumps({
        "first": first, "sweeps": [time.perf_counter() - start], "samples": len(paths),
        "cpu": time.process_time() - cpu, "memory": memory(), "before": before,
    }))


if __name__ == "__main__":
    main()
