"""Damaged and malicious files raise clear errors, quickly and without allocating memory."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats.onnx.reading.table import OPERATIONS
from cntkjax.formats.onnx.writing.model import model_of

onnx = pytest.importorskip("onnx")
helper = onnx.helper
X = helper.make_tensor_value_info("x", 1, [2, 3])
Y = helper.make_tensor_value_info("y", 1, None)


def load(model: Any) -> Any:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return C.Function.load(data, format=C.ModelFormat.ONNX)


def model(*nodes: Any, initializers: Any = (), opset: int = 13, inputs: Any = (X,)) -> Any:
    graph = helper.make_graph(list(nodes), "g", list(inputs), [Y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(op: str, inputs: list[str], outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, inputs, list(outputs), name=f"the {op}", **attributes)


def ints(name: str, *values: int) -> Any:
    return helper.make_tensor(name, 7, [len(values)], list(values))


CYCLE = model(node("Relu", ["b"], ("a",)), node("Relu", ["a"], ("b",)), node("Add", ["a", "x"]))
BAD: dict[str, tuple[Any, str]] = {
    "nothing": (b"", "no ONNX model"),
    "text": (b"This is no model at all, but quite some text.", "no ONNX model"),
    "a cycle": (CYCLE, r"'the Relu' \(Relu\): its input 'b' is no input of the graph"),
    "an unknown tensor": (model(node("Relu", ["z"])), r"'the Relu' \(Relu\): its input 'z'"),
    "a tensor computed twice": (model(node("Relu", ["x"]), node("Relu", ["x"])), "there is already a tensor 'y'"),
    "an unknown operation": (model(node("Frobnicate", ["x"])), r"'the Frobnicate' \(Frobnicate\): this operation"),
    "a foreign domain": (model(helper.make_node("Relu", ["x"], ["y"], domain="my.ops")), "domain 'my.ops'"),
    "no output": (model(node("Relu", ["x"], ("z",))), "no node computes the output 'y'"),
    "an unknown opset": (model(node("Relu", ["x"]), opset=99), "of opset 99; 1 to 28 can be read"),
    "a matrix of another size": (
        model(node("MatMul", ["x", "w"]), initializers=[helper.make_tensor("w", 1, [2, 2], [1, 2, 3, 4])]),
        r"'the MatMul' \(MatMul\) does not fit its operands",
    ),
    "an axis out of range": (model(node("Concat", ["x", "x"], axis=7)), "no axis 7 in a tensor of rank 2"),
    "an attribute of another type": (model(node("Concat", ["x", "x"], axis=1.5)), "axis has to be an integer"),
    "a computed shape": (
        model(node("Cast", ["x"], ("s",), to=7), node("Reshape", ["x", "s"])), "the shape.* has to be a constant",
    ),
    "a shape of another size": (
        model(node("Reshape", ["x", "s"]), initializers=[ints("s", 4, 4)]), "another number of elements",
    ),
    "an empty slice": (
        model(node("Slice", ["x", "a", "b"]), initializers=[ints("a", 1), ints("b", 1)]), "is empty",
    ),
    "a huge constant": (
        model(node("ConstantOfShape", ["s"]), initializers=[ints("s", 1 << 20, 1 << 20)]), "elements; 134217728 are",
    ),
    "a huge expansion": (
        model(node("Expand", ["x", "s"]), initializers=[ints("s", 1 << 30, 2, 3)]), "elements; 134217728 are allowed",
    ),
    "huge padding": (
        model(node("Pad", ["x", "s"]), initializers=[ints("s", 0, 0, 1 << 30, 0)]), "elements; 134217728 are allowed",
    ),
    "a huge range": (
        model(node("Range", ["a", "b", "c"]), initializers=[ints("a", 0), ints("b", 1 << 40), ints("c", 1)]),
        "elements; 134217728 are allowed",
    ),
    "an input of unknown rank": (
        model(node("Relu", ["x"]), inputs=[helper.make_tensor_value_info("x", 1, None)]), "input 'x' has no shape",
    ),
    "an input of strings": (
        model(node("Relu", ["x"]), inputs=[helper.make_tensor_value_info("x", 8, [1])]), "elements of type 8",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_models_are_rejected_with_the_reason(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(ValueError, match=reason):
        load(data)


def test_sizes_are_those_of_the_data() -> None:
    tensor = helper.make_tensor("w", 1, [2, 3], np.zeros(6, np.float32).tobytes(), raw=True)
    tensor.dims[0] = 1 << 40
    with pytest.raises(ValueError, match="tensor 'w' of shape .* has 24 bytes, not"):
        load(model(node("Add", ["x", "w"]), initializers=[tensor]))


def test_nesting_of_graphs_is_limited() -> None:
    inner = helper.make_graph([node("Relu", ["x"])], "g", [], [Y])
    for _ in range(30):
        inner = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=inner)], "g", [], [Y])
    yes = helper.make_tensor("c", 9, [], [True])
    with pytest.raises(ValueError, match="nested deeper than 20 levels"):
        load(model(helper.make_node("If", ["c"], ["y"], then_branch=inner), initializers=[yes]))


# ---- external data
def saved_outside(folder: Path, location: str, offset: str = "0") -> Path:
    (folder / "inside").mkdir()
    (folder / "secret.bin").write_bytes(bytes(24))
    tensor = onnx.TensorProto(name="w", dims=[2, 3], data_type=1, data_location=1)
    for key, value in (("location", location), ("offset", offset), ("length", "24")):
        tensor.external_data.add(key=key, value=value)
    path = folder / "inside" / "m.onnx"
    path.write_bytes(model(node("Add", ["x", "w"]), initializers=[tensor]).SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_external_data_stay_in_the_folder(location: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tensor 'w' is in .* outside of the folder"):
        C.Function.load(saved_outside(tmp_path, location), format=C.ModelFormat.ONNX)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    path = saved_outside(tmp_path, "link.bin")
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ValueError, match="outside of the folder"):
        C.Function.load(path, format=C.ModelFormat.ONNX)


@pytest.mark.parametrize("offset", ["8", "-1", "1" * 30, "x"])
def test_external_data_have_to_exist(offset: str, tmp_path: Path) -> None:
    path = saved_outside(tmp_path, "data.bin", offset)
    (path.parent / "data.bin").write_bytes(bytes(24))
    with pytest.raises(ValueError, match="tensor 'w'"):
        C.Function.load(path, format=C.ModelFormat.ONNX)


def test_external_data_need_a_path(tmp_path: Path) -> None:
    data = saved_outside(tmp_path, "data.bin").read_bytes()
    with pytest.raises(ValueError, match="load the model by its path"):
        load(data)


# ---- mutations
def good_models() -> list[bytes]:
    """Files of several kinds, small."""
    image, words = C.input_variable((2, 6, 6), name="x"), C.sequence.input_variable(3, name="w")
    functions = [
        C.layers.Sequential([C.layers.Convolution((3, 3), 2, pad=True), C.layers.BatchNormalization(map_rank=1), C.relu,
                             C.layers.MaxPooling((2, 2), 2), C.layers.Dense(3)])(image),
        C.layers.Recurrence(C.layers.LSTM(2))(words),
        C.layers.Recurrence(lambda h, v: C.tanh(h + v))(words),
        C.softmax(C.reshape(C.slice(image, 1, 1, 4), (6, -1)), axis=0),
    ]
    return [model_of(f, opset).SerializeToString() for f in functions for opset in (9, 17)]


def mutations(seed: int) -> Iterator[bytes]:
    """Bytes changed, cut, doubled or filled with large numbers."""
    chance = random.Random(seed)
    originals = good_models()
    while True:
        data = bytearray(chance.choice(originals))
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            at = chance.randrange(len(data))
            kind = chance.randrange(6)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                del data[at : at + chance.choice([1, 2, 8, 64])]
            elif kind == 3:
                data[at:at] = data[at : at + chance.choice([1, 4, 32])]
            elif kind == 4:
                data[at : at + 4] = b"\xff" * chance.choice([1, 4, 8])
            else:
                del data[at:]
            data = data or bytearray(b"\0")
        yield bytes(data)


_NUMBERS = [-(2**62), -7, -1, 0, 1, 2, 3, 5, 64, 2**20, 2**31 - 1, 2**40, 2**62]


def rewritten(seed: int) -> Iterator[bytes]:  # noqa: C901 - one branch for each kind of damage
    """Files that are well-formed, but with other numbers, shapes, operations and operands."""
    chance = random.Random(seed)
    originals = good_models()
    while True:
        changed = onnx.ModelProto.FromString(chance.choice(originals))
        graph = changed.graph
        for _ in range(chance.choice([1, 1, 2, 4])):
            node, number = chance.choice(graph.node), chance.choice(_NUMBERS)
            kind = chance.randrange(7)
            if kind == 0 and node.attribute:
                attribute = chance.choice(node.attribute)
                attribute.i = number
                if attribute.ints:
                    attribute.ints[chance.randrange(len(attribute.ints))] = number
            elif kind == 1 and graph.initializer:
                tensor = chance.choice(graph.initializer)
                if tensor.dims:
                    tensor.dims[chance.randrange(len(tensor.dims))] = number
            elif kind == 2 and graph.initializer:
                tensor = chance.choice(graph.initializer)
                if tensor.data_type == 7:
                    values = np.frombuffer(tensor.raw_data, np.int64).copy()
                    values[chance.randrange(len(values)) if len(values) else slice(0)] = number
                    tensor.raw_data = values.tobytes()
            elif kind == 3 and node.input:
                names = [n for v in graph.node for n in (*v.input, *v.output)]
                node.input[chance.randrange(len(node.input))] = chance.choice(names)
            elif kind == 4:
                node.op_type = chance.choice([*OPERATIONS])
            elif kind == 5 and graph.input:
                shape = chance.choice(graph.input).type.tensor_type.shape.dim
                for dimension in shape[: chance.randrange(len(shape) + 1)]:
                    dimension.dim_value = number
            else:
                del node.input[chance.randrange(len(node.input) + 1) :]
        yield changed.SerializeToString()


def outcome(data: bytes) -> str:
    """The outcome of loading a mutated file; unclear errors propagate."""
    begun = time.perf_counter()
    try:
        load(data)
        function = "read"
    except ValueError as error:
        assert str(error).strip(), "an error without words"
        function = "refused"
    took = time.perf_counter() - begun
    assert took < 2, f"it took {took:.1f} s"
    return function


@pytest.mark.parametrize("mutated", [mutations, rewritten])
def test_mutated_files_are_read_or_rejected(mutated: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = [outcome(data) for data, _ in zip(mutated(11), range(250), strict=False)]
    assert {"read", "refused"} == set(outcomes)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kilobytes
