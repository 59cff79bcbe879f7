"""Conversion of Caffe's layers to layer definitions.

Source: Caffe's layer catalogue for the computations and the default values of parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .....formats.dictionary import FormatError
from .....graph.errors import explain
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
_SKIPPED = (
    "Accuracy", "ArgMax", "Silence", "SoftmaxWithLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss",
    "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss", "ContrastiveLoss", "HDF5Output",
)

Described = tuple[CntkLayerType, CntkParameters]


def _pair(params: Message, name: str, other: str, default: int) -> list[int]:
    """A value for height and width, which a layer specifies together or separately."""
    values = params.many(name)
    if f"{other}_h" in params or f"{other}_w" in params:
        return [int(params.one(f"{other}_{axis}", default)) for axis in "hw"]
    return [int(n) for n in (values * 2 if len(values) == 1 else values or [default] * 2)]


def _windows(layer: Message) -> CntkConvolutionParameters:
    params = layer.part("convolution_param")
    return CntkConvolutionParameters(
        output=int(params.one("num_output", 0)), kernel=_pair(params, "kernel_size", "kernel", 0),
        stride=_pair(params, "stride", "stride", 1), pad=_pair(params, "pad", "pad", 0),
        dilation=_pair(params, "dilation", "dilation", 1), group=int(params.one("group", 1)),
        need_bias=params.one("bias_term", True),
    )


def _convolution(layer: Message) -> Described:
    convolution = _windows(layer)
    windows = zip(convolution.pad, convolution.kernel, convolution.stride, convolution.dilation, strict=True)
    is_same_padding = all(step == 1 and 2 * pad == dilation * (size - 1) for pad, size, step, dilation in windows)
    if any(convolution.pad) and is_same_padding:
        convolution.auto_pad, convolution.pad = True, [0, 0]  # equivalent, and how CNTK writes it
    return CntkLayerType.convolution, convolution


def _pooling(layer: Message) -> Described:
    params = layer.part("pooling_param")
    kinds = {"MAX": 0, "AVE": 1}
    kind = params.one("pool", "MAX")
    if kind not in kinds:
        raise ValueError(f"pooling {kind}")
    is_global = params.one("global_pooling", False)
    return CntkLayerType.pooling, CntkPoolingParameters(
        kernel=[0, 0] if is_global else _pair(params, "kernel_size", "kernel", 0), pooling_type=kinds[kind],
        stride=_pair(params, "stride", "stride", 1), pad=_pair(params, "pad", "pad", 0),
    )


def _dense(layer: Message) -> Described:
    params = layer.part("inner_product_param")
    if params.one("axis", 1) != 1:
        raise ValueError(f"an inner product from axis {params.one('axis')} on")
    return CntkLayerType.dense, CntkDenseParameters(
        num_output=int(params.one("num_output", 0)), transpose=not params.one("transpose", False)
    )


def _batch_norm(layer: Message) -> Described:
    return CntkLayerType.batch_norm, CntkBatchNormParameters(epsilon=layer.part("batch_norm_param").one("eps", 1e-5))


def _scale(layer: Message) -> Described:
    params = layer.part("scale_param")
    if params.one("axis", 1) != 1 or params.one("num_axes", 1) != 1 or len(layer.many("bottom")) != 1:
        raise ValueError("scales of other axes than the channels")
    return CntkLayerType.scale, CntkParameters()


def _lrn(layer: Message) -> Described:
    params = layer.part("lrn_param")
    region, size = params.one("norm_region", "ACROSS_CHANNELS"), int(params.one("local_size", 5))
    if region not in ("ACROSS_CHANNELS", "WITHIN_CHANNEL") or size % 2 == 0:  # as in Caffe
        raise ValueError(f"normalization {region} over {size} elements")
    within = region == "WITHIN_CHANNEL"
    k = 1.0 if within else params.one("k", 1.0)  # which Caffe ignores there
    return CntkLayerType.lrn, CntkLRNParameters(
        kernel_size=size, alpha=params.one("alpha", 1.0), beta=params.one("beta", 0.75), k=k, within_channel=within
    )


def _eltwise(layer: Message) -> Described:
    params = layer.part("eltwise_param")
    kinds = {
        "SUM": CntkLayerType.plus, "PROD": CntkLayerType.element_times, "MAX": CntkLayerType.element_max,
    }
    return kinds[params.one("operation", "SUM")], CntkEltwiseParameters(params.many("coeff"))


def _number(kind: CntkLayerType, field: str, name: str, default: float) -> Callable[[Message], Described]:
    return lambda layer: (kind, CntkNumberParameters(layer.part(field).one(name, default)))


def _along(kind: CntkLayerType, field: str) -> Callable[[Message], Described]:
    def described(layer: Message) -> Described:
        params = layer.part(field)
        return kind, CntkSpliceParameters(int(params.one("axis", params.one("concat_dim", 1))))

    return described


def _plain(kind: CntkLayerType) -> Callable[[Message], Described]:
    return lambda layer: (kind, CntkParameters())


def _power(layer: Message) -> Described:
    params = layer.part("power_param")
    values = (params.one(name, default) for name, default in (("power", 1.0), ("scale", 1.0), ("shift", 0.0)))
    return CntkLayerType.power, CntkPowerParameters(*values)


_LAYERS: dict[str, Callable[[Message], Described]] = {
    "Convolution": _convolution, "Deconvolution": lambda layer: (CntkLayerType.deconvolution, _windows(layer)),
    "Pooling": _pooling, "InnerProduct": _dense, "BatchNorm": _batch_norm,
    "Scale": _scale, "LRN": _lrn, "Eltwise": _eltwise, "Power": _power,
    "ReLU": _number(CntkLayerType.relu, "relu_param", "negative_slope", 0.0),
    "ELU": _number(CntkLayerType.elu, "elu_param", "alpha", 1.0),
    "Dropout": _number(CntkLayerType.dropout, "dropout_param", "dropout_ratio", 0.5),
    "Concat": _along(CntkLayerType.splice, "concat_param"), "Softmax": _along(CntkLayerType.softmax, "softmax_param"),
    "Flatten": _along(CntkLayerType.flatten, "flatten_param"), "Sigmoid": _plain(CntkLayerType.sigmoid),
    "TanH": _plain(CntkLayerType.tanh), "AbsVal": _plain(CntkLayerType.abs), "PReLU": _plain(CntkLayerType.param_relu),
}
_WEIGHTED = ("Convolution", "Deconvolution", "InnerProduct", "BatchNorm", "Scale", "PReLU")


class CaffeAdapter(Adapter):
    """Reads a network of Caffe as it is tested: without losses, and only with the inputs that are used."""

    def load_model(self, global_conf: GlobalConf) -> CntkModelDescription:
        """The network that a configuration names.

        Errors: FormatError for damaged files, ValueError for layers that are not supported or have no weights, each
                with the file and the layer.
        """
        source = global_conf.source_solver
        if source.model_path is None or source.weights_path is None:
            raise ValueError("SourceSolver needs ModelPath, a prototxt, and WeightsPath, a caffemodel")
        network, weights = read_network(source.model_path), read_weights(source.weights_path)
        reader = _NetworkReader(source.model_path, source.weights_path, weights, _declared_inputs(network))
        reader.model.model_name = str(network.one("name", "Untitled"))
        phase = TRAIN if source.phase == 0 else TEST
        for layer in network.many("layer"):
            if _is_active(layer, phase) and str(layer.one("type")) not in _SKIPPED:
                reader.add(layer)
        _merge_scales(reader.model)
        reader.model.data_provider = list(_providers(reader.model, reader.inputs, source))
        return reader.model


class _NetworkReader:
    """Adds layers to a model, in the order of the file. `inputs`: their shapes with the batch axis, if declared."""

    def __init__(
        self, model_path: str, weights_path: str, weights: dict[str, list[np.ndarray]],
        inputs: dict[str, list[int] | None],
    ) -> None:
        self.model_path, self.weights_path = model_path, weights_path
        self.weights, self.inputs = weights, inputs
        self.model = CntkModelDescription()
        self.producers = {name: name for name in inputs}  # blob -> the layer that computed it last

    def add(self, layer: Message) -> None:
        """Add one layer. Errors: FormatError for a layer that does not fit the others; ValueError if unsupported."""
        kind, name, outputs = str(layer.one("type")), str(layer.one("name")), layer.many("top")
        if kind in _INPUTS:
            self._add_inputs(layer.part("input_param").many("shape"), outputs)
            return
        where = f"{self.model_path}: layer {name!r} ({kind})"
        missing = [blob for blob in layer.many("bottom") if blob not in self.producers]
        if missing:
            raise FormatError(f"{where}: no layer computes {missing[0]!r}")
        if name in self.model.cntk_layers:
            raise FormatError(f"{where}: another layer has the same name")
        operands = [self.producers[blob] for blob in layer.many("bottom")]
        if kind == "Split":
            self.producers |= dict.fromkeys(outputs, operands[0])
            return
        op_type, parameters = self._converted(layer, kind, name, where)
        arrays = [CntkTensorDefinition(array.shape, array) for array in self.weights.get(name, [])]
        self.model.cntk_layers[name] = CntkLayersDefinition(
            operands, list(outputs), name, parameters, op_type, parameter_tensor=arrays
        )
        self.model.cntk_sorted_layers.append(name)
        self.producers |= dict.fromkeys(outputs, name)

    def _add_inputs(self, shapes: list[Message], names: list[str]) -> None:
        shapes = shapes * len(names) if len(shapes) == 1 else shapes
        for i, name in enumerate(names):
            self.inputs[name], self.producers[name] = (shapes[i].many("dim") if i < len(shapes) else None), name

    def _converted(self, layer: Message, kind: str, name: str, where: str) -> Described:
        if kind not in _LAYERS:
            raise ValueError(explain(
                f"{where} is not converted", fix=f"remove the layer, or use one of {', '.join(sorted(_LAYERS))}"
            ))
        if kind in _WEIGHTED and not self.weights.get(name):
            raise ValueError(explain(
                f"{where} has no weights in {self.weights_path}", fix="use the caffemodel that belongs to the prototxt"
            ))
        try:
            return _LAYERS[kind](layer)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{where}: {error} is not converted") from error


def _declared_inputs(network: Message) -> dict[str, list[int] | None]:
    """Inputs declared before the layers, and their shapes with the batch axis."""
    names, shapes, sizes = network.many("input"), network.many("input_shape"), network.many("input_dim")
    dims = [shape.many("dim") for shape in shapes] or [sizes[i : i + 4] for i in range(0, len(sizes), 4)]
    return {name: dims[i] if i < len(dims) else None for i, name in enumerate(names)}


def _is_active(layer: Message, phase: str) -> bool:
    includes, excludes = ([rule.one("phase", phase) for rule in layer.many(name)] for name in ("include", "exclude"))
    return layer.one("phase", phase) == phase and phase not in excludes and (not includes or phase in includes)


def _merge_scales(model: CntkModelDescription) -> None:
    """Merge each BatchNorm with a Scale that is its only user, as CNTK has both in one operation."""
    uses = Counter(name for layer in model.cntk_layers.values() for name in layer.inputs)
    merged: dict[str, str] = {}
    for name in list(model.cntk_sorted_layers):
        layer = model.cntk_layers[name]
        layer.inputs = [merged.get(operand, operand) for operand in layer.inputs]
        normalization = model.cntk_layers.get(layer.inputs[0]) if layer.op_type is CntkLayerType.scale else None
        if normalization is None or normalization.op_type is not CntkLayerType.batch_norm:
            continue
        if uses[normalization.op_name] != 1:
            continue
        size = normalization.parameter_tensor[0].tensor
        if len(normalization.parameter_tensor) == 2:
            normalization.parameter_tensor.append(CntkTensorDefinition((1,), np.ones(1, np.float32)))
        normalization.parameter_tensor += layer.parameter_tensor
        if len(layer.parameter_tensor) == 1:
            normalization.parameter_tensor.append(CntkTensorDefinition(size, np.zeros(size, np.float32)))
        merged[name] = normalization.op_name
        del model.cntk_layers[name]
        model.cntk_sorted_layers.remove(name)


def _providers(
    model: CntkModelDescription, inputs: dict[str, list[int] | None], source: SourceSolverConf
) -> Sequence[CntkLayersDefinition]:
    """The inputs that some layer uses."""
    providers = []
    for name in dict.fromkeys(operand for layer in model.cntk_layers.values() for operand in layer.inputs):
        if name not in inputs or name in model.cntk_layers:
            continue
        configured = (source.tensor or {}).get(name)
        shape = configured if configured is not None else (inputs[name] or [])[1:]
        if not shape:
            raise ValueError(explain(
                f"{source.model_path} has no shape for input {name!r}", fix="give it in Tensor of SourceSolver"
            ))
        providers.append(CntkLayersDefinition(op_name=name, tensor=[int(n) for n in shape]))
    return providers
