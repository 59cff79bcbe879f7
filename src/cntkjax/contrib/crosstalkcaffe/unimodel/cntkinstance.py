"""Layers of converted networks, with their weights. Networks that MMdnn writes for CNTK import this, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from .... import ops
from ...._typing import ArrayLike, ShapeLike
from ....graph.errors import explain
from ....layers.blocks import BlockFunction
from ....ops.functions import Function
from ....variables import Constant, Parameter, Variable
from ..utils.globalconf import GlobalConf
from .cntkmodel import CntkLayersDefinition, CntkModelDescription

Value: TypeAlias = Variable | Function  # a function of one output

_LOWEST = float(np.finfo(np.float32).min)
_TIME_CONSTANT = 5000  # of the statistics of a batch normalization that is trained on


class BlockApiSetup:
    """Constructors of layers.

    >>> import cntkjax as C
    >>> layer = BlockApiSetup.linear(2, 3, np.ones((3, 2), np.float32), None, "fc")
    >>> layer(C.input_variable(3)).eval([[1, 2, 3]])
    array([[6., 6.]], dtype=float32)
    """

    @staticmethod
    def convolution(
        output: int,
        kernel: Sequence[int],
        stride: ShapeLike,
        pad: bool | Sequence[bool],
        kernel_init: ArrayLike,
        bias_init: ArrayLike | None,
        group: int,
        dilation: ShapeLike,
        name: str,
    ) -> Function:
        """A convolution with filters `kernel_init` [output, channels / group, *kernel] and a bias [output] or None."""
        steps = len(kernel)
        filters = Parameter(shape=np.shape(kernel_init), init=kernel_init, name=f"{name}.sc")
        bias = _bias(bias_init, output, name, (1,) * steps)

        @BlockFunction("convolution", name)
        def convolution(x: Value) -> Function:
            padding = [False, *np.broadcast_to(pad, steps).tolist()]
            y = ops.convolution(filters, x, strides=stride, auto_padding=padding, dilation=dilation, groups=group)
            return y + bias

        return convolution

    @staticmethod
    def linear(
        output_shape: int, input_shape: ShapeLike, scale_init: ArrayLike, bias_init: ArrayLike | None, name: str
    ) -> Function:
        """x @ W + b with W = `scale_init` [*input_shape, output_shape]; b is 0 without `bias_init`."""
        scale = Parameter((*np.atleast_1d(input_shape), output_shape), init=scale_init, name=f"{name}.sc")
        bias = _bias(bias_init, output_shape, name, ())

        @BlockFunction("linear", name)
        def linear(x: Value) -> Function:
            return ops.times(x, scale) + bias

        return linear

    @staticmethod
    def lrn(k: float, n: int, alpha: float, beta: float, name: str) -> Function:
        """Local response normalization over n - 1 channels on each side, as in CNTK."""

        @BlockFunction("lrn", name)
        def lrn(x: Value) -> Function:
            return ops.local_response_normalization(x, n - 1, k, alpha, beta)

        return lrn


class ApiSetup:
    """Functions for layer definitions: ``(layer, operands) -> function``, with the layer's name.

    >>> import cntkjax as C
    >>> layer = CntkLayersDefinition(op_name="both")
    >>> a, b = C.input_variable(2), C.input_variable(2)
    >>> ApiSetup.plus(layer, [a, b]).eval({a: [[1, 2]], b: [[10, 20]]})
    array([[11., 22.]], dtype=float32)
    """

    @staticmethod
    def convolution(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With filters and bias ``name.W`` and ``name.b``."""
        params, name = cntk_layer.parameters, cntk_layer.op_name
        weights = _tensor(cntk_layer, 0)
        filters = Parameter(init=weights.reshape(params.output, -1, *params.kernel), name=f"{name}.W")
        bias = Parameter(init=_tensor(cntk_layer, 1).reshape(-1, 1, 1), name=f"{name}.b") if params.need_bias else None

        @BlockFunction("Convolution", name)
        def convolution(x: Value) -> Function:
            y = ops.convolution(
                filters, _padded(x, params.pad), params.stride, auto_padding=[False, params.auto_pad, params.auto_pad],
                dilation=[1, *params.dilation], groups=params.group,
            )
            return y if bias is None else y + bias

        return convolution(inputs[0])

    @staticmethod
    def deconvolution(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """Each element adds its filter to a window of the result, of which the padding is cut off.

        Parameters ``name.W`` [channels, output / group, *kernel] and ``name.b``.
        """
        params, name, (x,) = cntk_layer.parameters, cntk_layer.op_name, inputs
        channels, groups = x.shape[0], params.group
        weights = _tensor(cntk_layer, 0).reshape(channels, params.output // groups, *params.kernel)
        filters = Parameter(init=weights, name=f"{name}.W")
        bias = Parameter(init=_tensor(cntk_layer, 1).reshape(-1, 1, 1), name=f"{name}.b") if params.need_bias else None

        @BlockFunction("Deconvolution", name)
        def deconvolution(x: Value) -> Function:
            parts = [
                ops.convolution_transpose(
                    _channels(filters, group, groups, channels), _channels(x, group, groups, channels),
                    params.stride, auto_padding=[False], dilation=params.dilation,
                )
                for group in range(groups)
            ]
            y = parts[0] if groups == 1 else ops.splice(*parts, axis=0)
            for axis, pad in enumerate(params.pad, 1):
                y = ops.slice(y, axis, pad, -pad) if pad else y
            return y if bias is None else y + bias

        return deconvolution(x)

    @staticmethod
    def pooling(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A window that begins inside the padded sample may extend beyond its end; means include the padding."""
        params, (x,) = cntk_layer.parameters, inputs
        kernel = params.kernel if any(params.kernel) else x.shape[1:]
        stride = [max(step, 1) for step in params.stride]
        padded = _padded(x, params.pad, _LOWEST if params.pooling_type == 0 else 0)
        pooled = ops.pooling(padded, params.pooling_type, kernel, stride, [params.auto_pad], ceil_out_dim=True)
        if any(params.pad):  # Caffe drops a last window that lies within the padding after the sample
            sizes = [-(-(n + pad) // step) for n, pad, step in zip(x.shape[1:], params.pad, stride, strict=True)]
            for axis, (actual, expected) in enumerate(zip(pooled.shape[1:], sizes, strict=True), 1):
                pooled = ops.slice(pooled, axis, 0, expected) if actual > expected else pooled
        return ops.alias(pooled, cntk_layer.op_name)

    @staticmethod
    def batch_norm(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With the statistics of the layer; parameters ``name.scale``, ``.bias``, ``.mean``, ``.var``."""
        name = cntk_layer.op_name
        mean, variance, *rest = (_tensor(cntk_layer, i).ravel() for i in range(len(cntk_layer.parameter_tensor)))
        factor = rest[0][0] if rest else 1
        share = 1 / factor if factor else 0
        values = {
            "scale": rest[1] if len(rest) > 1 else np.ones_like(mean),
            "bias": rest[2] if len(rest) > 2 else np.zeros_like(mean),
            "mean": mean * share, "var": variance * share,
        }
        p = {kind: Parameter(init=array, name=f"{name}.{kind}") for kind, array in values.items()}
        return ops.batch_normalization(
            inputs[0], p["scale"], p["bias"], p["mean"], p["var"], running_count=Constant(0), spatial=True,
            normalization_time_constant=_TIME_CONSTANT, epsilon=cntk_layer.parameters.epsilon,
            use_cudnn_engine=False, name=name,
        )

    @staticmethod
    def relu(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With the layer's slope below 0, by default 0."""
        slope, (x,) = getattr(cntk_layer.parameters, "number", 0), inputs
        return ops.leaky_relu(x, slope, cntk_layer.op_name) if slope else ops.relu(x, cntk_layer.op_name)

    @staticmethod
    def dense(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A matrix product with all elements of a sample.

        Errors: ValueError if the weights are for another number of elements.
        """
        params, (x,) = cntk_layer.parameters, inputs
        weights = _tensor(cntk_layer, 0)
        if params.transpose:
            weights = weights.reshape(params.num_output, -1).T
        else:
            weights = weights.reshape(-1, params.num_output)
        if len(weights) != prod(x.shape):
            raise ValueError(explain(
                f"layer {cntk_layer.op_name!r} has weights for {len(weights)} of {prod(x.shape)} elements",
                fix="convert with the prototxt that the weights were trained with, or correct the shapes in Tensor",
            ))
        biases = [_tensor(cntk_layer, i).ravel() for i in range(1, len(cntk_layer.parameter_tensor))]
        bias = np.broadcast_to(biases[0], params.num_output) if biases else None
        shaped = weights.reshape(*x.shape, params.num_output)
        return BlockApiSetup.linear(params.num_output, x.shape, shaped, bias, cntk_layer.op_name)(x)

    @staticmethod
    def plus(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The sum of the operands, multiplied by coefficients if the layer has them."""
        weights = getattr(cntk_layer.parameters, "coefficients", None) or [1] * len(inputs)
        parts = [x if w == 1 else x * w for x, w in zip(inputs, weights, strict=True)]
        return _reduced(ops.plus, cntk_layer, parts)

    @staticmethod
    def element_times(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The product of the operands."""
        return _reduced(ops.element_times, cntk_layer, inputs)

    @staticmethod
    def element_max(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The largest of the operands."""
        return _reduced(ops.element_max, cntk_layer, inputs)

    @staticmethod
    def scale(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A factor for each channel, and a bias if the layer has one."""
        name, rank = cntk_layer.op_name, len(inputs[0].shape)
        factors, *biases = (
            Parameter(init=_tensor(cntk_layer, i).reshape(-1, *(1,) * (rank - 1)), name=f"{name}.{kind}")
            for i, kind in enumerate(("scale", "bias")[: len(cntk_layer.parameter_tensor)])
        )
        product = inputs[0] * factors
        return ops.alias(product + biases[0] if biases else product, name)

    @staticmethod
    def dropout(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """At the layer's rate."""
        return ops.dropout(inputs[0], getattr(cntk_layer.parameters, "number", 0), name=cntk_layer.op_name)

    @staticmethod
    def lrn(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """x / (k + alpha * mean of the squares in a window, of channels or within each channel) ** beta."""
        params, (x,) = cntk_layer.parameters, inputs
        if params.within_channel:
            size = (params.kernel_size,) * 2
            squares = _padded(ops.square(x), [n // 2 for n in size])
            mean = ops.pooling(squares, ops.AVG_POOLING, size)
            return ops.alias(x * ops.pow(params.k + params.alpha * mean, -params.beta), cntk_layer.op_name)
        return BlockApiSetup.lrn(
            params.k, (params.kernel_size + 1) // 2, params.alpha, params.beta, cntk_layer.op_name
        )(x)

    @staticmethod
    def splice(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The operands, concatenated along the layer's axis."""
        return ops.splice(*inputs, axis=_axis(cntk_layer), name=cntk_layer.op_name)

    @staticmethod
    def softmax(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """Along the layer's axis, by default the channels."""
        return ops.softmax(inputs[0], _axis(cntk_layer), cntk_layer.op_name)

    @staticmethod
    def flatten(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """All axes from the layer's axis on are merged into one."""
        shape, axis = inputs[0].shape, _axis(cntk_layer) % len(inputs[0].shape)
        return ops.reshape(inputs[0], (*shape[:axis], prod(shape[axis:])), name=cntk_layer.op_name)

    @staticmethod
    def sigmoid(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """1 / (1 + exp(-x))."""
        return ops.sigmoid(inputs[0], cntk_layer.op_name)

    @staticmethod
    def tanh(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """tanh(x)."""
        return ops.tanh(inputs[0], cntk_layer.op_name)

    @staticmethod
    def elu(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """x above 0, alpha * (exp(x) - 1) below."""
        return ops.elu(inputs[0], cntk_layer.parameters.number, cntk_layer.op_name)

    @staticmethod
    def abs(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """|x|."""
        return ops.abs(inputs[0], cntk_layer.op_name)

    @staticmethod
    def power(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """(shift + scale * x) ** power."""
        params = cntk_layer.parameters
        base = inputs[0] * params.scale + params.shift
        return ops.alias(base if params.power == 1 else ops.pow(base, params.power), cntk_layer.op_name)

    @staticmethod
    def param_relu(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With a learned slope below 0 for each channel."""
        slopes = _tensor(cntk_layer, 0).reshape(-1, *(1,) * (len(inputs[0].shape) - 1))
        return ops.param_relu(Parameter(init=slopes, name=f"{cntk_layer.op_name}.alpha"), inputs[0], cntk_layer.op_name)


class CntkApiInstance:
    """The functions of a network definition."""

    def __init__(self, cntk_uni_model: CntkModelDescription, global_conf: GlobalConf) -> None:
        self._conf = global_conf
        self._functions: dict[str, Any] = {
            provider.op_name: ops.input_variable(tuple(provider.tensor), name=provider.op_name)
            for provider in cntk_uni_model.data_provider
        }
        layers = [cntk_uni_model.cntk_layers[name] for name in cntk_uni_model.cntk_sorted_layers]
        for layer in layers:
            function = getattr(ApiSetup, layer.op_type.name)(layer, [self._functions[name] for name in layer.inputs])
            self._functions[layer.op_name] = function
        used = {name for layer in layers for name in layer.inputs}
        ends = [self._functions[layer.op_name] for layer in layers if layer.op_name not in used]
        self._model = ops.combine(*ends, name="outputs")

    def get_model(self) -> Function:
        """One function of all outputs that no other layer uses."""
        return self._model

    def get_functions(self) -> dict[str, Any]:
        """Inputs and layers by name."""
        return self._functions

    def export_model(self) -> None:
        """Save the model to the path in the configuration."""
        assert self._conf.model_solver.cntk_model_path is not None
        self._model.save(self._conf.model_solver.cntk_model_path)


def _tensor(layer: CntkLayersDefinition, index: int) -> np.ndarray:
    if index >= len(layer.parameter_tensor):
        raise ValueError(explain(
            f"layer {layer.op_name!r} has {len(layer.parameter_tensor)} arrays of weights, too few",
            fix="convert with the caffemodel that belongs to the prototxt",
        ))
    return np.asarray(layer.parameter_tensor[index].data, np.float32)


def _padded(x: Value, pad: Sequence[int], value: float = 0) -> Value:
    return ops.pad(x, [(0, 0), *((n, n) for n in pad)], constant_value=value) if any(pad) else x


def _channels(x: Value | Parameter, group: int, groups: int, channels: int) -> Value | Parameter:
    """One of several equal groups of channels."""
    size = channels // groups
    return x if groups == 1 else ops.slice(x, 0, group * size, (group + 1) * size)


def _axis(layer: CntkLayersDefinition) -> int:
    """The static axis of a layer; in Caffe axis 0 is the batch axis."""
    axis = getattr(layer.parameters, "axis", 1)
    if axis == 0:
        raise ValueError(f"layer {layer.op_name!r} operates on the batch axis, which is not supported")
    return axis - 1 if axis > 0 else axis


def _reduced(operation: Callable[[Any, Any], Function], layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
    return ops.alias(reduce(operation, inputs), layer.op_name)


def _bias(init: ArrayLike | None, size: int, name: str, trailing: tuple[int, ...]) -> Parameter:
    values = np.zeros(size, np.float32) if init is None else np.asarray(init, np.float32)
    return Parameter(init=values.reshape(size, *trailing), name=f"{name}.b")
