"""The benchmark of single operations: all sides compute the same, and this package moves no more than plain JAX."""

import json

import numpy as np
import pytest

from benchmarks import ops
from benchmarks.__main__ import main
from benchmarks.ops import CASES

LEAN = [
    "element_divide", "element_select", "relu", "elu", "softplus", "tanh", "exp", "log", "pow", "clip", "element_max",
    "plus of a bias", "reduce_log_sum_exp", "reduce_max", "reduce_sum over two axes", "reduce_mean over the batch",
    "softmax", "log_softmax", "cross entropy, sparse labels", "cross entropy, dense labels", "binary_cross_entropy",
    "squared_error", "cosine_distance", "times", "times_transpose", "times of sparse rows (embedding)",
    "gather along an axis", "gather of sorted indices", "splice and slice", "transpose", "max pooling 2x2",
    "global average pooling", "depth_to_space", "batch normalization", "past_value", "sequence.reduce_sum",
]


@pytest.mark.parametrize("name", LEAN)
def test_memory_traffic_is_that_of_plain_jax(name):
    case = next(case for case in CASES if case.name == name)
    moved = ops.megabytes(case)
    for ours, plain in zip(moved["cntkjax"], moved["jax"], strict=True):
        assert ours <= 1.1 * plain


def test_one_command_measures_and_compares_the_results(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch is one of the sides")
    main(["ops", "--quick", "--only", "reduce_max", "sequence.last", "--json", str(tmp_path / "ops.json")])
    assert "| reduce_max | " in capsys.readouterr().out
    results = json.loads((tmp_path / "ops.json").read_text())
    assert {side: len(times) for side, times in results["sequence.last"].items()} == dict.fromkeys(ops.SIDES, 2)


def test_a_side_with_other_results_is_an_error():
    case = next(case for case in CASES if case.name == "softmax")
    with pytest.raises(AssertionError, match="softmax"):
        ops.check(case, {"jax": np.array([1.0, 2.0]), "cntkjax": np.array([1.0, 3.0])})
