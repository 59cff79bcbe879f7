"""python -m benchmarks inference: `Function.eval`, `Predictor`, and ONNX Runtime on our own export, side by side.

Weights are random. Each side is called for two seconds first; then the sides take turns of five calls. Figures are the
least and the median of all calls: at one sample ONNX Runtime's threads wait for each other, so on a busy machine its
median says little.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cntkjax as C
from benchmarks.resources import machine

SIDES = "eval", "Predictor", "ONNX Runtime"


def mlp() -> Any:
    """784-512-512-10."""
    layers = [C.layers.Dense(512, activation=C.relu), C.layers.Dense(512, activation=C.relu), C.layers.Dense(10)]
    return C.layers.Sequential(layers)(C.input_variable(784))


def resnet(blocks: int, channels: tuple[int, ...]) -> Any:
    """Stages of residual blocks for images of 32x32."""
    def unit(x: Any, n: int, stride: int) -> Any:
        return C.layers.Sequential([
            C.layers.Convolution2D((3, 3), n, strides=stride, pad=True, bias=False),
            C.layers.BatchNormalization(map_rank=1),
        ])(x)

    def block(x: Any, n: int, stride: int) -> Any:
        y = unit(C.relu(unit(x, n, stride)), n, 1)
        short = x
        if stride > 1:
            short = C.layers.Convolution2D((1, 1), n, strides=stride, bias=False)(x)
        return C.relu(y + short)

    h = C.relu(unit(C.input_variable((3, 32, 32)), channels[0], 1))
    for stage, n in enumerate(channels):
        for i in range(blocks):
            h = block(h, n, 2 if stage and not i else 1)
    model = C.layers.Dense(10)(C.layers.GlobalAveragePooling()(h))
    for statistic in model.constants:
        if statistic.name == "aggregate_variance":  # of 0, as before training, numbers would grow to infinity
            statistic.value = np.ones(statistic.shape, np.float32)
    return model


def alexnet() -> Any:
    """Like AlexNet, for images of 224x224."""
    conv, pool, dense = C.layers.Convolution2D, C.layers.MaxPooling, C.layers.Dense
    return C.layers.Sequential([
        conv((11, 11), 64, strides=4, pad=True, activation=C.relu), pool((3, 3), 2),
        conv((5, 5), 192, pad=True, activation=C.relu), pool((3, 3), 2),
        conv((3, 3), 384, pad=True, activation=C.relu), conv((3, 3), 256, pad=True, activation=C.relu),
        conv((3, 3), 256, pad=True, activation=C.relu), pool((3, 3), 2),
        dense(4096, activation=C.relu), dense(4096, activation=C.relu), dense(1000),
    ])(C.input_variable((3, 224, 224)))


def tagger() -> Any:
    """An LSTM of 300 units over dense words."""
    lstm = C.layers.Recurrence(C.layers.LSTM(300))
    return C.layers.Sequential([lstm, C.layers.Dense(50)])(C.sequence.input_variable(300))


MODELS: dict[str, tuple[Callable[[], Any], int]] = {  # with the steps of a sequence
    "MLP 784-512-512-10": (mlp, 0),
    "ResNet-20, 32x32": (lambda: resnet(3, (16, 32, 64)), 0),
    "ResNet, 8 blocks a stage, 32 to 128 channels": (lambda: resnet(8, (32, 64, 128)), 0),
    "AlexNet-like, 224x224": (alexnet, 0),
    "LSTM tagger, 20 words, 300 units": (tagger, 20),
}


def measure(model: Any, steps: int, batch: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each call by side, of `seconds` of warming and some `seconds` of measuring for each."""
    x = model.arguments[0]
    data = np.random.default_rng(0).normal(size=(batch, *([steps] if steps else []), *x.shape)).astype(np.float32)
    sides = dict(zip(SIDES, (model.eval, C.Predictor(model), C.Predictor(model, backend="onnxruntime")), strict=True))
    times: dict[str, list[float]] = {side: [] for side in SIDES}

    def turn(side: str) -> float:
        for _ in range(5):
            begin = time.perf_counter()
            sides[side]({x: data})
            times[side].append(1e3 * (time.perf_counter() - begin))
        return time.perf_counter()

    for side in SIDES:
        end = time.perf_counter() + seconds  # `eval` compiles thoroughly after some hundred calls
        while turn(side) < end:
            pass
        times[side].clear()
    end = time.perf_counter() + seconds * len(SIDES)
    while max(map(turn, SIDES)) < end:
        pass
    return times


def main(arguments: list[str] | None = None) -> None:
    """Print the table of docs/performance.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks inference", description=__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--quick", action="store_true", help="one turn, to check that everything runs")
    options = parser.parse_args(arguments)
    seconds = 0.0 if options.quick else 2.0
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    print(f"| model | batch | {' | '.join(SIDES)} | Predictor to ONNX Runtime |", "|---|" + "---|" * 5, sep="\n")
    for name, (build, steps) in MODELS.items():
        model = build()
        for batch in options.batches:
            took = {side: (min(calls), statistics.median(calls))
                    for side, calls in measure(model, steps, batch, seconds).items()}
            figures = " | ".join(f"{least:.3g}, {median:.3g}" for least, median in took.values())
            ratios = (ours / theirs for ours, theirs in zip(took["Predictor"], took["ONNX Runtime"], strict=True))
            print(f"| {name} | {batch} | {figures} | {', '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True)
    print(f"\nMilliseconds of a call: least, median. {machine()}, {datetime.date.today().isoformat()}.")
    if before is not None:
        print(f"Load {before:.1f} before, {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
