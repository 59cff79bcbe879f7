"""Definitions of networks: layers with their parameters and weights, the result of reading another toolkit's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class CntkLayerType(Enum):
    """Types of layers; ``ApiSetup`` has a method for each supported type."""

    relu = 1
    convolution = 2
    pooling = 3
    batch_norm = 4
    plus = 5
    dense = 6
    splice = 7
    classification_error = 10
    cross_entropy_with_softmax = 11
    dropout = 12
    lrn = 13
    psroi_pooling = 14
    softmax = 15
    # not among CNTK's
    element_times = 16
    element_max = 17
    scale = 18
    sigmoid = 19
    tanh = 20
    elu = 21
    abs = 22
    power = 23
    param_relu = 24
    flatten = 25
    deconvolution = 26
    unknown = 100


@dataclass
class CntkParameters:
    """The parameters of a layer that has none."""


@dataclass
class CntkConvolutionParameters(CntkParameters):
    """`auto_pad`: the output has the size of the sample; otherwise `pad` zeros on both sides of each axis."""

    output: int = 0
    stride: list[int] = field(default_factory=lambda: [0, 0])
    kernel: list[int] = field(default_factory=lambda: [0, 0])
    auto_pad: bool = False
    scale_setting: list[int] = field(default_factory=lambda: [1, 1])
    bias_setting: list[int] = field(default_factory=lambda: [1, 1])
    need_bias: bool = True
    dilation: list[int] = field(default_factory=lambda: [1, 1])
    group: int = 1
    pad: list[int] = field(default_factory=lambda: [0, 0])


@dataclass
class CntkPoolingParameters(CntkParameters):
    """`pooling_type`: 0 maximum, 1 mean. A kernel of zeros covers the whole sample; padding as for a convolution."""

    stride: list[int] = field(default_factory=lambda: [0, 0])
    kernel: list[int] = field(default_factory=lambda: [0, 0])
    auto_pad: bool = False
    pooling_type: int = 0
    pad: list[int] = field(default_factory=lambda: [0, 0])


@dataclass
class CntkBatchNormParameters(CntkParameters):
    """Tensors are mean, variance, the divisor of both, and optionally scale and bias."""

    spatial: int = 2
    norm_time_const: int = 0
    blend_time_const: int = 0
    epsilon: float = 1e-5
    scale_setting: list[int] = field(default_factory=lambda: [1, 1])
    bias_setting: list[int] = field(default_factory=lambda: [1, 1])


@dataclass
class CntkDenseParameters(CntkParameters):
    """`transpose`: weights are [outputs, inputs], not [inputs, outputs]."""

    num_output: int = 0
    scale_setting: list[int] = field(default_factory=lambda: [1, 1])
    bias_setting: list[int] = field(default_factory=lambda: [1, 1])
    transpose: bool = False


@dataclass
class CntkSpliceParameters(CntkParameters):
    """`axis` counts the batch axis. Also for softmax and flatten."""

    axis: int = 1


@dataclass
class CntkLRNParameters(CntkParameters):
    """`kernel_size`: channels in a window, or its rows and columns where it lies `within_channel`."""

    kernel_size: int = 5
    alpha: float = 1
    beta: float = 5
    k: float = 1
    within_channel: bool = False


@dataclass
class CntkPSROIPoolingParameters(CntkParameters):
    """The parameters of a layer that is not supported."""

    group_size: int = 1
    out_channel: int = 1


@dataclass
class CntkNumberParameters(CntkParameters):
    """One number: the slope of a ReLU below 0, the rate of a dropout, alpha of an ELU."""

    number: float = 0


@dataclass
class CntkEltwiseParameters(CntkParameters):
    """The coefficients of the operands of a sum; by default 1."""

    coefficients: list[float] = field(default_factory=list)


@dataclass
class CntkPowerParameters(CntkParameters):
    """(shift + scale * x) ** power."""

    power: float = 1
    scale: float = 1
    shift: float = 0


@dataclass
class CntkTensorDefinition:
    """An array of weights, with its shape."""

    tensor: Any = field(default_factory=lambda: [0])
    data: Any = field(default_factory=list)


@dataclass
class CntkLayersDefinition:
    """A layer: its name, the names of its input layers, and its weights. `tensor`: the shape of an input."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    op_name: Any = None
    parameters: Any = None
    op_type: CntkLayerType = CntkLayerType.unknown
    tensor: Any = field(default_factory=list)
    parameter_tensor: list[CntkTensorDefinition] = field(default_factory=list)


@dataclass
class CntkSolver:
    """Training settings, which are not read from Caffe's files."""

    learning_rate: Any = None
    max_epoch: Any = None
    adjust_interval: Any = None
    decrease_factor: Any = None
    upper_limit: Any = None
    minibatch_size: Any = None
    weight_decay: Any = None
    dropout: Any = None
    number_to_show_result: Any = None
    grad_update_type: Any = None
    momentum: Any = None


@dataclass
class CntkModelDescription:
    """A network: its inputs, its layers by name, and their names in the order of computation."""

    data_provider: list[CntkLayersDefinition] = field(default_factory=list)
    cntk_layers: dict[str, CntkLayersDefinition] = field(default_factory=dict)
    cntk_sorted_layers: list[str] = field(default_factory=list)
    model_name: str = "Untitled"
    solver: CntkSolver | None = None
