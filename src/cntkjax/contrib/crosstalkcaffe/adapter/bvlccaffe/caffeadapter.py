"""Caffe's layers as layers of a described network.

Source: Caffe's layer catalogue for what the layers compute and for what their parameters are without a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....formats.wire import FormatError
from ...unimodel.cntkmodel import (
    CntkBatchNormParameters,
    CntkConvolutionParameters,
    CntkDenseParameters,
    CntkEltwiseParameters,
    CntkLayersDefinition,
    CntkLayerType,
    CntkLRNParameters,
    CntkModelDescription,
    CntkNumberParameters,
    CntkParameters,
    CntkPoolingParameters,
    CntkPowerParameters,
    CntkSpliceParameters,
    CntkTensorDefinition,
)
from ...utils.globalconf import GlobalConf, SourceSolverConf
from ..baseadapter import Adapter
from .caffefiles import Message, read_network, read_weights

TRAIN, TEST = "TRAIN", "TEST"
_INPUTS = ("Input", "Data", "ImageData", "HDF5Data", "MemoryData", "DummyData", "WindowData")
_LEFT_OUT = (
    "Accuracy", "ArgMax", "Silence", "SoftmaxWithLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss",
    "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss", "ContrastiveLoss", "HDF5Output",
)  # fmt: skip

Described = tuple[CntkLayerType, CntkParameters]


def _pair(own: Message, name: str, other: str, default: int) -> list[int]:
    """A number for height and width, which may be given together or apart."""
    given = own.many(name)
    if f"{other}_h" in own or f"{other}_w" in own:
        return [int(own.one(f"{other}_{axis}", default)) for axis in "hw"]
    return [int(n) for n in (given * 2 if len(given) == 1 else given or [default] * 2)]


def _convolution(layer: Message) -> Described:
    own = layer.part("convolution_param")
    made = CntkConvolutionParameters(
        output=int(own.one("num_output", 0)), kernel=_pair(own, "kernel_size", "kernel", 0),
        stride=_pair(own, "stride", "stride", 1), pad=_pair(own, "pad", "pad", 0),
        dilation=_pair(own, "dilation", "dilation", 1), group=int(own.one("group", 1)),
        need_bias=own.one("bias_term", True),
    )  # fmt: skip
    windows = zip(made.pad, made.kernel, made.stride, made.dilation, strict=True)
    if any(made.pad) and all(step == 1 and 2 * pad == apart * (size - 1) for pad, size, step, apart in windows):
        made.auto_pad, made.pad = True, [0, 0]  # the same, as CNTK writes it
    return CntkLayerType.convolution, made


def _pooling(layer: Message) -> Described:
    own = layer.part("pooling_param")
    kinds = {"MAX": 0, "AVE": 1}
    kind = own.one("pool", "MAX")
    if kind not in kinds:
        raise ValueError(f"pooling {kind}")
    whole = own.one("global_pooling", False)
    return CntkLayerType.pooling, CntkPoolingParameters(
        kernel=[0, 0] if whole else _pair(own, "kernel_size", "kernel", 0), pooling_type=kinds[kind],
        stride=_pair(own, "stride", "stride", 1), pad=_pair(own, "pad", "pad", 0),
    )  # fmt: skip


def _dense(layer: Message) -> Described:
    own = layer.part("inner_product_param")
    if own.one("axis", 1) != 1:
        raise ValueError(f"an inner product from axis {own.one('axis')} on")
    return CntkLayerType.dense, CntkDenseParameters(
        num_output=int(own.one("num_output", 0)), transpose=not own.one("transpose", False)
    )


def _batch_norm(layer: Message) -> Described:
    return CntkLayerType.batch_norm, CntkBatchNormParameters(epsilon=layer.part("batch_norm_param").one("eps", 1e-5))


def _scale(layer: Message) -> Described:
    own = layer.part("scale_param")
    if own.one("axis", 1) != 1 or own.one("num_axes", 1) != 1 or len(layer.many("bottom")) != 1:
        raise ValueError("scales of other axes than the channels")
    return CntkLayerType.scale, CntkParameters()


def _lrn(layer: Message) -> Described:
    own = layer.part("lrn_param")
    if own.one("norm_region", "ACROSS_CHANNELS") != "ACROSS_CHANNELS":
        raise ValueError(f"normalization {own.one('norm_region')}")
    return CntkLayerType.lrn, CntkLRNParameters(
        kernel_size=int(own.one("local_size", 5)), alpha=own.one("alpha", 1.0), beta=own.one("beta", 0.75),
        k=own.one("k", 1.0),
    )  # fmt: skip


def _eltwise(layer: Message) -> Described:
    own = layer.part("eltwise_param")
    kinds = {
        "SUM": CntkLayerType.plus, "PROD": CntkLayerType.element_times, "MAX": CntkLayerType.element_max,
    }  # fmt: skip
    return kinds[own.one("operation", "SUM")], CntkEltwiseParameters(own.many("coeff"))


def _number(kind: CntkLayerType, field: str, name: str, default: float) -> Callable[[Message], Described]:
    return lambda layer: (kind, CntkNumberParameters(layer.part(field).one(name, default)))


def _along(kind: CntkLayerType, field: str) -> Callable[[Message], Described]:
    def described(layer: Message) -> Described:
        own = layer.part(field)
        return kind, CntkSpliceParameters(int(own.one("axis", own.one("concat_dim", 1))))

    return described


def _plain(kind: CntkLayerType) -> Callable[[Message], Described]:
    return lambda layer: (kind, CntkParameters())


def _power(layer: Message) -> Described:
    own = layer.part("power_param")
    return CntkLayerType.power, CntkPowerParameters(own.one("power", 1.0), own.one("scale", 1.0), own.one("shift", 0.0))


_LAYERS: dict[str, Callable[[Message], Described]] = {
    "Convolution": _convolution, "Pooling": _pooling, "InnerProduct": _dense, "BatchNorm": _batch_norm,
    "Scale": _scale, "LRN": _lrn, "Eltwise": _eltwise, "Power": _power,
    "ReLU": _number(CntkLayerType.relu, "relu_param", "negative_slope", 0.0),
    "ELU": _number(CntkLayerType.elu, "elu_param", "alpha", 1.0),
    "Dropout": _number(CntkLayerType.dropout, "dropout_param", "dropout_ratio", 0.5),
    "Concat": _along(CntkLayerType.splice, "concat_param"), "Softmax": _along(CntkLayerType.softmax, "softmax_param"),
    "Flatten": _along(CntkLayerType.flatten, "flatten_param"), "Sigmoid": _plain(CntkLayerType.sigmoid),
    "TanH": _plain(CntkLayerType.tanh), "AbsVal": _plain(CntkLayerType.abs), "PReLU": _plain(CntkLayerType.param_relu),
}  # fmt: skip
_WEIGHTED = ("Convolution", "InnerProduct", "BatchNorm", "Scale", "PReLU")


class CaffeAdapter(Adapter):
    """Reads a network of Caffe, as it is tested: without losses, and of inputs only those that are needed."""

    def load_model(self, global_conf: GlobalConf) -> CntkModelDescription:
        """The network that a configuration names.

        Errors: FormatError for damaged files, ValueError for layers that are not converted or have no weights, each
                with the file and the layer.
        """
        source = global_conf.source_solver
        if source.model_path is None or source.weights_path is None:
            raise ValueError("SourceSolver needs ModelPath, a prototxt, and WeightsPath, a caffemodel")
        network, weights = read_network(source.model_path), read_weights(source.weights_path)
        phase = TRAIN if source.phase == 0 else TEST
        made = CntkModelDescription(model_name=str(network.one("name", "Untitled")))
        inputs = _declared_inputs(network)
        makers = {name: name for name in inputs}  # of each blob, the layer that made it last
        for layer in network.many("layer"):
            kind, name = str(layer.one("type")), str(layer.one("name"))
            if not _takes_part(layer, phase) or kind in _LEFT_OUT:
                continue
            if kind in _INPUTS:
                shapes = layer.part("input_param").many("shape")
                shapes = shapes * len(layer.many("top")) if len(shapes) == 1 else shapes
                for i, top in enumerate(layer.many("top")):
                    inputs[top], makers[top] = (shapes[i].many("dim") if i < len(shapes) else None), top
                continue
            where = f"{source.model_path}: layer {name!r} ({kind})"
            missing = [blob for blob in layer.many("bottom") if blob not in makers]
            if missing or name in made.cntk_layers:
                raise FormatError(f"{where}: " + (f"nothing makes {missing[0]!r}" if missing else "it is there twice"))
            operands = [makers[blob] for blob in layer.many("bottom")]
            if kind == "Split":
                makers |= dict.fromkeys(layer.many("top"), operands[0])
                continue
            if kind not in _LAYERS:
                raise ValueError(f"{where} is not converted")
            if kind in _WEIGHTED and not weights.get(name):
                raise ValueError(f"{where} has no weights in {source.weights_path}")
            try:
                op_type, parameters = _LAYERS[kind](layer)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{where}: {error} is not converted") from error
            arrays = [CntkTensorDefinition(array.shape, array) for array in weights.get(name, [])]
            made.cntk_layers[name] = CntkLayersDefinition(
                operands, list(layer.many("top")), name, parameters, op_type, parameter_tensor=arrays
            )
            made.cntk_sorted_layers.append(name)
            makers |= dict.fromkeys(layer.many("top"), name)
        _merge_scales(made)
        made.data_provider = list(_providers(made, inputs, source))
        return made


def _declared_inputs(network: Message) -> dict[str, Any]:
    """Inputs that stand before the layers, and their shapes with the batch axis."""
    names, shapes, sizes = network.many("input"), network.many("input_shape"), network.many("input_dim")
    dims = [shape.many("dim") for shape in shapes] or [sizes[i : i + 4] for i in range(0, len(sizes), 4)]
    return {name: dims[i] if i < len(dims) else None for i, name in enumerate(names)}


def _takes_part(layer: Message, phase: str) -> bool:
    includes, excludes = ([rule.one("phase", phase) for rule in layer.many(name)] for name in ("include", "exclude"))
    return layer.one("phase", phase) == phase and phase not in excludes and (not includes or phase in includes)


def _merge_scales(model: CntkModelDescription) -> None:
    """Makes one normalization of a BatchNorm and the Scale that alone takes what it makes, as CNTK has both in one."""
    taken = Counter(name for layer in model.cntk_layers.values() for name in layer.inputs)
    merged: dict[str, str] = {}
    for name in list(model.cntk_sorted_layers):
        layer = model.cntk_layers[name]
        layer.inputs = [merged.get(operand, operand) for operand in layer.inputs]
        before = model.cntk_layers.get(layer.inputs[0]) if layer.op_type is CntkLayerType.scale else None
        if before is None or before.op_type is not CntkLayerType.batch_norm or taken[before.op_name] != 1:
            continue
        size = before.parameter_tensor[0].tensor
        if len(before.parameter_tensor) == 2:
            before.parameter_tensor.append(CntkTensorDefinition((1,), np.ones(1, np.float32)))
        before.parameter_tensor += layer.parameter_tensor
        if len(layer.parameter_tensor) == 1:
            before.parameter_tensor.append(CntkTensorDefinition(size, np.zeros(size, np.float32)))
        merged[name] = before.op_name
        del model.cntk_layers[name]
        model.cntk_sorted_layers.remove(name)


def _providers(
    model: CntkModelDescription, inputs: dict[str, Any], source: SourceSolverConf
) -> Sequence[CntkLayersDefinition]:
    """The inputs that some layer takes."""
    made = []
    for name in dict.fromkeys(operand for layer in model.cntk_layers.values() for operand in layer.inputs):
        if name not in inputs or name in model.cntk_layers:
            continue
        given = (source.tensor or {}).get(name)
        shape = given if given is not None else (inputs[name] or [])[1:]
        if not shape:
            raise ValueError(f"{source.model_path} tells no shape of input {name!r}: give it in Tensor of SourceSolver")
        made.append(CntkLayersDefinition(op_name=name, tensor=[int(n) for n in shape]))
    return made
