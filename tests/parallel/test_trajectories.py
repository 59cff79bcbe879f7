"""2 and 4 workers train as CNTK 2.7 on as many, whose results are in trajectories.npz, and as one on all data."""

from pathlib import Path

import numpy as np
import pytest

from . import trajectories
from .launching import outputs, saved, start

EXPECTED = np.load(Path(__file__).with_name("trajectories.npz"))
EXCHANGING = [name for name in trajectories.LEARNERS if "blocks" not in name]


@pytest.fixture(scope="module", params=[2, 4])
def run(request, tmp_path_factory):
    folder, size = tmp_path_factory.mktemp("trajectories"), request.param
    workers = start("trajectories.py", folder, size=size)
    printed = outputs(workers)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    return [saved(folder / f"{size}_{rank}.npz") for rank in range(size)]


@pytest.mark.parametrize("learner", trajectories.LEARNERS)
def test_parameters_and_losses_are_those_of_cntk(run, learner):
    for i in range(5):
        key = f"{learner}_{i}"
        np.testing.assert_allclose(run[0][key], EXPECTED[f"{len(run)}_{key}"], rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("learner", EXCHANGING)
def test_all_workers_have_the_same_parameters_bit_for_bit(run, learner):
    for other in run[1:]:
        for i in range(4):
            np.testing.assert_array_equal(other[f"{learner}_{i}"], run[0][f"{learner}_{i}"])


@pytest.mark.parametrize("learner", EXCHANGING)
def test_parameters_are_those_of_a_single_process(run, learner):
    for i, array in enumerate(trajectories.train(learner)):
        if i < 4 or learner != "later":  # before the exchange, losses are those of a worker's own step
            np.testing.assert_allclose(run[0][f"{learner}_{i}"], array, rtol=1e-6, atol=1e-6)
