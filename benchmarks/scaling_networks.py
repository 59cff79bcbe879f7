"""What a step of four networks costs on an H100: from shapes and arithmetic, not measured.

Time by the roofline (Williams, Waterman and Patterson 2009): operations at `EFFICIENCY` of the peak in float32, bytes
at that share of the memory's bandwidth, or the kernels' launches, whichever takes longest. For FCN5 and LSTM the three
counts are those of the programs that XLA compiles for an H100 (`python -m benchmarks gpu-programs`); for ResNet-50 and
VGG-16 they follow from the layers: three times the operations of the forward pass, and each activation read or written
four times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scaling_model import Machine, Network

PEAK, MEMORY, EFFICIENCY, KERNEL = 67e12, 3.35e12, 0.7, 4e-6  # H100 SXM: float32 operations and bytes a second; seconds

# A value is read or written about so often, in 4 bytes, by the two quantizations and what undoes them.
H100 = Machine({"16": 8 * 4 / (EFFICIENCY * MEMORY), "1": 12 * 4 / (EFFICIENCY * MEMORY)})

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Units: `operations` of the forward pass for a sample; `activations`, values of its output for a sample."""

    shape: Shape
    operations: float
    activations: int


def roofline(operations: float, moved: float, kernels: float) -> float:
    """Seconds of a step."""
    return max(operations / (EFFICIENCY * PEAK), moved / (EFFICIENCY * MEMORY), kernels * KERNEL)


def network(name: str, samples: int, seconds: float, shapes: Sequence[Shape]) -> Network:
    """A network with parameters of these shapes; see `cntkjax.parallel.quantization` for what travels in 1 bit."""
    columns, small = 0, 0
    for shape in shapes:
        if shape[-1] > 1:
            columns += math.prod(shape[:-1])
        else:
            small += math.prod(shape)
    return Network(name, samples, seconds, sum(map(math.prod, shapes)), columns, small)


def dense(inputs: int, outputs: int) -> Layer:
    """A dense layer."""
    return Layer((inputs, outputs), 2 * inputs * outputs, outputs)


def convolution(inputs: int, outputs: int, kernel: int, side: int) -> Layer:
    """A convolution whose output has `side` by `side` places."""
    places = side * side
    return Layer((outputs, inputs, kernel, kernel), 2 * places * outputs * inputs * kernel**2, places * outputs)


def of_layers(name: str, samples: int, layers: Sequence[Layer], *, normalized: bool) -> Network:
    """A network of layers with a bias each, or scale and bias."""
    operations = 3 * samples * sum(layer.operations for layer in layers)
    moved = 4 * 4 * samples * sum(layer.activations for layer in layers)
    vectors = [(layer.shape[1] if len(layer.shape) == 2 else layer.shape[0],) for layer in layers]
    shapes = [layer.shape for layer in layers] + vectors * (2 if normalized else 1)
    return network(name, samples, roofline(operations, moved, 10 * len(layers)), shapes)


def vgg16() -> Network:
    """Simonyan and Zisserman 2015, 138 million parameters."""
    widths = [(64, 224), (64, 224), (128, 112), (128, 112), *[(256, 56)] * 3, *[(512, 28)] * 3, *[(512, 14)] * 3]
    convolutions = [
        convolution(before, width, 3, side)
        for before, (width, side) in zip([3, *(w for w, _ in widths)], widths, strict=False)
    ]
    top = [dense(512 * 7 * 7, 4096), dense(4096, 4096), dense(4096, 1000)]
    return of_layers("VGG-16, 64 images", 64, convolutions + top, normalized=False)


def resnet50() -> Network:
    """He et al. 2016, 25.6 million parameters; the stride is in the 3x3 convolutions."""
    layers, inputs = [convolution(3, 64, 7, 112)], 64
    for width, count, side in (64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7):
        for block in range(count):
            wide = side * 2 if block == 0 and width > 64 else side
            layers += [
                convolution(inputs, width, 1, wide), convolution(width, width, 3, side),
                convolution(width, 4 * width, 1, side),
            ]
            layers += [convolution(inputs, 4 * width, 1, side)] if block == 0 else []
            inputs = 4 * width
    return of_layers("ResNet-50, 64 images", 64, [*layers, dense(2048, 1000)], normalized=True)


def fcn5() -> Network:
    """HKBU's network of five layers; its program: 31 kernels, 78 Gflop, 743 MB."""
    layers = [(784, 4096), (4096, 2048), (2048, 1024), (1024, 10)]
    shapes = [shape for layer in layers for shape in (layer, layer[1:])]
    return network("FCN5, 1024 samples", 1024, roofline(77.6e9, 743e6, 31), shapes)


def lstm() -> Network:
    """A language model of 32 words, 64 sequences; its program: 403 kernels, 46 Gflop, 1,418 MB."""
    shapes = [(10000, 256), *[(256, 1024), (256, 1024), (1024,)] * 2, (256, 10000), (10000,)]
    return network("LSTM, 64 sequences", 64, roofline(46.5e9, 1418e6, 403), shapes)


NETWORKS = (fcn5, resnet50, lstm, vgg16)
