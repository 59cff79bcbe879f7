"""Each operation is exported, checked by onnx, run by ONNX Runtime, and imported, with the same values."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats.onnx.writing.table import PRIMITIVES
from cntkjax.primitives.base import BY_NAME
from tests.formats.onnx.cases import CASES, Case

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)

# What ONNX has no operation for: losses over whole minibatches, state that is written, users' code, speech lattices.
WITHOUT = {
    "Assign", "CosDistanceWithNegativeSamples", "CustomProxyOp", "EditDistanceError", "ForwardBackward",
    "LabelsToGraph", "LambdaRank", "LatticeSequenceWithSoftmax", "NDCG", "RandomSample",
    "RandomSampleInclusionFrequency",
}


def function_of(case: Case) -> Any:
    if case.sequence:
        variables = [C.sequence.input_variable(v.shape[1:], name=f"x{i}") for i, v in enumerate(case.inputs)]
    else:
        variables = [C.input_variable(v.shape[1:], name=f"x{i}") for i, v in enumerate(case.inputs)]
    return case.make(*variables)


def as_tensors(case: Case, opset: int) -> list[list[np.ndarray]]:
    """The inputs of an exported model: all samples at once, or one by one if the batch size is 1."""
    if case.sequence:
        two = [np.stack([v, 2 * v[::-1]], 1) for v in case.inputs]
        return [two] if opset > 9 else [[v[:, i : i + 1] for v in two] for i in range(2)]
    if opset > 9:
        return [case.inputs]
    return [[v[i : i + 1] for v in case.inputs] for i in range(len(case.inputs[0]))]


def expected(case: Case, f: Any, tensors: list[np.ndarray]) -> list[np.ndarray]:
    """The results of evaluating the function itself, in the layout of ONNX."""
    feeds = {}
    for i, v in enumerate(tensors):
        argument = next((a for a in f.arguments if a.name == f"x{i}"), None)
        if argument is not None:
            feeds[argument] = [np.ascontiguousarray(v[:, j]) for j in range(v.shape[1])] if case.sequence else v
    values = f.eval(feeds)
    values = values if isinstance(values, dict) else {f.outputs[0]: values}
    return [np.stack(values[o], 1) if o.sequence_axis is not None else np.asarray(values[o]) for o in f.outputs]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_runs_with_the_same_values_and_reads_back(case: Case, tmp_path: Path) -> None:
    f = function_of(case)
    all_tensors = as_tensors(case, 10)[0]
    references = expected(case, f, all_tensors)
    close = partial(np.testing.assert_allclose, rtol=case.tolerance, atol=case.tolerance)
    for opset in case.opsets:
        path = tmp_path / f"{opset}.onnx"
        f.save(path, format=C.ModelFormat.ONNX, opset=opset)
        onnx.checker.check_model(str(path), full_check=True)
        session = runtime.InferenceSession(str(path))
        names = [v.name for v in session.get_inputs()]
        for i, tensors in enumerate(as_tensors(case, opset)):
            values = session.run(None, {f"x{k}": v for k, v in enumerate(tensors) if f"x{k}" in names})
            for actual, reference, output in zip(values, references, f.outputs, strict=True):
                close(actual, reference if opset > 9 else part(reference, output, i))
    if case.reads_back:
        again = C.Function.load(path, format=C.ModelFormat.ONNX)
        values = again.eval({a: all_tensors[int(a.name[1:])] for a in again.arguments})
        for actual, reference in zip(values.values() if len(again.outputs) > 1 else [values], references, strict=True):
            close(actual, reference)


DISTRIBUTIONS = {  # numbers, mean and standard deviation
    "uniform": ((-1.0, 3.0), 1, 4 / 12**0.5), "normal": ((2.0, 0.5), 2, 0.5), "bernoulli": ((0.3,), 0.3, 0.21**0.5),
    "gumbel": ((1.0, 2.0), 1 + 2 * np.euler_gamma, 2 * np.pi / 6**0.5),
}


def test_random_numbers_keep_their_distribution(tmp_path: Path) -> None:
    x, path = C.input_variable((50, 60), name="x"), tmp_path / "f.onnx"
    draws = [draw for kind, (numbers, _, _) in DISTRIBUTIONS.items() for draw in (
        getattr(C.random, kind)((50, 60), np.float32, *numbers), getattr(C.random, f"{kind}_like")(x, *numbers))]
    C.combine(draws).save(path, format=C.ModelFormat.ONNX, opset=13)
    feed = np.zeros((2, 50, 60), np.float32)
    again = C.Function.load(path, format=C.ModelFormat.ONNX)
    values = again.eval({again.arguments[0]: feed})
    for drawn in runtime.InferenceSession(str(path)).run(None, {"x": feed}), [values[o] for o in again.outputs]:
        for i, (_, mean, deviation) in enumerate(DISTRIBUTIONS.values()):
            for numbers in drawn[2 * i : 2 * i + 2]:
                assert numbers.shape[-2:] == (50, 60)
                np.testing.assert_allclose([numbers.mean(), numbers.std()], [mean, deviation], atol=0.15)


def part(value: np.ndarray, output: Any, i: int) -> np.ndarray:
    """Sample or sequence i, as a batch of one."""
    if output.sequence_axis is not None:
        return value[:, i : i + 1]
    return value[i : i + 1] if output.dynamic_axes else value


def test_every_primitive_is_written_or_known_to_have_no_counterpart() -> None:
    structure = {"Combine", "UserDefinedFunction", "UserFunction", "NativeUserFunction"}
    written = set(PRIMITIVES) | WITHOUT | structure
    assert not {name for name in BY_NAME if name not in written and BY_NAME[name].cntk_id < 100}


def test_errors_name_operations_without_counterpart(tmp_path: Path) -> None:
    x, y, group = C.input_variable(1, name="x"), C.input_variable(1), C.input_variable(1)
    with pytest.raises(ValueError, match="ONNX has no operation for LambdaRank"):
        C.lambda_rank(x, y, group).save(tmp_path / "f.onnx", format=C.ModelFormat.ONNX)
    assert not list(tmp_path.iterdir())
