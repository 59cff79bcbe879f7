"""Workers that divide the state of learners train as those that have all of it."""

import numpy as np
import pytest

import cntkjax as C

from . import sharded
from .launching import outputs, saved, start

pytestmark = pytest.mark.timeout(600)  # the first test waits for the workers

RUNS = {  # by the number of workers: devices of each, and what they train with
    1: (3, ["adam", "normalized", "16 bits"]),
    2: (1, ["adam", "clipped", "noisy", "later"]),
    4: (1, ["adam", "unequal"]),
}
PARAMETERS = range(5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def runs(folder):
    """What all of some workers have learned. Those of each run continue from the checkpoint of the run before, too."""
    results = {}

    def run(workers):
        if workers not in results:
            if workers > 1:
                run(workers // 2)
            devices, names = RUNS[workers]
            started = start("sharded.py", folder, devices, *names, size=workers, timeout="60")
            printed = outputs(started, 300)
            assert not any(worker.returncode for worker in started), "\n".join(printed)
            results[workers] = [saved(folder / f"{workers}_{rank}.npz") for rank in range(workers)]
        return results[workers]

    return run


def names(run):
    return [name.removesuffix(" 1 0") for name in run if name.endswith(" 1 0")]


@pytest.mark.parametrize("workers", RUNS)
def test_parameters_are_those_of_whole_state(runs, workers):
    """Not bit for bit: XLA rounds the same sums differently in programs of other shapes."""
    run = runs(workers)[0]
    assert names(run) == RUNS[workers][1] + (["restored"] if workers > 1 else [])
    for name in names(run):
        for i in PARAMETERS:
            np.testing.assert_allclose(
                run[f"{name} 1 {i}"], run[f"{name} 0 {i}"], rtol=1e-6, atol=5e-7, err_msg=f"{name} {i}"
            )


@pytest.mark.parametrize("workers", [2, 4])
def test_all_workers_have_the_same_parameters_bit_for_bit(runs, workers):
    first, *others = runs(workers)
    for other in others:
        for name in names(first):
            for i in PARAMETERS:
                np.testing.assert_array_equal(other[f"{name} 1 {i}"], first[f"{name} 1 {i}"], err_msg=name)


@pytest.mark.parametrize(("workers", "parts"), [(1, 3), (2, 2), (4, 4)])
def test_each_device_has_a_part_of_the_state(runs, workers, parts):
    for run in runs(workers):
        for name in RUNS[workers][1]:
            if name == "noisy":  # it has no state
                continue
            whole, part = run[f"{name} 0 bytes"], run[f"{name} 1 bytes"]
            assert whole / parts <= part <= whole / parts + 200


def test_checkpoints_are_for_any_number_of_workers(runs, folder):
    """Also for a single process with whole state. The sums over its samples are rounded differently."""
    learned = []
    for checkpoint in ("2 0", "2 1"):
        inputs, trainer = sharded.make("adam")
        trainer.restore_from_checkpoint(str(folder / checkpoint))
        sharded.train(inputs, trainer, 2, sharded.STEPS)
        learned.append([p.value for p in trainer.model.parameters])
    for i in PARAMETERS:
        np.testing.assert_allclose(learned[1][i], learned[0][i], rtol=1e-6, atol=5e-7)
        np.testing.assert_allclose(learned[1][i], runs(4)[0][f"restored 1 {i}"], rtol=1e-5, atol=1e-6)


def test_a_manual_update_makes_the_state_whole_again():
    w = C.parameter(3)
    learner = C.data_parallel_distributed_learner(C.adam([w], 0.1, 0.9), shard_state=True)
    learner.update({w: np.ones(3, np.float32)}, 1)
    assert np.abs(w.value).min() > 0


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        (lambda p: C.sgd(p, 0.1), {"num_quantization_bits": 1}),
        (lambda p: C.learners.from_optax(p, __import__("optax").adam(0.1)), {}),
        (lambda p: C.universal(lambda ps, gs: C.combine([C.assign(p, g) for p, g in zip(ps, gs)]), p), {}),  # noqa: B905
    ],
)
def test_what_cannot_be_divided_is_an_error(learner, options):
    with pytest.raises(ValueError, match="shard_state"):
        C.data_parallel_distributed_learner(learner([C.parameter(3)]), shard_state=True, **options)
