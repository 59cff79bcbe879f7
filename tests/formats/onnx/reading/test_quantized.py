"""Quantized operations compute the integers of ONNX Runtime, and so do models that its quantization wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)
helper, numpy_helper = onnx.helper, onnx.numpy_helper

R = np.random.default_rng(5)
U8, I8, F = np.uint8, np.int8, np.float32


def integers(dtype: type, *shape: int) -> np.ndarray:
    """Of int8 those of 7 bits: on CPUs without VNNI, ONNX Runtime's sums of two products with others overflow."""
    limits, half = np.iinfo(dtype), 2 if dtype is I8 else 1
    return R.integers(limits.min // half, limits.max // half + 1, shape).astype(dtype)


def numbers(*shape: int) -> np.ndarray:
    return (3 * R.normal(size=shape)).astype(F)


def model(op: str, x: np.ndarray, *constants: Any, outputs: int = 1, opset: int = 13, **attributes: Any) -> bytes:
    """A model of one node: its first operand is the input x, the others are constants; None is omitted."""
    names = ["x", *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    domain = "com.microsoft" if op.startswith("Q") and op not in STANDARD else ""
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    x_info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    weights = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants) if c is not None]
    infos = [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "g", [x_info], infos, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


STANDARD = {"QuantizeLinear", "QLinearConv", "QLinearMatMul"}


def both(data: bytes | Path, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The outputs here and those of ONNX Runtime."""
    f = C.Function.load(data, format=C.ModelFormat.ONNX)
    values = f.eval({f.arguments[0]: x.astype(F)})
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(str(data) if isinstance(data, Path) else data, options)
    here = [values[o] for o in f.outputs] if len(f.outputs) > 1 else [values]
    return here, session.run(None, {session.get_inputs()[0].name: x})


HALVES = np.array([[-300, -1.5, -0.5, 0.5, 1.5, 2.5], [0.49999997, 126.5, 127.5, 254.5, 255.5, 9000]], F)
VALUES = numbers(2, 3, 4)
IMAGE, KERNEL = integers(U8, 2, 3, 6, 5), integers(I8, 4, 3, 3, 2)
A, B = integers(U8, 5, 7), integers(I8, 7, 4)
BIAS = R.integers(-9000, 9000, 4).astype(np.int32)
BY_CHANNEL = np.array([0.02, 0.3, 0.01, 0.07], F)
ONE, X = (F(0.04), U8(117)), (F(0.03), U8(130))
# Scales of the operations on single values are such that no exact result is a half, which rounding errors would decide.
CASES: dict[str, tuple[Any, ...]] = {
    "halves to even, uint8": ("QuantizeLinear", HALVES, F(1), U8(0)),
    "halves to even, int8": ("QuantizeLinear", HALVES, F(1), I8(0)),
    "no zero point": ("QuantizeLinear", VALUES, F(0.3)),
    "a zero point": ("QuantizeLinear", VALUES, F(0.021), I8(-7)),
    "by channel": ("QuantizeLinear", VALUES, BY_CHANNEL[:3], np.array([3, -4, 0], I8)),
    "by last axis": ("QuantizeLinear", VALUES, BY_CHANNEL, np.array([3, 4, 0, 255], U8), {"axis": -1}),
    "dequantized": ("DequantizeLinear", integers(U8, 2, 3), F(0.3), U8(200)),
    "dequantized by channel": ("DequantizeLinear", integers(I8, 2, 3, 4), BY_CHANNEL[:3], np.array([3, -4, 0], I8)),
    "dequantized by first axis": ("DequantizeLinear", integers(I8, 4, 3), BY_CHANNEL, None, {"axis": 0}),
    "matrices of integers": ("MatMulInteger", A, B, U8(120), I8(3)),
    "without zero points": ("MatMulInteger", A, B),
    "zero points of columns": ("MatMulInteger", A, B, U8(3), np.array([1, -2, 3, -4], I8)),
    "a batch of matrices": ("MatMulInteger", integers(U8, 2, 5, 7), integers(I8, 2, 7, 4), U8(9)),
    "a convolution of integers": (
        "ConvInteger", IMAGE, integers(U8, 4, 3, 3, 2), U8(120), U8(7), {"pads": [1, 0, 1, 1]},
    ),
    "a product": ("QLinearMatMul", A, *X, B, F(0.02), I8(2), *ONE),
    "a product by column": ("QLinearMatMul", A, *X, B, BY_CHANNEL, np.zeros(4, I8), F(0.4), U8(117)),
    "a convolution": ("QLinearConv", IMAGE, *X, KERNEL, F(0.02), I8(0), F(0.6), U8(117), BIAS, {"pads": [1, 0, 1, 1]}),
    "a convolution by channel": (
        "QLinearConv", IMAGE, *X, KERNEL, BY_CHANNEL, np.zeros(4, I8), F(0.5), U8(99), {"strides": [2, 1]},
    ),
    "groups": ("QLinearConv", IMAGE, *X, integers(I8, 3, 1, 2, 2), F(0.02), I8(0), F(0.3), U8(9), {"group": 3}),
    "a dense layer": ("QGemm", A, *X, B, F(0.02), I8(0), BIAS, F(0.5), U8(100)),
    "a transposed dense layer": (
        "QGemm", A, *X, B.T.copy(), BY_CHANNEL, np.zeros(4, I8), None, F(0.5), U8(9), {"transB": 1},
    ),
    "a dense layer of numbers": ("QGemm", A, *X, B, F(0.02), I8(0), BIAS, {"alpha": 0.5}),
    "a sum": ("QLinearAdd", IMAGE, *X, integers(U8, 3, 6, 5), F(0.053), U8(20), F(0.067), U8(40)),
    "an element-wise product": ("QLinearMul", IMAGE, *X, integers(U8, 3, 6, 5), F(0.05), U8(20), F(0.2), U8(90)),
    "a sigmoid": ("QLinearSigmoid", A, *X, F(1 / 256), U8(0)),
    "a leaky relu": ("QLinearLeakyRelu", A, *X, F(0.021), U8(30), {"alpha": 0.23}),
    "a mean over an image": ("QLinearGlobalAveragePool", IMAGE, *X, F(0.01), U8(120)),
}


@pytest.mark.parametrize("name", CASES)
def test_integers_are_those_of_onnx_runtime(name: str) -> None:
    op, x, *constants = CASES[name]
    attributes = constants.pop() if isinstance(constants[-1], dict) else {}
    (here,), (there,) = both(model(op, x, *constants, **attributes), x)
    assert here.shape == there.shape
    if there.dtype == F:
        np.testing.assert_allclose(here, there, rtol=1e-6)
    else:
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("shift", [0, 20, -20])
def test_dynamic_scales_and_zero_points(shift: float) -> None:
    x = numbers(3, 5) + F(shift)
    (quantized, scale, zero), expected = both(model("DynamicQuantizeLinear", x, outputs=3, opset=11), x)
    np.testing.assert_array_equal(quantized, expected[0])
    np.testing.assert_allclose(scale, expected[1], rtol=1e-6)
    assert zero == expected[2]


def test_dynamic_scale_of_zeros() -> None:
    (quantized, scale, zero), expected = both(
        model("DynamicQuantizeLinear", np.zeros((2, 2), F), outputs=3, opset=11), np.zeros((2, 2), F)
    )
    assert not quantized.any() and scale == 1 == expected[1] and zero == 0


def test_blocks_and_other_types_are_rejected() -> None:
    x = numbers(4, 2)
    blocks = model("QuantizeLinear", x, np.ones((2, 2), F), np.zeros((2, 2), U8), opset=21, axis=0, block_size=2)
    with pytest.raises(ValueError, match=r"quantization in blocks \(the attribute block_size\) cannot be read"):
        C.Function.load(blocks, format=C.ModelFormat.ONNX)
    with pytest.raises(ValueError, match="quantization to int32 cannot be read"):
        C.Function.load(model("QuantizeLinear", x, F(1), np.int32(0)), format=C.ModelFormat.ONNX)


# ---- whole models
def network(folder: Path) -> tuple[Path, np.ndarray]:
    x = C.input_variable((1, 8, 8), name="image")
    net = C.layers.Sequential([
        C.layers.Convolution((3, 3), 4, pad=True, activation=C.relu, bias=False), C.layers.MaxPooling((2, 2), 2),
        C.layers.Convolution((2, 2), 6, activation=C.relu), C.layers.Dense(5, activation=C.relu), C.layers.Dense(3),
    ])
    net(x).save(folder / "float.onnx", format=C.ModelFormat.ONNX, opset=17)
    return folder / "float.onnx", numbers(16, 1, 8, 8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_models_of_static_quantization(form: str, by_channel: bool, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    path, data = network(tmp_path)

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        batches = iter([{"image": data}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    target = tmp_path / "quantized.onnx"
    quantization.quantize_static(
        str(path), str(target), Calibration(), quant_format=quantization.QuantFormat[form], per_channel=by_channel,
        weight_type=quantization.QuantType.QInt8, activation_type=quantization.QuantType.QUInt8,
        reduce_range=True,  # see `integers`
    )
    operations = {n.op_type for n in onnx.load(target).graph.node}
    assert "QLinearConv" in operations if form == "QOperator" else "DequantizeLinear" in operations
    (here,), (there,) = both(target, data)
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_models_of_dynamic_quantization(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    path, data = network(tmp_path)
    quantization.quantize_dynamic(str(path), str(tmp_path / "quantized.onnx"))
    operations = {n.op_type for n in onnx.load(tmp_path / "quantized.onnx").graph.node}
    assert {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"} <= operations
    (here,), (there,) = both(tmp_path / "quantized.onnx", data)
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-5)
