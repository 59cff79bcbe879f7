"""Workers that exchange gradients of 32, 16 and 1 bits."""

import json

import numpy as np
import pytest

from .launching import outputs, saved, start

BITS = [32, 16, 1]
PARAMETERS = range(4)


@pytest.fixture(scope="module", params=[2, 3])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    workers = start("quantized.py", folder, size=request.param)
    printed = outputs(workers, 400)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    return [saved(folder / f"{rank}.npz") for rank in range(request.param)]


@pytest.mark.parametrize("bits", BITS)
def test_all_workers_have_the_same_parameters_bit_for_bit(run, bits):
    for other in run[1:]:
        for i in PARAMETERS:
            np.testing.assert_array_equal(other[f"parameter_{bits}_{i}"], run[0][f"parameter_{bits}_{i}"])


@pytest.mark.parametrize("bits", [16, 1])
def test_the_loss_is_at_most_2_percent_above_that_of_32_bits(run, bits):
    assert run[0]["loss_32"] < 0.3
    assert run[0][f"loss_{bits}"] <= 1.02 * run[0]["loss_32"]


def test_a_checkpoint_has_what_quantization_left_out(run):
    """Each parameter has errors, and so have their sums."""
    assert "before_8" not in run[0]
    for i in range(8):
        assert np.abs(run[0][f"before_{i}"]).max() > 0
        for worker in run:
            np.testing.assert_array_equal(worker[f"after_{i}"], run[0][f"before_{i}"])
    for i in PARAMETERS:
        np.testing.assert_array_equal(run[0][f"restored_{i}"], run[0][f"parameter_1_{i}"])


def test_resumed_training_goes_on_bit_for_bit(run):
    for i in PARAMETERS:
        assert (run[0][f"resumed_{i}"] != run[0][f"restored_{i}"]).any()
        for name in "resumed", "again":
            np.testing.assert_array_equal(run[0][f"{name}_{i}"], run[0][f"continued_{i}"])


def test_a_trainer_that_is_restored_keeps_its_programs(run):
    assert all(worker["programs_after_restoring"] == 0 for worker in run)


def test_digits_end_with_the_loss_of_32_bits(tmp_path):
    pytest.importorskip("sklearn", reason="its digits are the data: pip install scikit-learn")
    workers = start("quantized_digits.py", tmp_path, timeout="60")
    printed = outputs(workers, 400)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["32"] < 0.1
    assert first["1"] == pytest.approx(first["32"], rel=0.02)
