"""python -m benchmarks deep: the first training step of deep networks, beside hand-written JAX and flax's nnx.

Networks are of their published depth, with narrow layers, small images and two samples, so that compiling is all that
takes time: processor seconds of tracing, lowering and XLA, without a cache, for each side in a process of its own.
Parameters exist before. `later`: of the steps after it, in processor milliseconds.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

import numpy as np

BATCH, SIZE, CLASSES = 2, 64, 10
LENGTH, WIDTH, HEADS, LAYERS = 16, 64, 4, 24
SIDES = {"cntkjax": "deep_cntk", "jax": "deep_jax", "nnx": "deep_nnx"}
LATER = 20  # steps

Array = Any  # a value of the side


class Side(Protocol):
    """The layers of which networks are made. Some sides have channels first, others last."""

    def convolution(self, x: Array, size: int, filters: int, stride: int = 1) -> Array:
        """A padded convolution without bias."""

    def normalization(self, x: Array) -> Array:
        """Batch normalization."""

    def relu(self, x: Array) -> Array:
        """The positive part."""

    def pooling(self, x: Array, kind: str, size: int, stride: int) -> Array:
        """Padded pooling, `kind` "max" or "average"."""

    def joined(self, *x: Array) -> Array:
        """The channels of all images."""

    def mean(self, x: Array) -> Array:
        """The mean over an image or its words: the features of a sample."""

    def dense(self, x: Array, size: int) -> Array:
        """A layer with a bias along the last axis."""

    def layer_normalization(self, x: Array) -> Array:
        """Along the last axis."""

    def attention(self, x: Array) -> Array:
        """Self-attention with `HEADS` heads, as users of the side write it."""


def _normalized(side: Side, x: Array, size: int, filters: int, stride: int = 1) -> Array:
    return side.relu(side.normalization(side.convolution(x, size, filters, stride)))


def resnet152(side: Side, x: Array) -> Array:
    """He et al. 2016; a quarter of the width."""
    x = side.pooling(_normalized(side, x, 7, 16, 2), "max", 3, 2)
    for stage, count in enumerate((3, 8, 36, 3)):
        for block in range(count):
            stride, width = 1 + (stage > 0 and block == 0), 16 << stage
            inner = _normalized(side, _normalized(side, x, 1, width), 3, width, stride)
            inner = side.normalization(side.convolution(inner, 1, 4 * width))
            shortcut = x if block else side.normalization(side.convolution(x, 1, 4 * width, stride))
            x = side.relu(inner + shortcut)
    return side.dense(side.mean(x), CLASSES)


INCEPTION = [  # 1x1; before 3x3, 3x3; before two 3x3, these; kind of pooling, 1x1 after it
    (64, 64, 64, 64, 96, "average", 32), (64, 64, 96, 64, 96, "average", 64), (0, 128, 160, 64, 96, "max", 0),
    (224, 64, 96, 96, 128, "average", 128), (192, 96, 128, 96, 128, "average", 128),
    (160, 128, 160, 128, 160, "average", 128), (96, 128, 192, 160, 192, "average", 128),
    (0, 128, 192, 192, 256, "max", 0), (352, 192, 320, 160, 224, "average", 128),
    (352, 192, 320, 192, 224, "max", 128),
]


def bn_inception(side: Side, x: Array) -> Array:
    """Ioffe and Szegedy 2015; a quarter of the width."""
    x = side.pooling(_normalized(side, x, 7, 16, 2), "max", 3, 2)
    x = side.pooling(_normalized(side, _normalized(side, x, 1, 16), 3, 48), "max", 3, 2)
    for alone, *reduced, kind, after in INCEPTION:
        before, single, before_two, double = (n // 4 for n in reduced)
        stride = 1 if alone else 2
        branches = [_normalized(side, x, 1, alone // 4)] if alone else []
        branches.append(_normalized(side, _normalized(side, x, 1, before), 3, single, stride))
        first = _normalized(side, _normalized(side, x, 1, before_two), 3, double)
        branches.append(_normalized(side, first, 3, double, stride))
        pooled = side.pooling(x, kind, 3, stride)
        x = side.joined(*branches, _normalized(side, pooled, 1, after // 4) if after else pooled)
    return side.dense(side.mean(x), CLASSES)


def densenet121(side: Side, x: Array) -> Array:
    """Huang et al. 2017; each layer adds 8 channels instead of 32."""
    channels = 16
    x = side.pooling(_normalized(side, x, 7, channels, 2), "max", 3, 2)
    for block, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            inner = side.convolution(side.relu(side.normalization(x)), 1, 32)
            x = side.joined(x, side.convolution(side.relu(side.normalization(inner)), 3, 8))
        channels += 8 * count
        if block < 3:
            channels //= 2
            x = side.pooling(side.convolution(side.relu(side.normalization(x)), 1, channels), "average", 2, 2)
    return side.dense(side.mean(side.relu(side.normalization(x))), CLASSES)


def transformer24(side: Side, x: Array) -> Array:
    """The encoder of Vaswani et al. 2017 with 24 layers, normalized before each part."""
    for _ in range(LAYERS):
        x = x + side.attention(side.layer_normalization(x))
        inner = side.relu(side.dense(side.layer_normalization(x), 4 * WIDTH))
        x = x + side.dense(inner, WIDTH)
    return side.dense(side.mean(side.layer_normalization(x)), CLASSES)


NETWORKS: dict[str, tuple[str, Callable[[Side, Array], Array]]] = {
    "resnet152": ("ResNet-152", resnet152), "bn_inception": ("BN-Inception", bn_inception),
    "densenet121": ("DenseNet-121", densenet121), "transformer24": (f"Transformer, {LAYERS} layers", transformer24),
}


def samples(network: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [BATCH, 3, SIZE, SIZE] or words [BATCH, LENGTH, WIDTH], float32, and labels [BATCH]."""
    shape = (LENGTH, WIDTH) if network == "transformer24" else (3, SIZE, SIZE)
    random = np.random.RandomState(0)
    return random.rand(BATCH, *shape).astype(np.float32), random.randint(CLASSES, size=BATCH)


def measured(step: Callable[[], float]) -> dict[str, float]:
    """Processor seconds of the first step and milliseconds of a later one. `step` returns the loss."""
    times = []
    for _ in range(1 + LATER):
        begin = time.process_time()
        assert np.isfinite(step())
        times.append(time.process_time() - begin)
    return {"first": times[0], "later": 1000 * median(times[1:])}


def run(side: str, network: str) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.deep", side, network]
    variables = os.environ | {"CNTKJAX_CACHE_DIR": ""}
    output = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main(arguments: list[str]) -> None:
    """Measure all sides in turn, and print a table of medians."""
    from benchmarks.resources import machine

    parser = argparse.ArgumentParser(prog="python -m benchmarks deep", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, in turn (default: 3)")
    options = parser.parse_args(arguments)
    print("| network |", " | ".join(f"{s}: first step, s | later, ms" for s in SIDES), "| first: to jax | to nnx |")
    print("|---" * (2 * len(SIDES) + 3) + "|")
    for network in options.networks:
        rounds = [{side: run(side, network) for side in SIDES} for _ in range(options.rounds)]
        first, later = ({s: median(r[s][kind] for r in rounds) for s in SIDES} for kind in ("first", "later"))
        cells = [f"{first[s]:.1f} | {later[s]:.1f}" for s in SIDES]
        cells += [f"{first['cntkjax'] / first[other]:.2f}" for other in ("jax", "nnx")]
        print("|", " | ".join([NETWORKS[network][0], *cells]), "|", flush=True)
    print("", f"{machine()}. {datetime.date.today().isoformat()}.", sep="\n")


if __name__ == "__main__":
    side, network = sys.argv[1:]
    print(json.dumps(measured(importlib.import_module(f"benchmarks.{SIDES[side]}").trained(network))))
