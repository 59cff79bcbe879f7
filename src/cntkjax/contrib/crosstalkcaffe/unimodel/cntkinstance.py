"""Layers of converted networks, with their weights given. Networks that MMdnn writes for CNTK import this, too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....layers.blocks import BlockFunction
from ....ops.functions import Function
from ....variables import Constant, Parameter
from ..utils.globalconf import GlobalConf
from .cntkmodel import CntkLayersDefinition, CntkModelDescription

_LOWEST = float(np.finfo(np.float32).min)
_TIME_CONSTANT = 5000  # of the statistics of a batch normalization that is trained on


class BlockApiSetup:
    """Makers of layers.

    Example:
        >>> import cntkjax as C
        >>> layer = BlockApiSetup.linear(2, 3, np.ones((3, 2), np.float32), None, "fc")
        >>> layer(C.input_variable(3)).eval([[1, 2, 3]])
        array([[6., 6.]], dtype=float32)
    """

    @staticmethod
    def convolution(
        output: int,
        kernel: Sequence[int],
        stride: Any,
        pad: Any,
        kernel_init: Any,
        bias_init: Any,
        group: int,
        dilation: Any,
        name: str,
    ) -> Function:
        """A convolution with filters `kernel_init` [output, channels / group, *kernel] and a bias [output] or None."""
        steps = len(kernel)
        filters = Parameter(shape=np.shape(kernel_init), init=kernel_init, name=f"{name}.sc")
        bias = _bias(bias_init, output, name, (1,) * steps)

        @BlockFunction("convolution", name)
        def convolution(x: Any) -> Any:
            padding = [False, *np.broadcast_to(pad, steps).tolist()]
            made = ops.convolution(filters, x, strides=stride, auto_padding=padding, dilation=dilation, groups=group)
            return made + bias

        return convolution

    @staticmethod
    def linear(output_shape: int, input_shape: Any, scale_init: Any, bias_init: Any, name: str) -> Function:
        """x @ W + b with W = `scale_init` [*input_shape, output_shape]; b is 0 without `bias_init`."""
        scale = Parameter((*np.atleast_1d(input_shape), output_shape), init=scale_init, name=f"{name}.sc")
        bias = _bias(bias_init, output_shape, name, ())

        @BlockFunction("linear", name)
        def linear(x: Any) -> Any:
            return ops.times(x, scale) + bias

        return linear

    @staticmethod
    def lrn(k: float, n: int, alpha: float, beta: float, name: str) -> Function:
        """Local response normalization over n - 1 channels on both sides, as in CNTK."""

        @BlockFunction("lrn", name)
        def lrn(x: Any) -> Any:
            return ops.local_response_normalization(x, n - 1, k, alpha, beta)

        return lrn


class ApiSetup:
    """Functions of described layers: ``(layer, operands) -> function``, with the layer's name.

    Example:
        >>> import cntkjax as C
        >>> layer = CntkLayersDefinition(op_name="both")
        >>> a, b = C.input_variable(2), C.input_variable(2)
        >>> ApiSetup.plus(layer, [a, b]).eval({a: [[1, 2]], b: [[10, 20]]})
        array([[11., 22.]], dtype=float32)
    """

    @staticmethod
    def convolution(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With filters and bias ``name.W`` and ``name.b``."""
        own, name = cntk_layer.parameters, cntk_layer.op_name
        weights = _tensor(cntk_layer, 0)
        filters = Parameter(init=weights.reshape(own.output, -1, *own.kernel), name=f"{name}.W")
        bias = Parameter(init=_tensor(cntk_layer, 1).reshape(-1, 1, 1), name=f"{name}.b") if own.need_bias else None

        @BlockFunction("Convolution", name)
        def convolution(x: Any) -> Any:
            made = ops.convolution(
                filters, _padded(x, own.pad), own.stride, auto_padding=[False, own.auto_pad, own.auto_pad],
                dilation=[1, *own.dilation], groups=own.group,
            )  # fmt: skip
            return made if bias is None else made + bias

        return convolution(inputs[0])

    @staticmethod
    def pooling(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A window that begins inside of the padded sample may reach over its end; means count the padding."""
        own, (x,) = cntk_layer.parameters, inputs
        kernel = own.kernel if any(own.kernel) else x.shape[1:]
        stride = [max(step, 1) for step in own.stride]
        padded = _padded(x, own.pad, _LOWEST if own.pooling_type == 0 else 0)
        made = ops.pooling(padded, own.pooling_type, kernel, stride, [own.auto_pad], ceil_out_dim=True)
        if any(own.pad):  # Caffe leaves out a last window that lies in the padding behind the sample
            most = [-(-(n + pad) // step) for n, pad, step in zip(x.shape[1:], own.pad, stride, strict=True)]
            for axis, (have, want) in enumerate(zip(made.shape[1:], most, strict=True), 1):
                made = ops.slice(made, axis, 0, want) if have > want else made
        return ops.alias(made, cntk_layer.op_name)

    @staticmethod
    def batch_norm(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With the statistics that the layer has; parameters ``name.scale``, ``.bias``, ``.mean``, ``.var``."""
        name = cntk_layer.op_name
        mean, variance, *rest = (_tensor(cntk_layer, i).ravel() for i in range(len(cntk_layer.parameter_tensor)))
        factor = rest[0][0] if rest else 1
        share = 1 / factor if factor else 0
        given = {
            "scale": rest[1] if len(rest) > 1 else np.ones_like(mean),
            "bias": rest[2] if len(rest) > 2 else np.zeros_like(mean),
            "mean": mean * share, "var": variance * share,
        }  # fmt: skip
        made = {kind: Parameter(init=values, name=f"{name}.{kind}") for kind, values in given.items()}
        return ops.batch_normalization(
            inputs[0], made["scale"], made["bias"], made["mean"], made["var"], running_count=Constant(0), spatial=True,
            normalization_time_constant=_TIME_CONSTANT, epsilon=cntk_layer.parameters.epsilon,
            use_cudnn_engine=False, name=name,
        )  # fmt: skip

    @staticmethod
    def relu(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With a slope below 0, if the layer has one."""
        slope, (x,) = getattr(cntk_layer.parameters, "number", 0), inputs
        return ops.leaky_relu(x, slope, cntk_layer.op_name) if slope else ops.relu(x, cntk_layer.op_name)

    @staticmethod
    def dense(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A product with all elements of a sample."""
        own, (x,) = cntk_layer.parameters, inputs
        weights = _tensor(cntk_layer, 0)
        weights = weights.reshape(own.num_output, -1).T if own.transpose else weights.reshape(-1, own.num_output)
        if len(weights) != prod(x.shape):
            raise ValueError(f"layer {cntk_layer.op_name!r} has weights for {len(weights)} of {prod(x.shape)} elements")
        biases = [_tensor(cntk_layer, i).ravel() for i in range(1, len(cntk_layer.parameter_tensor))]
        bias = np.broadcast_to(biases[0], own.num_output) if biases else None
        shaped = weights.reshape(*x.shape, own.num_output)
        return BlockApiSetup.linear(own.num_output, x.shape, shaped, bias, cntk_layer.op_name)(x)

    @staticmethod
    def plus(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The sum, of operands times coefficients if the layer has them."""
        weights = getattr(cntk_layer.parameters, "coefficients", None) or [1] * len(inputs)
        parts = [x if w == 1 else x * w for x, w in zip(inputs, weights, strict=True)]
        return _joined(ops.plus, cntk_layer, parts)

    @staticmethod
    def element_times(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The product of the operands."""
        return _joined(ops.element_times, cntk_layer, inputs)

    @staticmethod
    def element_max(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The largest of the operands."""
        return _joined(ops.element_max, cntk_layer, inputs)

    @staticmethod
    def scale(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """A factor for each channel, and a bias if the layer has one."""
        name, rank = cntk_layer.op_name, len(inputs[0].shape)
        factors, *biases = (
            Parameter(init=_tensor(cntk_layer, i).reshape(-1, *(1,) * (rank - 1)), name=f"{name}.{kind}")
            for i, kind in enumerate(("scale", "bias")[: len(cntk_layer.parameter_tensor)])
        )
        made = inputs[0] * factors
        return ops.alias(made + biases[0] if biases else made, name)

    @staticmethod
    def dropout(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """At the layer's rate."""
        return ops.dropout(inputs[0], getattr(cntk_layer.parameters, "number", 0), name=cntk_layer.op_name)

    @staticmethod
    def lrn(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """x / (k + alpha * mean of the squares in a window of channels) ** beta."""
        own = cntk_layer.parameters
        return BlockApiSetup.lrn(
            own.k, (own.kernel_size + 1) // 2, own.alpha, own.beta, cntk_layer.op_name
        )(inputs[0])  # fmt: skip

    @staticmethod
    def splice(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """The operands side by side."""
        return ops.splice(*inputs, axis=_axis(cntk_layer), name=cntk_layer.op_name)

    @staticmethod
    def softmax(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """Over one axis: the channels, if the layer names no other one."""
        return ops.softmax(inputs[0], _axis(cntk_layer), cntk_layer.op_name)

    @staticmethod
    def flatten(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """All axes from one on become one."""
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
        own = cntk_layer.parameters
        base = inputs[0] * own.scale + own.shift
        return ops.alias(base if own.power == 1 else ops.pow(base, own.power), cntk_layer.op_name)

    @staticmethod
    def param_relu(cntk_layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
        """With a learned slope below 0 for each channel."""
        slopes = _tensor(cntk_layer, 0).reshape(-1, *(1,) * (len(inputs[0].shape) - 1))
        return ops.param_relu(Parameter(init=slopes, name=f"{cntk_layer.op_name}.alpha"), inputs[0], cntk_layer.op_name)


class CntkApiInstance:
    """The functions of a described network."""

    def __init__(self, cntk_uni_model: CntkModelDescription, global_conf: GlobalConf) -> None:
        self._conf = global_conf
        self._functions: dict[str, Any] = {
            given.op_name: ops.input_variable(tuple(given.tensor), name=given.op_name)
            for given in cntk_uni_model.data_provider
        }
        layers = [cntk_uni_model.cntk_layers[name] for name in cntk_uni_model.cntk_sorted_layers]
        for layer in layers:
            made = getattr(ApiSetup, layer.op_type.name)(layer, [self._functions[name] for name in layer.inputs])
            self._functions[layer.op_name] = made
        used = {name for layer in layers for name in layer.inputs}
        ends = [self._functions[layer.op_name] for layer in layers if layer.op_name not in used]
        self._model = ops.combine(*ends, name="outputs")

    def get_model(self) -> Function:
        """All outputs that nothing else takes, as one function."""
        return self._model

    def get_functions(self) -> dict[str, Any]:
        """Inputs and layers by their names."""
        return self._functions

    def export_model(self) -> None:
        """Saves the model where the configuration says."""
        assert self._conf.model_solver.cntk_model_path is not None
        self._model.save(self._conf.model_solver.cntk_model_path)


def _tensor(layer: CntkLayersDefinition, index: int) -> np.ndarray:
    if index >= len(layer.parameter_tensor):
        raise ValueError(f"layer {layer.op_name!r} has {len(layer.parameter_tensor)} arrays of weights, too few")
    return np.asarray(layer.parameter_tensor[index].data, np.float32)


def _padded(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    return ops.pad(x, [(0, 0), *((n, n) for n in pad)], constant_value=value) if any(pad) else x


def _axis(layer: CntkLayersDefinition) -> int:
    """A static axis; those of layers count the batch axis in."""
    axis = getattr(layer.parameters, "axis", 1)
    if axis == 0:
        raise ValueError(f"layer {layer.op_name!r} works along the batch axis")
    return axis - 1 if axis > 0 else axis


def _joined(operation: Any, layer: CntkLayersDefinition, inputs: Sequence[Any]) -> Function:
    return ops.alias(reduce(operation, inputs), layer.op_name)


def _bias(given: Any, size: int, name: str, behind: tuple[int, ...]) -> Parameter:
    values = np.zeros(size, np.float32) if given is None else np.asarray(given, np.float32)
    return Parameter(init=values.reshape(size, *behind), name=f"{name}.b")
