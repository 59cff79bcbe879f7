"""Models of CNTK 1 (``.dnn``), for evaluation: their nodes are converted to the records of a v2 file.

The conversion is that of CNTK 2.7: parameters that were not trained are constants, criteria are sums over the
minibatch, and outputs are all nodes that no other node uses and those listed in the file, in the order of their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._typing import DTypeLike
from ..graph.uid import new_uid
from ..primitives import BY_NAME
from .attributes import DYNAMIC, dtype_number
from .dictionary import AxisRecord, FormatError, SizeT, StoredShape
from .v1_file import LATTICES, MAGIC, V1Network, V1Node, Values, read
from .writing import COMPOSITE, PRIMITIVE, VARIABLE

__all__ = ["MAGIC", "record_of"]

Record = dict[str, Any]

_RENAMED = {
    "AveragePooling": "Pooling", "ColumnElementTimes": "ElementTimes", "Cosine": "Cos", "Delay": "PastValue",
    "DiagTimes": "ElementTimes", "ErrorPrediction": "ClassificationError", "ExponentialLinearUnit": "ELU",
    "If": "Select", "MaxPooling": "Pooling", "MaxUnpooling": "Unpooling", "NDCG1Eval": "NDCG",
    "RectifiedLinear": "ReLU", "RowElementTimes": "ElementTimes", "RowSlice": "Slice", "RowStack": "Splice",
    "Scale": "ElementTimes", "SquareError": "SquaredError", "SumColumnElements": "ReduceElements",
    "SumElements": "SumAll", "Transpose": "TransposeAxes", "TransposeDimensions": "TransposeAxes",
}
_ORDER = {
    "ClassificationError": (1, 0, 2), "ErrorPrediction": (1, 0, 2), "CrossEntropyWithSoftmax": (1, 0),
    "Clip": (2, 0, 1), "Logistic": (1, 0, 2), "GatherPacked": (1, 0), "ScatterPacked": (2, 1, 0),
    "LambdaRank": (1, 0, 2), "NDCG1Eval": (1, 0, 2), "OptimizedRNNStack": (1, 0),
}
_COMPOSED = {  # with their numbers of operands
    "PerDimMeanVarNormalization": 3, "PerDimMeanVarDeNormalization": 3, "RowRepeat": 1, "LookupTable": 2,
    "SequenceWithSoftmax": 3,
}
_DELAYS = "PastValue", "FutureValue", "Delay"
_INPUTS = "InputValue", "SparseInputValue"
_CONSTANTS = "LearnableParameter", "Mean", "InvStdDev"
_BATCH = AxisRecord(DYNAMIC, "defaultBatchAxis", False)
_ALL_STATIC = AxisRecord(DYNAMIC - 1, "AllStaticAxes", False)
_END_STATIC = AxisRecord(DYNAMIC - 3, "EndStaticAxis", False)
_UNKNOWN = AxisRecord(DYNAMIC - 2, "UnknownAxes", False)
_FROM_V2 = re.compile("__v2libuid__(.+)__v2libname__(.*)", re.DOTALL)  # how CNTK 2 names nodes of such files


def record_of(data: memoryview, name: str) -> Record:
    """The content that the v2 file of the same model would have; ``name`` names the file in errors.

    Errors: FormatError for a damaged file, or for an operation, layout or version that is not known.
    """
    return _Converter(read(data, name), name).content()


class _Converter:
    def __init__(self, network: V1Network, name: str) -> None:
        self.network, self.name = network, name
        self.variables: list[Record] = []
        self.functions: list[Record] = []
        self.outputs: dict[str, str] = {}  # a node's name in the file -> the uid of its output
        self.ids: dict[str, tuple[str, str]] = {}
        self.leaves: dict[str, Record] = {}

    def content(self) -> Record:
        """The record of the composite. Variables come first: functions complete some of them."""
        nodes = self.network.nodes
        loops = any(node.op in _DELAYS for node in nodes.values())
        for key, node in nodes.items():
            match = _FROM_V2.fullmatch(key)
            self.ids[key] = match.groups() if match else (new_uid(_kind(node)), key)  # type: ignore[assignment]
            computed = node.op not in (*_INPUTS, *_CONSTANTS)
            self.outputs[key] = self.ids[key][0] + ("_Output_0" if computed else "")
            if node.op in _INPUTS:
                self._input(node, *self.ids[key])
            elif node.op in _CONSTANTS:
                self.leaves[key] = self._leaf(node.values["value"], node.values.get("trained", False), *self.ids[key])
            elif loops:
                self._placeholder(self.outputs[key], node.dtype)
        for key, node in nodes.items():
            if node.op not in (*_INPUTS, *_CONSTANTS, "DynamicAxis"):
                self._function(node, *self.ids[key])
        roots = [self.outputs[key] for key in self._roots()]
        if not roots:
            raise FormatError(f"{self.name} has no node that is an output")
        combine = self._add("Combine", new_uid("Combine"), "", roots, {})
        return {
            "version": COMPOSITE, "type": "CompositeFunction", "uid": new_uid("CompositeFunction"), "root": combine,
            "inputs": self.variables, "primitive_functions": self.functions,
        }

    def _roots(self) -> Iterator[str]:
        """Unused nodes, and those listed in the file; means and deviations are always outputs in CNTK 2."""
        nodes = self.network.nodes
        used = {name for node in nodes.values() for name in node.inputs}
        listed = {name for names in self.network.roles.values() for name in names}
        for key in sorted(nodes):
            is_root = key not in used or key in listed or nodes[key].op in ("Mean", "InvStdDev")
            if is_root and nodes[key].op not in (*_INPUTS, "LearnableParameter", "DynamicAxis"):
                yield key

    # ---- variables
    def _variable(
        self, kind: int, shape: tuple[int, ...], dtype: DTypeLike, uid: str, name: str = "", **more: Any
    ) -> Record:
        record = {
            "version": VARIABLE, "type": "Variable", "uid": uid, "kind": SizeT(kind), "shape": StoredShape(shape),
            "data_type": dtype_number(dtype), "dynamic_axis": [], "is_sparse": False, "needs_gradient": False,
        }
        self.variables.append(record | more | ({"name": name} if name else {}))
        return self.variables[-1]

    def _leaf(self, value: np.ndarray, trained: bool, uid: str, name: str) -> Record:
        kind = 2 if trained else 3
        return self._variable(kind, value.shape, value.dtype, uid, name, value=value, needs_gradient=trained)

    def _input(self, node: V1Node, uid: str, name: str) -> None:
        sparse = node.op == "SparseInputValue"
        axes = _dynamic_axes(node.values["axis"])
        shape = node.values["shape"][::-1]
        self._variable(0, shape, node.dtype, uid, name, is_sparse=sparse, dynamic_axis=axes)

    def _placeholder(self, uid: str, dtype: type) -> None:
        """The record of an output that a loop uses before its node is listed."""
        self._variable(4, (-2,), dtype, uid, dynamic_axis=[_UNKNOWN])

    # ---- functions
    def _add(self, op: str, uid: str, name: str, inputs: list[str], attributes: Values) -> str:
        if op not in BY_NAME:
            raise FormatError(f"{self.name}, node {name or uid!r}: operation {op} is not known to this package")
        record = {
            "version": PRIMITIVE, "type": "PrimitiveFunction", "uid": uid, "op": SizeT(BY_NAME[op].cntk_id),
            "inputs": inputs, "attributes": attributes,
        }
        self.functions.append(record | ({"name": name} if name else {}))
        return uid

    def _function(self, node: V1Node, uid: str, name: str) -> None:
        order = _ORDER.get(node.op, range(len(node.inputs)))[: len(node.inputs)]
        if sorted(order) != list(range(len(node.inputs))):
            raise FormatError(f"{self.name}, node {node.name!r} ({node.op}) has {len(node.inputs)} inputs")
        inputs = [self.outputs[node.inputs[i]] for i in order]
        if node.op in _COMPOSED:
            if len(inputs) != _COMPOSED[node.op]:
                raise FormatError(
                    f"{self.name}, node {node.name!r} ({node.op}) has {len(inputs)} inputs, not {_COMPOSED[node.op]}"
                )
            self._compose(node, inputs, uid, name)
            return
        if node.op in _DELAYS and len(inputs) == 1:
            initial: np.ndarray = np.array(node.values["initial"], node.dtype)
            inputs.append(self._leaf(initial, False, new_uid("Constant"), "")["uid"])
        if node.op == "Convolution" and inputs:
            self._shape_kernel(node)
        if node.op == "BatchNormalization" and self.network.version <= 18 and len(inputs) == 5:
            self._invert_deviation(node)
            count: np.ndarray = np.zeros(1, node.dtype)
            inputs.append(self._leaf(count, False, new_uid("Constant"), f"{name}.run_sample_count")["uid"])
        attributes = _ATTRIBUTES[node.op](node.values) if node.op in _ATTRIBUTES else {}
        self._add(_kind(node), uid, name, inputs, attributes)

    def _compose(self, node: V1Node, inputs: list[str], uid: str, name: str) -> None:
        """The records of an operation that CNTK 2 has not: the last one has the name."""
        def output(op: str, operands: list[str], attributes: Values | None = None) -> str:
            return f"{self._add(op, new_uid(op), '', operands, attributes or {})}_Output_0"

        if node.op == "PerDimMeanVarNormalization":
            x, mean, inverse = inputs
            self._add("ElementTimes", uid, name, [output("Minus", [x, mean]), inverse], {})
        elif node.op == "PerDimMeanVarDeNormalization":
            x, mean, inverse = inputs
            self._add("Plus", uid, name, [output("ElementTimes", [x, output("Reciprocal", [inverse])]), mean], {})
        elif node.op == "SequenceWithSoftmax":
            axes = _dynamic_axes(LATTICES)
            lattices = self._variable(0, (1,), node.dtype, new_uid("Input"), LATTICES, dynamic_axis=axes)
            files = dict.fromkeys(("SymListPath", "PhonePath", "StateListPath", "TransProbPath"), "")
            self._add("LatticeSequenceWithSoftmax", uid, name, [*inputs, lattices["uid"]], files)
        elif node.op == "RowRepeat":
            self._add("Splice", uid, name, inputs * node.values["count"], {"axis": _static(1)})
        else:
            matrix, x = inputs
            leaf = self.leaves.get(node.inputs[0])
            if leaf is None or len(leaf["shape"]) != 2:
                raise FormatError(f"{self.name}, node {node.name!r} ({node.op}): its table is no parameter, a matrix")
            parts = output("Reshape", [x], _reshape((leaf["shape"][0], 0)))
            rows = output("Times", [matrix, parts], {"outputRank": SizeT(1), "inferInputRankToMap": -1})
            self._add("Reshape", uid, name, [rows], _reshape((0,)))

    def _shape_kernel(self, node: V1Node) -> None:
        """Reshape kernels stored as a matrix [outputs, elements], whose bytes are those of the kernel tensor."""
        record, kernel = self.leaves.get(node.inputs[0]), node.values["kernel"][::-1]
        if record is None or len(record["shape"]) != 2 or len(kernel) < 2:
            if 0 in kernel:
                raise FormatError(f"{self.name}, node {node.name!r}: its kernels are no parameter, a matrix")
            return
        value = record["value"]
        if kernel[0] == 0:  # up to version 4, the number of channels is not stored
            channels = len(value) // max(math.prod(kernel[1:]), 1)
            kernel = (channels, *kernel[1:])
            node.values |= {"kernel": kernel[::-1], "strides": (*node.values["strides"][:2], channels)}
        if math.prod(kernel) <= 0 or value.size % math.prod(kernel):
            raise FormatError(f"{self.name}, node {node.name!r}: {value.size} weights for kernels of shape {kernel}")
        record["value"] = value.reshape(-1, *kernel)
        record["shape"] = StoredShape(record["value"].shape)

    def _invert_deviation(self, node: V1Node) -> None:
        """Replace the fifth operand by the variance: up to version 12 it is 1 / standard deviation."""
        record = self.leaves.get(node.inputs[4])
        if self.network.version <= 12 and record is not None:
            with np.errstate(divide="ignore"):
                record["value"] = (1 / np.square(record["value"]) + node.values["epsilon"]).astype(node.dtype)


def _kind(node: V1Node) -> str:
    if node.op in _INPUTS or node.op in _CONSTANTS:
        return "Input" if node.op in _INPUTS else "Parameter" if node.values.get("trained") else "Constant"
    return _RENAMED.get(node.op, node.op)


def _dynamic_axes(name: str) -> list[AxisRecord]:
    """As a file lists them, the batch axis last. '*' is the default axis; '' in models that never name their axes."""
    if name == "__noSequenceAxis":
        return [_BATCH]
    return [AxisRecord(DYNAMIC, "defaultDynamicAxis" if name == "*" else name, True), _BATCH]


# ---- attributes ------------------------------------------------------------------------------------------------------


def _static(number: int) -> AxisRecord:
    """A static axis; CNTK 1 counts them from 1."""
    return AxisRecord(number - 1, f"staticAxisIdx={number - 1}", True)


def _size(dims: tuple[int, ...]) -> StoredShape:
    return StoredShape(dims[::-1])


def _slice(v: Values) -> Values:
    """Axes have a begin, a size, a number, and in later versions a stride."""
    axes = v["axes"]
    attributes = {
        "axis": [_static(a[2]) for a in axes],
        "beginIndex": [a[0] for a in axes],
        "endIndex": [a[0] + a[1] for a in axes],
        "sliceStrides": [a[3] if len(a) > 3 else 1 for a in axes],
    }
    return {k: x[0] for k, x in attributes.items()} if len(axes) == 1 else {f"{k}Vec": x for k, x in attributes.items()}


def _reduce(v: Values) -> Values:
    axes = [_static(a) if a > 0 else _ALL_STATIC for a in v["axes"]]
    return {"axisVec": axes, "reductionOpName": v["op"], "reductionKeepDimensions": v["keep"]}


def _pooling(v: Values, window: str = "poolingWindowShape") -> Values:
    return {
        window: _size(v["kernel"]), "strides": _size(v["strides"]), "autoPadding": v["padding"],
        "lowerPad": _size(v["lower"]), "upperPad": _size(v["upper"]), "poolingType": SizeT(v["pooling"] - 1),
    }


def _convolution(v: Values) -> Values:
    return {
        "kernelShape": _size(v["kernel"]), "strides": _size(v["strides"]), "sharing": v["sharing"],
        "autoPadding": v["padding"], "lowerPad": _size(v["lower"]), "upperPad": _size(v["upper"]),
        "transpose": v["transpose"], "outputShape": _size(v["output"]), "dilation": _size(v["dilation"]),
        "maxTempMemSizeInSamples": SizeT(v["memory"]),
    }


def _transpose(v: Values) -> Values:
    if v["order"]:
        return {"axisVec": [_static(i + 1) for i in v["order"]]}
    return dict(zip(("axis1", "axis2"), map(_static, v["pair"]), strict=True))


def _reshape(shape: tuple[int, ...], begin: int = 0, end: int = 0) -> Values:
    """The axes from `begin` to before `end` in another shape; a dimension of 0 follows from the others."""
    return {
        "newShape": StoredShape(d or -1 for d in shape[::-1]), "beginAxis": _static(begin or 1),
        "endAxis": _static(end) if end > 0 else _END_STATIC,
    }


def _crop(v: Values) -> Values:
    if not all(0 <= x < 2**31 for x in v["offset"]):
        return {}  # the offset follows from the graph
    return {"offset": [SizeT(x) for x in v["offset"]]}


def _random_sample(v: Values) -> Values:
    return {
        "allowDuplicates": v["duplicates"], "numSamples": SizeT(v["samples"]), "rngSeed": SizeT(v["seed"]),
        "rngOffset": SizeT(v["offset"]),
    }


_ATTRIBUTES: dict[str, Callable[[Values], Values]] = {
    "Times": lambda v: {"outputRank": SizeT(v["rank"]), "inferInputRankToMap": v["map"]},
    "TransposeTimes": lambda v: {"outputRank": SizeT(v["rank"])},
    "Slice": _slice,
    "RowSlice": _slice,
    "ReduceElements": _reduce,
    "SumColumnElements": lambda v: {"axis": _static(1), "reductionOpName": "Sum"},
    **dict.fromkeys(_DELAYS, lambda v: {"offset": SizeT(v["step"])}),
    "EditDistanceError": lambda v: {
        **{f"{kind}Penalty": np.float32(v[kind]) for kind in ("Substitution", "Deletion", "Insertion")},
        "SquashInputs": v["squash"], "TokensToIgnore": [SizeT(token) for token in v["ignored"]],
    },
    "TransposeDimensions": _transpose,
    "Transpose": _transpose,
    "Convolution": _convolution,
    "Pooling": lambda v: _pooling(v) | {"ceilOutDim": v["ceil"], "includePad": v["padding_counts"]},
    "MaxPooling": _pooling,
    "AveragePooling": _pooling,
    "MaxUnpooling": lambda v: _pooling(v, "unpoolingWindowShape"),
    "BatchNormalization": lambda v: {
        "spatial": v["spatial"], "normalizationTimeConstant": v["time"], "blendTimeConstant": v["blend"],
        "epsilon": v["epsilon"], "useCuDNNEngine": not v["own"],
    },
    "ROIPooling": lambda v: {
        "poolingType": SizeT(v["pooling"] - 1), "roiOutputShape": _size(v["output"]), "spatialScale": v["scale"],
    },
    "OptimizedRNNStack": lambda v: {
        "hiddenSize": SizeT(v["hidden"]), "numLayers": SizeT(v["layers"]), "bidirectional": bool(v["both"]),
        "recurrentOp": v["op"],
    },
    "RandomSample": _random_sample,
    "RandomSampleInclusionFrequency": _random_sample,
    "RowStack": lambda v: {"axis": _static(v["axis"])},
    "Reshape": lambda v: _reshape(v["shape"], v["begin"], v["end"]),
    "Dropout": lambda v: {
        "dropoutRate": 0.0, "rngSeed": SizeT(v["seed"]), "rngOffset": SizeT(v["offset"]),
    },
    "Where": lambda v: {"newDynamicAxes": _dynamic_axes(v["axis"])},
    "Crop": _crop,
    "EnvironmentInput": lambda v: {"propertyName": v["property"], "newDataType": int(dtype_number(v["dtype"]))},
    "ForwardBackward": lambda v: {"DelayConstraint": v["delay"], "BlankTokenId": SizeT(v["blank"])},
}
