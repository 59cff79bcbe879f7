"""python -m benchmarks inference: `Function.eval`, `Predictor`, and ONNX Runtime on our own export, side by side.

Weights are random. Rounds of all sides alternate; each figure is the median over the rounds of the mean time of a call.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable
from itertools import count
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


def measure(model: Any, steps: int, batch: int, rounds: int, seconds: float) -> dict[str, float]:
    """Milliseconds of a call by side."""
    x = model.arguments[0]
    data = np.random.default_rng(0).normal(size=(batch, *([steps] if steps else []), *x.shape)).astype(np.float32)
    sides = dict(zip(SIDES, (model.eval, C.Predictor(model), C.Predictor(model, backend="onnxruntime")), strict=True))
    calls = {}
    for side, answer in sides.items():
        end = time.perf_counter() + 10 * seconds  # `eval` compiles thoroughly after some hundred calls
        for i in count():
            begin = time.perf_counter()
            if i >= 3 and begin > end:
                break
            answer({x: data})
            took = time.perf_counter() - begin
        calls[side] = max(1, int(seconds / took))
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, answer in sides.items():
            begin = time.perf_counter()
            for _ in range(calls[side]):
                answer({x: data})
            times[side].append((time.perf_counter() - begin) / calls[side])
    return {side: 1e3 * statistics.median(values) for side, values in times.items()}


def main(arguments: list[str] | None = None) -> None:
    """Print the table of docs/performance.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks inference", description=__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--quick", action="store_true", help="one short round, to check that everything runs")
    options = parser.parse_args(arguments)
    rounds, seconds = (1, 0.0) if options.quick else (9, 0.2)
    print(f"| model | batch | {' | '.join(SIDES)} | Predictor to ONNX Runtime |", "|---|" + "---|" * 5, sep="\n")
    for name, (build, steps) in MODELS.items():
        model = build()
        for batch in options.batches:
            took = measure(model, steps, batch, rounds, seconds)
            ratio = took["Predictor"] / took["ONNX Runtime"]
            figures = " | ".join(f"{took[side]:.3g}" for side in SIDES)
            print(f"| {name} | {batch} | {figures} | {ratio:.2f} |", flush=True)
    print(f"\nMilliseconds of a call. {machine()}, {datetime.date.today().isoformat()}.")


if __name__ == "__main__":
    main()
