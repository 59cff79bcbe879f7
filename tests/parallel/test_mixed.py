"""Block momentum and summed gradients in one trainer: each learner learns as it would alone.

The numbers are recorded from CNTK 2.7 on two workers. It fails where a worker has no data.
"""

import json

import numpy as np
import pytest

from .launching import outputs, start

EXPECTED = {  # by which learner comes first, and by the one that aggregates metrics: losses of each worker, or of both
    ("blocks first", 0): (
        [4, -48, -245.86812, -663.82416, -1423.73511, -2548.48218],
        [8, -100, -491.73624, -1351.64832, -2847.47021, -5156.96436],
    ),
    ("blocks first", 1): ([6, -74, -368.80219, -1007.73621, -2135.60254, -3852.72314],) * 2,
    ("blocks last", 0): ([6, -42, -223.21962, -621.6261, -1460.42407, -2562.50903],) * 2,
    ("blocks last", 1): (
        [4, -16, -148.81308, -342.41742, -973.61609, -1528.33936],
        [8, -68, -297.62616, -900.83484, -1947.23218, -3596.67871],
    ),
}
PARAMETERS = {  # of each worker: the one that learns with block momentum, and the other
    "blocks first": (
        [
            [0, -3.95604, -6.95604, -17.74702, -22.74702, -42.11586],
            [-1, -3.95604, -9.95604, -17.74702, -27.74702, -42.11586],
        ],
        [-8, -26, -53, -89, -134, -188],
    ),
    "blocks last": (
        [
            [-2, -13.86812, -22.86812, -55.24107, -70.24107, -128.34756],
            [-5, -13.86812, -31.86812, -55.24107, -85.24107, -128.34756],
        ],
        [-2, -8, -17, -29, -44, -62],
    ),
}


@pytest.fixture(scope="module", params=["one", "all"])
def runs(request, tmp_path_factory):
    """What each of two workers has learned, with one device or with two."""
    flags = "--xla_force_host_platform_device_count=2"
    workers = start("mixed.py", tmp_path_factory.mktemp("mixed"), request.param, XLA_FLAGS=flags)
    printed = outputs(workers)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    return [json.loads(next(line for line in text.splitlines() if line.startswith("{"))) for text in printed]


@pytest.mark.parametrize("order", PARAMETERS)
@pytest.mark.parametrize("aggregator", [0, 1])
def test_parameters_are_those_of_cntk(runs, order, aggregator):
    blocks, summed = PARAMETERS[order]
    for rank, run in enumerate(runs):
        first, second = np.array(run[order][aggregator]).T[:2]
        merged, other = (first, second) if order == "blocks first" else (second, first)
        np.testing.assert_allclose(merged, blocks[rank], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(other, summed, rtol=1e-6)


@pytest.mark.parametrize("order, aggregator", EXPECTED)
def test_the_metric_aggregator_decides_whose_losses_are_reported(runs, order, aggregator):
    sums = (order == "blocks first") == (aggregator == 1)
    for rank, run in enumerate(runs):
        losses, metrics, counts = np.array(run[order][aggregator]).T[2:]
        np.testing.assert_allclose(losses, EXPECTED[order, aggregator][rank], rtol=1e-5)
        np.testing.assert_allclose(metrics, np.arange(1, 7) * (1.5 if sums else 1 + rank), rtol=1e-6)
        assert counts.tolist() == [4 if sums else 2] * 6


def test_minibatches_may_differ_in_size(runs):
    expected = [
        [
            [0, -11, 4], [-4, -29, -66], [-5.5, -60.5, -273], [-26.12779, -96.5, -748],
            [-31.12779, -141.5, -1578.13892], [-43.12778, -249.5, -2733.7666],
        ],
        [
            [-2, -11, 8], [-4, -29, -140], [-13, -60.5, -546], [-26.12779, -96.5, -1556],
            [-36.12778, -141.5, -3156.27783], [-60.12778, -249.5, -5527.5332],
        ],
    ]
    for run, rows in zip(runs, expected, strict=True):
        np.testing.assert_allclose(np.array(run["uneven"])[:, :3], rows, rtol=1e-5)
    assert [row[4] for row in runs[0]["uneven"]] == [2, 4, 1, 2, 2, 4]


def test_minibatches_of_the_same_shapes_take_one_program(runs):
    programs = [text for text in runs[0]["programs"] if "state" not in text]
    assert programs.count("an update") == 1  # which merges the models
    assert len(programs) == 5


@pytest.mark.parametrize("pair", ["momentum", "no rate on one", "adam", "of users", "later"])
def test_a_worker_without_data_sums_gradients_and_leaves_the_parameters_of_its_blocks(runs, pair):
    for run in runs:
        together, alone = run["empty"][pair]
        np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert runs[0]["empty"][pair] == runs[1]["empty"][pair]  # the data have ended, so the models are merged


def test_rows_of_embeddings_travel_only_where_they_are_summed(runs):
    for run in runs:
        together, alone = run["embeddings"]
        for values, expected in zip(together, alone, strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_bits_are_those_of_the_learner(runs):
    for merged, quantized in zip(*(run["bits"] for run in runs), strict=True):
        np.testing.assert_array_equal(merged, quantized)  # on both workers
    (merged, summed), (merged_too, in_1_bit) = runs[0]["bits"]
    np.testing.assert_allclose(merged, merged_too, rtol=1e-6)
    assert not np.allclose(summed, in_1_bit, rtol=1e-3)


def test_training_continues_from_a_checkpoint_as_in_cntk(runs):
    expected = [
        [[-7.2096, -76.9235], [-10.3963, -76.9235], [-13.3372, -105.8374], [-22.0231, -135.6407], [-26.5499, -167.575]],
        [[-9.4329, -76.9235], [-10.3963, -76.9235], [-14.4772, -105.8374], [-22.0231, -135.6407], [-29.8951, -167.575]],
    ]
    for run, rows in zip(runs, expected, strict=True):
        np.testing.assert_allclose(np.array(run["restored"])[4:, :2], rows, atol=1e-4)


def test_summaries_are_of_all_workers_whoever_aggregates(runs):
    """A writer gets averages times the samples that it has counted."""
    for run in runs:
        np.testing.assert_allclose(run["summaries"], [[[-7160.2817, 45, 10]], [[-14320.5635, 90, 20]]], rtol=1e-6)


def test_the_last_learner_decides_on_the_size_of_minibatches_in_a_session(runs):
    for run in runs:
        assert run["sessions"] == [2, 1]
