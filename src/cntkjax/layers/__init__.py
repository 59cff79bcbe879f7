"""Layers: functions with parameters of their own, in CNTK's names and signatures."""

from ..axis import Axis
from ..default_options import default_options, default_override_or, get_default_override, is_default_override
from ..graph.shape import INFERRED as InferredDimension
from ..initializer import SentinelValueForAutoSelectRandomSeed, glorot_uniform
from ..ops import (
    PoolingType_Average,
    PoolingType_Max,
    alias,
    batch_normalization,
    combine,
    convolution,
    convolution_transpose,
    dropout,
    placeholder,
    pooling,
    reconcile_dynamic_axes,
    reduce_mean,
    reshape,
    sigmoid,
    slice,
    softplus,
    splice,
    sqrt,
    tanh,
    times,
    unpooling,
)
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Constant, Parameter, Record, Variable, tensor
from . import blocks, higher_order_layers, layers, sequence, typing
from .blocks import GRU, LSTM, ForwardDeclaration, RNNStep, RNNUnit, Stabilizer, UntestedBranchError
from .higher_order_layers import For, ResNetBlock, Sequential, SequentialClique
from .layers import (
    Activation,
    AveragePooling,
    BatchNormalization,
    Convolution,
    Convolution1D,
    Convolution2D,
    Convolution3D,
    ConvolutionTranspose,
    ConvolutionTranspose1D,
    ConvolutionTranspose2D,
    ConvolutionTranspose3D,
    Dense,
    Dropout,
    Embedding,
    GlobalAveragePooling,
    GlobalMaxPooling,
    Label,
    LayerNormalization,
    MaxPooling,
    MaxUnpooling,
    SequentialConvolution,
)
from .sequence import Delay, Fold, PastValueWindow, Recurrence, RecurrenceFrom, UnfoldFrom
from .typing import ParameterTensor, Sequence, SequenceOver, SequenceOverMeta, Signature, SparseTensor, Tensor

from . import models  # isort: skip - it needs the layers above
from .models import AttentionModel, attention  # isort: skip

