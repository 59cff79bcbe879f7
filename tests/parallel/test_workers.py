"""Two workers under mpiexec learn as a single one with all the data."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .launching import saved

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("workers", HERE / "workers.py")
workers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(workers)
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def run(folder, size):
    folder.mkdir()
    command = [sys.executable, HERE / "workers.py", folder]
    if size > 1:
        command = [MPIEXEC, "-n", str(size), *command]
    environment = {
        **os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [saved(folder / f"{size}_{rank}.npz") for rank in range(size)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("needs mpiexec: pip install 'cntkjax[mpi]'")
    folder = tmp_path_factory.mktemp("workers")
    return run(folder / "alone", 1)[0], run(folder / "together", 2)


def test_all_workers_have_the_same_model(runs):
    _, (first, second) = runs
    for name in first:
        if not name.endswith("losses"):
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("name", ["dense", "embedding"])
def test_summed_gradients_equal_those_of_all_data(runs, name):
    alone, (first, second) = runs
    for key in alone:
        if key.startswith(f"{name}_summed"):
            np.testing.assert_allclose(first[key], alone[key], rtol=1e-5, atol=1e-6, err_msg=key)
    np.testing.assert_allclose(second[f"{name}_summed_losses"], alone[f"{name}_summed_losses"], rtol=1e-5)


@pytest.mark.parametrize("strategy", ["summed", "later"])
def test_a_session_reads_each_sample_once(runs, strategy):
    alone, (first, _) = runs
    assert first[f"session_{strategy}_samples"] == alone[f"session_{strategy}_samples"] == 52
    for i in range(2):
        name = f"session_{strategy}_{i}"
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-4, atol=1e-5)


def test_models_are_merged_after_each_block(runs):
    """Against a simulation: blocks of two steps of four samples, two per worker; in the last step all for worker 0."""
    _, (first, _) = runs
    assert first["session_blocks_samples"] == 52
    trainers = [workers.dense(lambda learner: learner) for _ in range(2)]
    parameters = [loss.parameters for _, _, loss, _ in trainers]
    start_values, velocity, m = [p.value for p in parameters[0]], [0.0, 0.0], np.exp(-8 / 20)
    for i in range(6):
        for rank, (x, y, _, trainer) in enumerate(trainers):
            index = np.arange(4 * i, 4 * i + 4)[rank::2] if i < 5 else np.arange(20, 24 - 4 * rank)
            if len(index):
                trainer.train_minibatch({x: workers.X[index], y: workers.Y[index]})
        if i % 2:
            steps = [one.value + other.value - 2 * b for one, other, b in zip(*parameters, start_values, strict=True)]
            velocity = [m * v + (1 - m) * step for v, step in zip(velocity, steps, strict=True)]
            start_values = [b + (1 + m) * v for b, v in zip(start_values, velocity, strict=True)]
            for _, _, loss, trainer in trainers:
                trainer.parameter_learners[0].reset_smoothed_gradients()
                for p, value in zip(loss.parameters, start_values, strict=True):
                    p.value = value
    for i, value in enumerate(start_values):
        np.testing.assert_allclose(first[f"dense_blocks_{i}"], value, rtol=1e-4, atol=1e-5)


def test_blocks_can_start_later(runs):
    """Recorded from CNTK 2.7: before, each worker trains on all samples, which the first block counts twice too."""
    _, (first, second) = runs
    expected = [-0.04, -0.12, -0.24, -0.28, -0.81, -0.93, -1.575, -1.655]
    np.testing.assert_allclose(first["later_blocks_losses"], expected, rtol=1e-5)
    expected = [-0.08, -0.24, -0.48, -0.56, -0.81, -1.05, -1.575, -1.735]
    np.testing.assert_allclose(second["later_blocks_losses"], expected, rtol=1e-5)


def test_each_learner_has_its_own_blocks(runs):
    """Recorded from CNTK 2.7."""
    _, (_, second) = runs
    first = [-1, -3.95604, -9.95604, -17.74702, -27.74702, -42.11586]
    other = [-5, -17, -36.73551, -60.73551, -90.73552, -142.44002]
    np.testing.assert_allclose(second["two_sizes_losses"].T, [first, other], atol=2e-5)


@pytest.mark.parametrize("strategy, expected", [
    ("summed", [[0, 20, 0, 2], [20, 40, 2, 4], [40, 60, 4, 6]]),
    ("later", [[0, 30, 0, 2], [30, 50, 2, 4]]),
    ("blocks", [[0, 40, 0, 2]]),
    ("restored", [[0, 20, 0, 2], [0, 50, 0, 2]]),
])
def test_progress_writers_count_exchanges_as_in_cntk(runs, strategy, expected):
    for worker in runs[1]:
        assert worker[f"reported_{strategy}"].tolist() == expected


def test_a_summary_with_block_momentum_is_of_all_workers(runs):
    """Recorded from CNTK 2.7 where the workers have as many samples; otherwise it divides by those of one of them."""
    _, workers_of_two = runs
    for worker in workers_of_two:
        alike, others = worker["summary_losses"]
        np.testing.assert_allclose(alike, [2.751179, 3], rtol=1e-6)
        np.testing.assert_allclose(others[1], (2 * 6 + 3 * 12) / 15)


@pytest.mark.parametrize("strategy, expected", [
    ("summed", [[0.8, 0.4, 0.4, 0.4, 0.4, 0.4], [0.6, 0.6, 0.6, 0.6, 0.6, 0.6]]),
    ("blocks", [[0.8, 0.4, 0.4, 0.5211, 0.5211, 0.5211], [0.8, 0.0423, 0.0423, -0.3881, -0.3881, -0.5814]]),
])
def test_distributed_learners_count_samples_at_a_rate_of_0(runs, strategy, expected):
    """Recorded from CNTK 2.7, where models are still merged."""
    alone, (first, _) = runs
    for size, run in (1, alone), (2, first):
        trained, values, samples = run[f"rate_0_{strategy}"].T
        taken = 6 if strategy != "summed" else 2 // size
        assert trained.tolist() == [1] * taken + [0] * (6 - taken)
        np.testing.assert_allclose(values, expected[size - 1], atol=1e-4)
        np.testing.assert_array_equal(samples, 2 * size * np.arange(1, 7))


def test_with_block_momentum_each_worker_takes_a_full_minibatch(runs):
    """As in CNTK: of 26 samples each worker takes 4 at a time, and one of the last two."""
    alone, workers_of_two = runs
    assert alone["sizes_with_blocks"].tolist() == [4, 4, 4, 4, 4, 4, 2, 0]
    for worker in workers_of_two:
        assert worker["sizes_with_blocks"].tolist() == [4, 4, 4, 1, 0]


def test_an_evaluator_averages_over_the_samples_of_all_workers(runs):
    alone, (first, second) = runs
    assert alone["tested_losses"].tolist() == [3, 3]
    assert (first["tested_losses"].tolist(), second["tested_losses"].tolist()) == ([3, 9], [12, 9])


def test_views_are_summed_over_the_workers(runs):
    _, workers_of_two = runs
    for worker in workers_of_two:
        np.testing.assert_array_equal(worker["aggregated_0"], [3, 3])
        np.testing.assert_array_equal(worker["aggregated_1"], np.full((2, 3), 3))
