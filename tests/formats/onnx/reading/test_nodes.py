"""Nodes as exporters write them, of all opsets: one model of many nodes computes what ONNX Runtime computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)
helper = onnx.helper

R = np.random.default_rng(11)


@dataclass(frozen=True, eq=False)
class Data:
    """An input of the model; `values` of integers stay integers for ONNX Runtime."""

    name: str
    values: np.ndarray


def data(name: str, *shape: int) -> Data:
    return Data(name, R.normal(size=shape).astype(np.float32))


ROW, MATRIX, TENSOR = data("row", 4), data("matrix", 3, 4), data("tensor", 2, 3, 4)
IMAGE, LINE, CUBE = data("image", 2, 4, 7, 6), data("line", 2, 3, 9), data("cube", 1, 2, 4, 5, 4)
ONE = data("one", 1, 4, 4, 4)
BATCHES = data("batches", 2, 4, 5)
POSITIVE = Data("positive", R.uniform(1.1, 3, (2, 3)).astype(np.float32))
SPECIAL = Data("special", np.float32([[1, np.nan, np.inf], [-np.inf, 0, -2]]))
TIES = Data("ties", np.float32([[1, 3, 3, 0], [2, 2, 1, 2]]))
HALVES = Data("halves", np.float32([[-1.5, -0.5, 0.5], [1.5, 2.5, 0.3]]))
PLACES = Data("places", np.int64([[0, 2], [1, -1], [-2, 0]]))
POOLED = Data("pooled", IMAGE.values)


def f(*shape: int) -> np.ndarray:
    return R.normal(size=shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.int64(values)


@dataclass
class Case:
    """A node of operands that are inputs, constants, or None if omitted; as many outputs as it has in the standard."""

    op: str
    operands: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    fixed: bool = False  # not for inputs whose first axis is open


def case(op: str, *operands: Any, outputs: int = 1, fixed: bool = False, **options: Any) -> Case:
    return Case(op, operands, options, outputs, fixed)


def unary(*names: str, of: Data = TENSOR) -> list[Case]:
    return [case(name, of) for name in names]


SCALES = np.float32([1, 1, 2, 3])
CASES: dict[int, list[Case]] = {
    7: [
        *unary("Relu", "Abs", "Neg", "Floor", "Ceil", "Exp", "Tanh", "Sigmoid", "Softplus", "Softsign", "Sin", "Cos",
               "Tan", "Atan", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "Identity"),
        *unary("Log", "Sqrt", "Reciprocal", of=POSITIVE),
        case("Elu", TENSOR, alpha=2.0), case("HardSigmoid", TENSOR, alpha=0.3, beta=0.4),
        case("Clip", TENSOR, min=-0.5, max=0.5), case("Clip", TENSOR, min=-0.5), case("Clip", TENSOR),
        *(case(op, TENSOR, MATRIX) for op in ("Add", "Sub", "Mul", "Div")), case("Pow", POSITIVE, np.float32(1.5)),
        *(case(op, TENSOR) for op in ("Max", "Min", "Sum", "Mean")),
        *(case(op, TENSOR, TENSOR, TENSOR) for op in ("Sum", "Mean")), case("PRelu", TENSOR, f(4)),
        *(case(op, TENSOR, axes=[-1], keepdims=k) for op in ("ReduceSum", "ReduceMean", "ReduceMax") for k in (0, 1)),
        *(case(op, TENSOR, axes=[1, 2]) for op in ("ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
                                                    "ReduceSumSquare", "ReduceProd")),
        case("ReduceLogSum", POSITIVE, axes=[1]), case("ReduceSum", TENSOR), case("ReduceSum", TENSOR, keepdims=0),
        *(case(op, TENSOR, axis=axis, fixed=axis == 0) for op in ("Softmax", "LogSoftmax", "Hardmax")
          for axis in (0, 1, 2)),
        case("Softmax", ROW, axis=0, fixed=True), case("ArgMax", TENSOR, axis=1),
        case("ArgMin", TENSOR, axis=2, keepdims=0),
        case("TopK", TENSOR, k=2, axis=2, outputs=2), case("TopK", TENSOR, k=2, axis=1, outputs=2),
        case("Slice", TENSOR, starts=[1, -3], ends=[2**31 - 1, -1], axes=[1, 2]),
        case("Slice", TENSOR, starts=[0, 1], ends=[1, 9], fixed=True),
        case("Squeeze", ONE, axes=[0], fixed=True), case("Squeeze", ONE, fixed=True),
        case("Unsqueeze", TENSOR, axes=[0, 3]),
        case("Pad", TENSOR, pads=[0, 1, 0, 0, 0, 2], value=1.5),
        case("Pad", TENSOR, pads=[0, 1, 2, 0, 0, 1], mode="edge"),
        case("Pad", TENSOR, pads=[0, 1, 2, 0, 0, 1], mode="reflect"), case("Pad", TENSOR, pads=[0, -1, 2, 0, 0, -1]),
        case("Split", TENSOR, axis=1, split=[1, 2], outputs=2), case("Split", TENSOR, axis=2, outputs=2),
        case("Concat", TENSOR, TENSOR, axis=1), case("Concat", TENSOR, axis=2), case("Transpose", TENSOR),
        case("Transpose", TENSOR, perm=[1, 0, 2]), case("Transpose", ROW, fixed=True), case("Flatten", TENSOR),
        case("Flatten", TENSOR, axis=2, fixed=True), case("Flatten", TENSOR, axis=0), case("Dropout", TENSOR),
        case("Reshape", TENSOR, i(0, -1)), case("Reshape", TENSOR, i(0, 2, 6)), case("Tile", TENSOR, i(1, 2, 1)),
        case("Gemm", MATRIX, f(4, 5), f(5)), case("Gemm", MATRIX, f(5, 4), f(5), transB=1, alpha=0.5, beta=2.0),
        case("Gemm", MATRIX, f(3, 5), f(5), transA=1, fixed=True),
        *(case("MatMul", *pair) for pair in ((MATRIX, f(4, 5)), (TENSOR, f(4, 5)), (TENSOR, f(1, 4, 5)), (TENSOR, f(4)),
                                              (TENSOR, BATCHES), (ROW, f(4)), (ROW, f(4, 2)), (ROW, f(2, 4, 3)),
                                              (MATRIX, f(2, 4, 3)), (IMAGE, f(2, 4, 6, 3)), (IMAGE, f(4, 6, 3)))),
        case("Gather", TENSOR, i(1), axis=1), case("Gather", TENSOR, np.int64(-1), axis=2),
        case("Gather", TENSOR, i(2, 0), axis=1), case("Gather", TENSOR, np.int64([[3, -1], [0, 1]]), axis=2),
        case("Gather", MATRIX, i(2, 1), fixed=True), case("Cast", TENSOR, to=6), case("Cast", TENSOR, to=9),
        # images
        case("Conv", IMAGE, f(3, 4, 3, 2), f(3)), case("Conv", LINE, f(2, 3, 3), strides=[2], pads=[1, 0]),
        case("Conv", IMAGE, f(4, 2, 3, 3), group=2, dilations=[2, 1], strides=[1, 2], pads=[2, 1, 2, 1]),
        *(case("Conv", IMAGE, f(3, 4, 3, 2), auto_pad=pad, strides=[2, 2])
          for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")), case("Conv", CUBE, f(3, 2, 2, 2, 2)),
        case("ConvTranspose", IMAGE, f(4, 3, 3, 3), f(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        case("ConvTranspose", IMAGE, f(4, 1, 3, 2), group=2, dilations=[1, 2]),
        case("ConvTranspose", IMAGE, f(4, 2, 3, 3), strides=[2, 2], output_shape=[14, 12]),
        *(case("ConvTranspose", IMAGE, f(4, 2, 3, 3), strides=[2, 2], auto_pad=pad) for pad in ("SAME_UPPER", "VALID")),
        *(case(op, IMAGE, kernel_shape=[3, 2], strides=[2, 1], **more) for op in ("MaxPool", "AveragePool")
          for more in ({}, {"pads": [1, 1, 1, 0]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"})),
        case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        case("LpPool", IMAGE, kernel_shape=[2, 3], strides=[2, 2], pads=[1, 0, 1, 0], p=3),
        *unary("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", of=IMAGE), case("MaxPool", LINE, kernel_shape=[3]),
        case("BatchNormalization", IMAGE, f(4), f(4), f(4), np.float32([1, 2, 3, 4]), epsilon=0.01),
        case("BatchNormalization", MATRIX, f(4), f(4), f(4), np.float32([1, 2, 3, 4])),
        case("InstanceNormalization", IMAGE, f(4), f(4)), case("LRN", IMAGE, size=3, alpha=0.1, beta=0.5, bias=2.0),
        case("LRN", IMAGE, size=5, alpha=0.7), case("Conv", IMAGE, f(3, 4, 9, 8), pads=[1, 1, 2, 2]),
        *(case("LpNormalization", TENSOR, axis=1, p=p) for p in (1, 2)), case("DepthToSpace", IMAGE, blocksize=2),
        case("SpaceToDepth", ONE, blocksize=2, fixed=True),
        case("MaxRoiPool", ONE, np.float32([[0, 0, 0, 3, 3], [0, 1, 1, 2, 3]]), pooled_shape=[2, 2], fixed=True),
        case("Upsample", IMAGE, mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]),
        case("Upsample", IMAGE, mode="linear", scales=[1.0, 1.0, 2.0, 1.5]),
    ],
    9: [
        case("Upsample", IMAGE, SCALES), case("Upsample", IMAGE, np.float32([1, 1, 1.5, 2]), mode="linear"),
        *unary("Acosh", of=POSITIVE), *unary("Asinh", "Sinh", "Cosh", "Erf", "Sign", "Shrink"), case("IsNaN", SPECIAL),
        case("Shrink", TENSOR, bias=0.3, lambd=0.2), case("Expand", MATRIX, i(2, 1, 4), fixed=True),
    ],
    10: [
        *unary("ThresholdedRelu"), case("IsInf", SPECIAL),
        case("IsInf", SPECIAL, detect_negative=0), case("IsInf", SPECIAL, detect_positive=0),
        case("EyeLike", MATRIX, fixed=True), case("EyeLike", MATRIX, k=1, dtype=1, fixed=True),
        case("Mod", TENSOR, POSITIVE.values[:1, :1], fmod=1),
        case("Where", np.bool_([[True], [False], [True]]), TENSOR, MATRIX),
        case("Resize", IMAGE, SCALES), case("Resize", IMAGE, np.float32([1, 1, 0.6, 1.6])),
        case("Resize", IMAGE, np.float32([1, 1, 2, 0.5]), mode="linear"),
        case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 1], pads=[1, 0, 0, 1]),
        case("MaxPool", IMAGE, kernel_shape=[2, 3], strides=[1, 2], pads=[1, 0, 0, 2], outputs=2, fixed=True),
        case("MaxPool", LINE, kernel_shape=[3], dilations=[2], storage_order=1, outputs=2, fixed=True),
        *(case(op, IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1) for op in ("MaxPool", "AveragePool")),
        case("MeanVarianceNormalization", IMAGE), case("MeanVarianceNormalization", IMAGE, axes=[2, 3]),
        case("Slice", TENSOR, i(-1, 3), i(-9, -(2**31)), i(1, 2), i(-1, -2)), case("Slice", TENSOR, i(1), i(3), i(2)),
        case("Slice", TENSOR, i(0, 0), i(2, 2), fixed=True), case("TopK", TENSOR, i(2), outputs=2),
        case("OneHot", Data("kinds", np.int64([2, 0, 1])), np.int64(3), np.float32([0, 1]), fixed=True),
        case("OneHot", Data("kinds of two", np.int64([[2, 0], [1, 1]])), np.int64(3), np.float32([-1, 2]), axis=1,
             fixed=True),
        case("Scatter", MATRIX, np.int64([[1, 0, 2, 2]]), f(1, 4), fixed=True),
    ],
    11: [
        case("Clip", TENSOR, np.float32(-0.5), np.float32(0.5)), case("Clip", TENSOR, None, np.float32(0.2)),
        case("Clip", TENSOR, np.float32(0.5), np.float32(-0.5)), *unary("Round", of=HALVES),
        case("Gemm", MATRIX, f(4, 5)), case("CumSum", TENSOR, np.int64(1)),
        case("CumSum", TENSOR, np.int64(-1), reverse=1, exclusive=1), case("TopK", TENSOR, i(2), largest=0, outputs=2),
        *(case("Pad", TENSOR, i(0, 1, 2, 0, 0, 1), *value, mode=mode)
          for mode, value in (("constant", [np.float32(2)]), ("edge", []), ("reflect", []))),
        case("DepthToSpace", IMAGE, blocksize=2, mode="CRD"), case("Softmax", TENSOR, axis=-1),
        case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,
             count_include_pad=1),
        case("GatherElements", MATRIX, PLACES, axis=1, fixed=True),
        case("GatherElements", MATRIX, np.int64([[0, -1, 1, 2]]), axis=0, fixed=True),
        case("GatherND", TENSOR, np.int64([[1, 2], [0, -1]]), fixed=True),
        case("GatherND", TENSOR, np.int64([[1], [0]]), fixed=True),
        case("GatherND", MATRIX, PLACES, fixed=True),
        case("ScatterND", TENSOR, np.int64([[1, 2], [0, -1]]), f(2, 4), fixed=True),
        case("ScatterElements", TENSOR, np.int64([[[0, -1]]]), f(1, 1, 2), axis=2, fixed=True),
        case("Unsqueeze", TENSOR, axes=[-1]), case("Flatten", TENSOR, axis=-1, fixed=True),
        case("Range", *np.float32([1, 3, 0.5])),
        *(case("Resize", IMAGE, np.float32([]), SCALES, coordinate_transformation_mode=mode, nearest_mode=rounding)
          for mode, rounding in (
              ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("align_corners", "ceil"),
              ("asymmetric", "round_prefer_ceil"), ("tf_half_pixel_for_nn", "floor"),
          )),
        *(case("Resize", IMAGE, np.float32([]), np.float32([1, 1, *scales]), mode=kind,
               coordinate_transformation_mode=mode)
          for mode in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
          for kind in ("linear", "cubic") for scales in ((2, 3), (1.7, 0.6))),
        case("Resize", IMAGE, np.float32([]), np.float32([]), i(2, 4, 14, 12), mode="linear", fixed=True),
        case("Resize", IMAGE, np.float32([]), np.float32([1, 1, 2, 2]), mode="cubic", exclude_outside=1,
             cubic_coeff_a=-0.5),
        case("Resize", IMAGE, np.float32([0, 0, 0.2, 0.3, 1, 1, 0.9, 1.4]), np.float32([]), i(2, 4, 5, 6),
             mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0, fixed=True),
    ],
    13: [
        *(case(op, TENSOR, axis=axis, fixed=axis == 0) for op in ("Softmax", "LogSoftmax", "Hardmax")
          for axis in (0, 1, -1)),
        case("ReduceSum", TENSOR, i(1, -1)), case("ReduceSum", TENSOR, noop_with_empty_axes=1),
        case("Squeeze", ONE, i(0), fixed=True), case("Unsqueeze", TENSOR, i(0, -1)),
        case("Split", TENSOR, i(1, 2), axis=1, outputs=2), case("Celu", TENSOR, alpha=0.7),
        *(case(op, TIES, axis=1, select_last_index=1) for op in ("ArgMax", "ArgMin")),
        case("Einsum", MATRIX, f(4, 5), equation="ij,jk"), case("Einsum", TENSOR, equation="b i j -> b j i"),
        case("Einsum", TENSOR, BATCHES, equation="...ij,...jk->...ik"),
        case("Einsum", TENSOR, f(4), equation="bij,j->bi"),
        case("Einsum", MATRIX, f(3), f(4), equation="ij,i,j->", fixed=True), case("Einsum", TENSOR, equation="...i"),
        case("Greater", TENSOR, MATRIX), case("LessOrEqual", TENSOR, MATRIX), case("Dropout", TENSOR, np.float32(0.3)),
    ],
    18: [
        case("LayerNormalization", TENSOR, f(4), f(4)),
        case("LayerNormalization", TENSOR, f(3, 4), axis=1, epsilon=0.1),
        *unary("HardSwish", "Mish"), case("Trilu", TENSOR), case("Trilu", TENSOR, np.int64(-1), upper=0),
        case("CastLike", TENSOR, SPECIAL), case("ReduceMax", TENSOR, i(1)),
        case("ReduceMean", TENSOR, i(-1), keepdims=0),
        case("Split", LINE, axis=2, num_outputs=5, outputs=5), case("Pad", TENSOR, i(1, 2), None, i(-1)),
        case("Resize", IMAGE, None, np.float32([2, 1.5]), axes=[2, 3], mode="linear"),
        case("Resize", IMAGE, None, np.float32([0.4, 0.7]), axes=[2, 3], mode="linear", antialias=1),
        case("Resize", IMAGE, None, np.float32([0.4, 0.7]), axes=[2, 3], mode="cubic", antialias=1),
        *(case("Resize", IMAGE, None, None, i(10, 12), axes=[2, 3], keep_aspect_ratio_policy=policy)
          for policy in ("not_larger", "not_smaller")),
        case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 1], pads=[1, 0, 0, 0]),
    ],
    21: [
        case("GroupNormalization", IMAGE, f(4), f(4), num_groups=2), *unary("Gelu"),
        case("Gelu", TENSOR, approximate="tanh"),
        case("Pad", TENSOR, i(0, 1, 2, 0, 0, 1), mode="wrap"),
        case("AveragePool", IMAGE, kernel_shape=[2, 2], dilations=[2, 3], pads=[1, 0, 0, 1]),
    ],
}


def model_of(cases: list[Case], opset: int, is_open: bool) -> tuple[bytes, list[Data], dict[str, str]]:
    """One model of all nodes, its inputs, and what each of its outputs is."""
    nodes, weights, inputs, outputs = [], [], {}, {}
    for number, c in enumerate(cases):
        names = []
        for operand in c.operands:
            if isinstance(operand, Data):
                inputs[operand.name] = operand
                names.append(operand.name)
            elif operand is None:
                names.append("")
            else:
                names.append(f"w{len(weights)}")
                weights.append(onnx.numpy_helper.from_array(np.asarray(operand), names[-1]))
        results = [f"y{number}_{k}" for k in range(c.outputs)]
        outputs |= dict.fromkeys(results, f"{c.op} {names} {c.options}")
        nodes.append(helper.make_node(c.op, names, results, **c.options))
    infos = [
        helper.make_tensor_value_info(d.name, helper.np_dtype_to_tensor_dtype(d.values.dtype),
                                      [f"n{len(d.values)}" if is_open else len(d.values), *d.values.shape[1:]])
        for d in inputs.values()
    ]
    results_info = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results_info, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString(), list(inputs.values()), outputs


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("opset", CASES)
def test_nodes_compute_what_onnx_runtime_computes(opset: int, is_open: bool) -> None:
    cases = [c for c in CASES[opset] if not (is_open and c.fixed)]
    model, inputs, outputs = model_of(cases, opset, is_open)
    there = runtime.InferenceSession(model).run(None, {d.name: d.values for d in inputs})
    f = C.Function.load(model, format=C.ModelFormat.ONNX)
    values = {d.name: d.values.astype(np.float32) for d in inputs}
    here = f.eval({a: values[a.name] for a in f.arguments})
    for output, expected, what in zip(f.outputs, there, outputs.values(), strict=True):
        np.testing.assert_allclose(here[output], expected, rtol=1e-5, atol=1e-5, err_msg=what)
        assert np.shape(here[output]) == expected.shape, what


def test_an_image_comes_before_the_kernel_among_the_arguments_as_in_cntk() -> None:
    kernel = data("kernel", 4, 4, 3, 3)
    for op in ("Conv", "ConvTranspose"):
        model, _, _ = model_of([case(op, ONE, kernel)], 9, is_open=False)
        f = C.Function.load(model, format=C.ModelFormat.ONNX)
        assert [a.name for a in f.arguments] == ["one", "kernel"]
        assert (f.root_function.op_name, f.root_function.is_block) == ("Convolution" + op[4:], True)


# ---- several nodes
X = helper.make_tensor_value_info("x", 1, ["n", 3, 4, 5])
Y = onnx.ValueInfoProto(name="y")
PICTURES = R.normal(size=(2, 3, 4, 5)).astype(np.float32)


def node(op: str, operands: str, results: str = "y", **options: Any) -> Any:
    inputs = [n.strip("_") for n in operands.split()]
    return helper.make_node(op, inputs, results.split(), name=f"the {op} of {results}", **options)


def load(*nodes: Any, opset: int = 17, functions: Any = (), **weights: Any) -> tuple[Any, bytes]:
    tensors = [onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(list(nodes), "g", [X], [Y], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions).SerializeToString()
    return C.Function.load(model, format=C.ModelFormat.ONNX), model


def check(*nodes: Any, **options: Any) -> None:
    f, model = load(*nodes, **options)
    expected = runtime.InferenceSession(model).run(None, {"x": PICTURES})[0]
    np.testing.assert_allclose(f.eval({f.arguments[0]: PICTURES}), expected, rtol=1e-5, atol=1e-5)


def test_the_output_of_a_transposed_convolution_may_have_its_samples_and_channels_too() -> None:
    """As in the tests of ONNX 1.3."""
    kernel = R.normal(size=(3, 2, 3, 3)).astype(np.float32)
    results = []
    for shape in ([10, 11], [1, 2, 10, 11]):
        f, _ = load(node("ConvTranspose", "x w", strides=[2, 2], output_shape=shape), w=kernel)
        results.append(f.eval({f.arguments[0]: PICTURES}))
    assert results[0].shape == (2, 2, 10, 11)
    np.testing.assert_array_equal(*results)


def test_statistics_of_training_are_outputs_that_need_not_be_read() -> None:
    statistics = {name: np.float32([1, 2, 3]) for name in ("s", "b", "m", "v")}
    nodes = [node("BatchNormalization", "x s b m v", "z m1 v1 m2 v2"), node("Relu", "z")]
    f, _ = load(*nodes, opset=9, **statistics)
    w = np.float32([1, 2, 3])[:, None, None]
    expected = np.maximum(w * (PICTURES - w) / np.sqrt(w) + w, 0)
    np.testing.assert_allclose(f.eval({f.arguments[0]: PICTURES}), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="outputs after the first 1 cannot be read"):
        load(nodes[0], node("Relu", "m1"), opset=9, **statistics)


@pytest.mark.parametrize(("attributes", "samples"), [  # as CNTK 2.7 reads it
    ({}, 455.57852), ({"momentum": 0.99}, 4775.9644), ({"momentum": 0.5}, 69.249359), ({"momentum": 0.0}, 0),
    ({"momentum": 1.0}, np.inf),
])
def test_momentum_of_statistics_is_read_as_a_time_constant(attributes: dict[str, float], samples: float) -> None:
    statistics = {name: np.float32([1, 2, 3]) for name in ("s", "b", "m", "v")}
    f, _ = load(node("BatchNormalization", "x s b m v", **attributes), opset=9, **statistics)
    found = C.logging.graph.depth_first_search(f, lambda n: getattr(n, "op_name", "") == "BatchNormalization", depth=-1)
    (normalization,) = found
    assert normalization.attributes["normalizationTimeConstant"] == pytest.approx(samples, rel=1e-6)


def test_sizes_that_pytorch_computes_from_a_shape_are_known() -> None:
    sides = [n for side in ("h", "w") for n in (
        node("Gather", f"shape {side}", f"{side}1"), node("Cast", f"{side}1", f"{side}2", to=1),
        node("Mul", f"{side}2 factor", f"{side}3"), node("Floor", f"{side}3", f"{side}4"),
        node("Cast", f"{side}4", f"{side}5", to=7), node("Unsqueeze", f"{side}5 zero", f"{side}6"),
    )]
    check(
        node("Shape", "x", "shape"), *sides, node("Slice", "shape zero two zero", "front"),
        node("Concat", "front h6 w6", "sizes", axis=0),
        node("Resize", "x _ _ sizes", mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        h=np.int64(2), w=np.int64(3), factor=np.float32(1.5), zero=i(0), two=i(2),
    )


def test_indices_that_are_computed_from_constants_are_known() -> None:
    check(
        node("NonZero", "mask", "places"), node("Transpose", "places", "columns", perm=[1, 0]),
        node("Squeeze", "columns one", "indices"), node("Expand", "indices two", "wide"),
        node("ReduceMax", "wide", "last", axes=[0], keepdims=0), node("Gather", "x last", axis=2),
        mask=np.int64([1, 0, 1, 1]), one=i(1), two=i(2, 3),
    )


def test_functions_of_the_model_are_inlined() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    inner = helper.make_function("my", "Half", ["a"], ["b"], [
        node("Constant", "", "h", value_float=0.5), node("Mul", "a h", "b")], opsets)
    outer = helper.make_function("my", "Twice", ["a"], ["c"], [
        node("Half", "a", "b", domain="my"), node("Half", "b", "c", domain="my")], opsets)
    check(node("Twice", "x", domain="my"), functions=[inner, outer])


def function(name: str, *calls: str) -> Any:
    nodes = [node(call, "a", f"b{k}", domain="my" if call != "Neg" else "") for k, call in enumerate(calls)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_function("my", name, ["a"], ["b0"], nodes, opsets)


LAUGHS = [function(f"F{k}", f"F{k + 1}", f"F{k + 1}") for k in range(18)] + [function("F18", "Neg")]


@pytest.mark.parametrize(("nodes", "options", "message"), [
    ([node("F0", "x", domain="my")], {"functions": LAUGHS}, "more than 100000 nodes"),
    ([node("F", "x", domain="my")], {"functions": [function("F", "F")]}, "call each other deeper than 20"),
    ([node("MaxPool", "x", "z y", kernel_shape=[2, 2])], {}, "an unknown number of samples"),
    ([node("MaxPool", "x", kernel_shape=[20, 20], dilations=[1, 2], pads=[30] * 4)], {}, "more than 128 elements"),
    ([node("Einsum", "x", equation="nccd")], {}, r"\(Einsum\): the sum 'nccd' cannot be read"),
    ([node("Einsum", "x", equation="ncd")], {}, "operands of ranks"),
    ([node("Resize", "x _ s", mode="linear")], {"s": np.float32([2, 1, 1, 1])}, "open size .*\n.* a fixed size"),
    ([node("Resize", "x _ s", mode="lanczos")], {"s": np.float32([1, 1, 2, 1])}, "mode 'lanczos' is not known"),
    ([node("Resize", "x _ s", nearest_mode="up")], {"s": np.float32([1, 1, 3, 1])}, "rounding 'up' is not known"),
    ([node("Resize", "x _ s", coordinate_transformation_mode="odd")], {"s": np.float32([1, 1, 3, 1])}, "'odd' cannot"),
    ([node("Resize", "x _ s")], {"s": np.float32([1, 1, 3])}, "do not fit the shape"),
    ([node("Resize", "x")], {}, "neither scales nor sizes"),
    ([node("GatherElements", "x k")], {"k": np.int64([[[[1]]]])}, "cannot be numbered.*\n.*a fixed size"),
    ([node("ScatterND", "x k u", reduction="add")], {"k": np.int64([[0]]), "u": PICTURES[:1]}, "reduction 'add'"),
    ([node("NonZero", "x")], {}, r"\(NonZero\): its operands have to be constants"),
    ([node("Shape", "x", "s"), node("Floor", "s")], {}, "size of a free axis"),
    ([node("EyeLike", "x", k=1)], {}, "a diagonal of open size"),
    ([node("Pad", "x p", mode="wrap")], {"p": i(0, 0, 5, 0, 0, 0, 0, 0), "opset": 19}, "cannot be wrapped by 5 and 0"),
    ([node("RandomNormalLike", "x", dtype=10)], {}, "element type 10"),
])
def test_errors_name_the_node_and_the_reason(nodes: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(*nodes, **options)


@pytest.mark.parametrize(("op", "options", "mean", "deviation"), [
    ("RandomUniform", {"low": 1.0, "high": 3.0, "shape": [2, 3, 40, 50]}, 2, 12**-0.5 * 2),
    ("RandomNormal", {"mean": -1.0, "scale": 2.0, "shape": [2, 3, 40, 50], "dtype": 11}, -1, 2),
    ("RandomUniformLike", {}, 0.5, 12**-0.5), ("RandomNormalLike", {"dtype": 11}, 0, 1),
])
def test_random_numbers_have_the_distribution_of_the_file(op: str, options: Any, mean: float, deviation: float) -> None:
    is_like = op.endswith("Like")
    wide = [node("Tile", "x times", "wide"), node(op, "wide" if is_like else "", **options)]
    f, _ = load(*wide, times=i(1, 1, 10, 10))
    numbers = f.eval({f.arguments[0]: PICTURES}) if is_like else f.eval()
    assert numbers.shape == (2, 3, 40, 50)
    assert numbers.dtype == (np.float64 if "dtype" in options else np.float32)
    np.testing.assert_allclose([numbers.mean(), numbers.std()], [mean, deviation], atol=0.1)
