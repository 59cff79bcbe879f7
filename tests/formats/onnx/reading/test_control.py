"""If with a known condition and Loop with a known number of iterations compute what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)
helper, node = onnx.helper, onnx.helper.make_node

VALUE = np.random.default_rng(6).normal(size=(2, 3)).astype(np.float32)
FLOAT, INT64, BOOL = 1, 7, 9
STEP = [("i", INT64, []), ("goes_on", BOOL, [])]


def infos(*values: tuple[str, int, list[int] | None]) -> list[Any]:
    return [helper.make_tensor_value_info(*v) for v in values]


def tensor(name: str, kind: int, *values: Any) -> Any:
    return helper.make_tensor(name, kind, [] if len(values) == 1 else [len(values)], list(values))


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], *weights: Any) -> Any:
    return helper.make_graph(nodes, "g", infos(*inputs), infos(*outputs), list(weights))


def model(nodes: list[Any], *weights: Any, outputs: tuple[Any, ...] = (("y", FLOAT, None),)) -> bytes:
    whole = graph(nodes, [("x", FLOAT, [2, 3]), ("unused", FLOAT, [1])], list(outputs), *weights)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(whole, opset_imports=opsets, ir_version=9).SerializeToString()


def load(data: bytes) -> Any:
    return C.Function.load(data, format=C.ModelFormat.ONNX)


def check(data: bytes) -> Any:
    """Compare with ONNX Runtime; the function."""
    f = load(data)
    values = f.eval({f.arguments[0]: VALUE})
    here = [values[o] for o in f.outputs] if len(f.outputs) > 1 else [values]
    there = runtime.InferenceSession(data).run(None, {"x": VALUE, "unused": np.ones(1, np.float32)})
    for actual, expected in zip(here, there, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert np.shape(actual) == expected.shape
    return f


def branch(nodes: list[Any]) -> Any:
    return graph(nodes, [], [("z", FLOAT, None)])


BRANCHES = {"then_branch": branch([node("Neg", ["x"], ["z"])]), "else_branch": branch([node("Exp", ["x"], ["z"])])}


@pytest.mark.parametrize("size", [2, 5])
def test_the_branch_of_a_condition_on_the_shape_is_taken(size: int) -> None:
    check(model(
        [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["rows"]),
         node("Equal", ["rows", "size"], ["c"]), node("If", ["c"], ["y"], **BRANCHES)],
        tensor("zero", INT64, 0), tensor("size", INT64, size),
    ))


def test_conditions_on_data_are_rejected() -> None:
    compare = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"])]
    data = model([*compare, node("If", ["c"], ["y"], **BRANCHES)], tensor("zero", FLOAT, 0.0))
    with pytest.raises(ValueError, match=r"\(If\): only conditions that do not depend on data can be read"):
        load(data)


def loop(body: Any, *begins: str, count: str = "count", condition: str = "", outputs: tuple[str, ...] = ("y",)) -> Any:
    return node("Loop", [count, condition, *begins], list(outputs), name="the loop", body=body)


def halving(*extra: Any, condition: list[Any] | None = None, collected: tuple[Any, ...] = ()) -> Any:
    """s := s w + i, where w is an initializer of the body."""
    nodes = [
        node("Mul", ["s", "w"], ["scaled"], name="scaled"), node("Cast", ["i"], ["number"], to=FLOAT),
        node("Add", ["scaled", "number"], ["next"]), *(condition or [node("Identity", ["goes_on"], ["on"])]), *extra,
    ]
    outputs = [("on", BOOL, []), ("next", FLOAT, None), *collected]
    return graph(nodes, [*STEP, ("s", FLOAT, None)], outputs, tensor("w", FLOAT, 0.5, 0.25, 2.0))


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_is_unrolled_and_its_iterations_share_weights(count: int) -> None:
    f = check(model([loop(halving(), "x")], tensor("count", INT64, count)))
    assert len(f.parameters) == (1 if count else 0)


def test_values_of_all_iterations_are_stacked() -> None:
    body = halving(node("Neg", ["next"], ["negative"]), node("Mul", ["i", "i"], ["square"]),
                   collected=(("negative", FLOAT, None), ("square", INT64, [])))
    outputs = (("y", FLOAT, None), ("steps", FLOAT, None), ("squares", INT64, None))
    check(model([loop(body, "x", outputs=("y", "steps", "squares"))], tensor("count", INT64, 3), outputs=outputs))


def test_a_known_condition_ends_a_loop() -> None:
    two = node("Constant", [], ["two"], value=tensor("", INT64, 2))
    body = halving(condition=[two, node("Less", ["i", "two"], ["on"])])
    check(model([loop(body, "x")], tensor("count", INT64, 9)))
    check(model([loop(body, "x", count="", condition="yes")], tensor("yes", BOOL, True)))
    check(model([loop(body, "x", condition="no")], tensor("no", BOOL, False), tensor("count", INT64, 9)))


def test_branches_and_loops_within_a_loop() -> None:
    inner = loop(halving(), "s", outputs=("inner",))
    even = [node("Mod", ["i", "two"], ["rest"]), node("Equal", ["rest", "zero"], ["c"])]
    branches = {k: branch([node(op, ["inner"], ["z"])]) for k, op in (("then_branch", "Neg"), ("else_branch", "Abs"))}
    nodes = [inner, *even, node("If", ["c"], ["next"], **branches), node("Identity", ["goes_on"], ["on"])]
    body = graph(nodes, [("i", INT64, []), ("goes_on", BOOL, []), ("s", FLOAT, None)],
                 [("on", BOOL, []), ("next", FLOAT, None)])
    rename = {"i": "j", "goes_on": "still", "on": "still_on", "next": "t", "s": "r"}
    _rename(inner.attribute[0].g, rename)
    check(model([loop(body, "x")], tensor("count", INT64, 3), tensor("two", INT64, 2), tensor("zero", INT64, 0)))


def _rename(body: Any, names: dict[str, str]) -> None:
    for info in (*body.input, *body.output):
        info.name = names.get(info.name, info.name)
    for one in body.node:
        one.input[:] = [names.get(n, n) for n in one.input]
        one.output[:] = [names.get(n, n) for n in one.output]


POSITIVE = [node("ReduceSum", ["next"], ["sum"], keepdims=0), node("Cast", ["sum"], ["on"], to=BOOL)]
COUNTED = [node("ReduceSum", ["x"], ["n"], keepdims=0), node("Cast", ["n"], ["count"], to=INT64)]
REJECTED: dict[str, tuple[list[Any], list[Any], str]] = {
    "a count of data": ([*COUNTED, loop(halving(), "x")], [], "the number of its iterations depends on data"),
    "an end by data": (
        [loop(halving(condition=POSITIVE), "x")], [tensor("count", INT64, 3)], "a loop that ends when its data say so",
    ),
    "no end": (
        [loop(halving(), "x", count="", condition="yes")], [tensor("yes", BOOL, True)],
        "loops of more than 10000 nodes",
    ),
    "too many iterations": ([loop(halving(), "x")], [tensor("count", INT64, 1 << 40)], "1099511627776 iterations"),
    "an empty stack": (
        [loop(halving(collected=(("scaled", FLOAT, None),)), "x", outputs=("y", "z"))], [tensor("count", INT64, 0)],
        "no iterations, so that its collected outputs would be empty",
    ),
    "another body": ([loop(halving(), "x", "x")], [tensor("count", INT64, 1)], "its body does not fit its operands"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_other_loops_are_rejected_with_the_reason(name: str) -> None:
    nodes, weights, reason = REJECTED[name]
    with pytest.raises(ValueError, match=rf"'the loop' \(Loop\): .*{reason}"):
        load(model(nodes, *weights))
