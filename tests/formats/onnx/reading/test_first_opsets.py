"""Models of the first opsets, 1 to 6, as exported until 2018, which CNTK reads.

Whole models: those that PyTorch exported for ONNX's own tests, with their inputs and outputs, which the package onnx
contains. Each rule that changed until opset 7: values by NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
helper, node = onnx.helper, onnx.helper.make_node

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
UNREAD = {"test_MaxPool1d_stride_padding_dilation", "test_MaxPool2d_stride_padding_dilation"}  # 128 elements at most
UNDEFINED = {"test_operator_sqrt"}  # of negative numbers, for which CNTK has 0 and ONNX NaN
MODELS = sorted(p for p in DATA.glob("pytorch-*/*/model.onnx") if p.parent.name not in UNREAD | UNDEFINED)
X = np.random.default_rng(3).normal(size=(2, 3, 4, 4)).astype(np.float32)
B = np.array([1.0, -2.0, 3.0], np.float32)


def tensors(folder: Path, kind: str) -> list[np.ndarray]:
    """The arrays of one kind beside a model, in the order of their numbers."""
    files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda f: int(f.stem.split("_")[1]))
    return [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes())) for f in files]


def evaluated(f: Any, *inputs: np.ndarray) -> np.ndarray:
    values = f.eval(dict(zip(f.arguments, inputs, strict=True)))
    return values[f.outputs[-1]] if isinstance(values, dict) else values


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parent.name)
def test_a_model_of_pytorch_computes_what_it_computed_there(path):
    f = C.Function.load(str(path), format=C.ModelFormat.ONNX)
    expected = tensors(path.parent, "output")[-1]
    actual = evaluated(f, *tensors(path.parent, "input"))
    np.testing.assert_allclose(np.reshape(actual, expected.shape), expected, rtol=1e-4, atol=1e-5)


def model(opset: int, *nodes: Any, **weights: Any) -> bytes:
    """A model from `x`, and the weights of these names, to `y`."""
    initializers = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    x, y = (helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", X.shape), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3).SerializeToString()


def y_of(data: bytes) -> np.ndarray:
    return evaluated(C.Function.load(data, format=C.ModelFormat.ONNX), X)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    "op, compute",
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
        ("Greater", np.greater),
    ],
)
def test_the_second_operand_begins_at_the_axis_that_is_named(op, compute, opset):
    data = model(opset, node(op, ["x", "b"], ["y"], broadcast=1, axis=1), b=B)
    np.testing.assert_allclose(y_of(data), compute(X, B[:, None, None]), rtol=1e-6)


def test_the_second_operand_is_at_the_last_axes_otherwise():
    b = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(y_of(model(6, node("Add", ["x", "b"], ["y"], broadcast=1), b=b)), X + b, rtol=1e-6)
    data = model(6, node("Mul", ["x", "b"], ["y"], broadcast=1, axis=2), b=np.stack([b, b + 1]).T[:, :1])
    np.testing.assert_allclose(y_of(data), X * b[:, None], rtol=1e-6)


def test_known_numbers_are_computed_with_by_the_same_rule():
    nodes = [
        node("Mul", ["a", "b"], ["s"], broadcast=1, axis=0),
        node("Reshape", ["s", "flat"], ["t"]),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    data = model(5, *nodes, a=np.array([[2, 12], [1, 1]]), b=np.array([1, 2]), flat=np.array([-1]))
    np.testing.assert_array_equal(y_of(data), X.reshape(2, 12, 2, 2))


def test_operands_that_do_not_fit_at_the_axis_are_an_error():
    with pytest.raises(ValueError, match=r"node 0 \(Add\): 1 axes do not begin at axis 4 of 4|there is no axis 4"):
        y_of(model(6, node("Add", ["x", "b"], ["y"], broadcast=1, axis=4), b=B))
    with pytest.raises(ValueError, match=r"node 0 \(Add\): 2 axes do not begin at axis 3 of 4"):
        y_of(model(6, node("Add", ["x", "b"], ["y"], broadcast=1, axis=3), b=B[None]))


def test_slopes_belong_to_channels():
    expected = np.where(X < 0, X * B[:, None, None], X)
    np.testing.assert_allclose(y_of(model(6, node("PRelu", ["x", "b"], ["y"]), b=B)), expected, rtol=1e-6)


@pytest.mark.parametrize("attributes, opset, expected", [
    (("Reshape", {"shape": [0, -1]}), 1, X.reshape(2, 48)),
    (("Concat", {}), 3, np.concatenate([X, X], 1)),
    (("Pad", {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 0.5}), 1,
     np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=0.5)),
    (("Pad", {"pads": [0, 0, 1, 0, 0, 0, 0, 2]}), 2, np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)])),
    (("Cast", {"to": "INT32"}), 1, np.trunc(X)),
    (("Upsample", {"height_scale": 2.0, "width_scale": 3.0}), 1, X.repeat(2, 2).repeat(3, 3)),
    (("Relu", {"consumed_inputs": [0]}), 1, np.maximum(X, 0)),
    (("Dropout", {"is_test": 1, "consumed_inputs": [0]}), 1, X),
    (("Crop", {"border": [1, 0, 0, 2]}), 6, X[:, :, :2, 1:]),
    (("Clip", {"min": -0.5, "max": 0.25}), 1, X.clip(-0.5, 0.25)),
    (("Affine", {"alpha": 150.0, "beta": 127.5}), 7, 150 * X + 127.5),
    (("ScaledTanh", {"alpha": 2.0, "beta": 0.5}), 7, 2 * np.tanh(0.5 * X)),
    (("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}), 7, 2 * np.log(1 + np.exp(0.5 * X))),
], ids=lambda v: v[0] if isinstance(v, tuple) else None)  # fmt: skip
def test_attributes_of_the_first_opsets(attributes, opset, expected):
    op, values = attributes
    inputs = ["x", "x"] if op == "Concat" else ["x"]
    np.testing.assert_allclose(y_of(model(opset, node(op, inputs, ["y"], **values))), expected, rtol=1e-6)


def test_attributes_count_where_values_are_known_as_well():
    """Weights that are only rearranged, and types of known numbers."""
    nodes = [
        node("Reshape", ["b"], ["c"], shape=[3, 1, 1]),
        node("Cast", ["n"], ["m"], to="FLOAT"),
        node("Add", ["x", "c"], ["z"]),
        node("Mul", ["z", "m"], ["y"]),
    ]
    data = model(4, *nodes, b=B, n=np.array([2]))
    np.testing.assert_allclose(y_of(data), (X + B[:, None, None]) * 2, rtol=1e-6)


def test_a_cast_to_an_unknown_type_is_an_error():
    with pytest.raises(ValueError, match=r"node 0 \(Cast\): a cast to 'QUARTER', which is no type of elements"):
        y_of(model(5, node("Cast", ["x"], ["y"], to="quarter")))


def test_tiles_repeat_along_one_axis():
    data = model(1, node("Tile", ["x", "t", "a"], ["y"]), t=np.array([3.0], np.float32), a=np.array([1.0], np.float32))
    np.testing.assert_array_equal(y_of(data), np.tile(X, (1, 3, 1, 1)))


def test_normalization_takes_running_statistics():
    s, m, v = (np.random.default_rng(i).uniform(0.5, 2, 3).astype(np.float32) for i in range(3))
    op = node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], is_test=1, spatial=1, consumed_inputs=[0, 0, 0, 1, 1]
    )
    m_, v_, s_, b_ = (a[:, None, None] for a in (m, v, s, B))
    expected = (X - m_) / np.sqrt(v_ + 1e-5) * s_ + b_
    np.testing.assert_allclose(y_of(model(1, op, s=s, b=B, m=m, v=v)), expected, rtol=1e-5, atol=1e-6)


def test_a_crop_to_a_size_is_an_error():
    with pytest.raises(ValueError, match=r"\(Crop\): only four borders"):
        y_of(model(6, node("Crop", ["x"], ["y"], border=[0, 0, 0, 0], scale=[2, 2])))
