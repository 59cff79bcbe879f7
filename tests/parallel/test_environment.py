"""Where a process finds out which worker it is."""

import os

import pytest

from cntkjax.parallel.environment import Rank, discover


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setenv("CNTKJAX_PROCESS", "0")  # so that it is unset again after a test in which `discover` sets it
    for name in os.environ:
        if name.startswith(("CNTKJAX_", "OMPI_", "PMI_", "MPI_", "SLURM_")):
            monkeypatch.delenv(name)


def test_a_process_without_a_launcher_is_alone():
    assert discover() == Rank(0, 1)


def test_a_scheduler_sets_coordinator_rank_and_size(monkeypatch):
    for name, value in {"COORDINATOR": "first.host:1234", "RANK": "2", "SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(f"CNTKJAX_{name}", value)
    assert discover() == Rank(2, 4, ("first.host", 1234), 1)


def test_srun_is_recognized_but_not_an_allocation(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert discover().size == 1
    for name, value in {
        "STEP_NUM_TASKS": "8", "STEP_NODELIST": "node[03-06]", "JOB_ID": "4097", "PROCID": "5", "LOCALID": "1"
    }.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert discover() == Rank(5, 8, ("node03", 61441), 1)


def test_children_of_a_worker_are_no_workers(monkeypatch):
    for name, value in {"COORDINATOR": "host:1", "RANK": "1", "SIZE": "2", "PROCESS": str(os.getppid())}.items():
        monkeypatch.setenv(f"CNTKJAX_{name}", value)
    assert discover() == Rank(0, 1)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"COORDINATOR": "host:1", "SIZE": "2"}, "set CNTKJAX_RANK too"),
        ({"COORDINATOR": "host", "RANK": "0", "SIZE": "2"}, "give the coordinator as host:port"),
        ({"COORDINATOR": "host:1", "RANK": "2", "SIZE": "2"}, "a rank from 0 to size - 1"),
    ],
)
def test_variables_that_do_not_fit_together_are_errors(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(f"CNTKJAX_{name}", value)
    with pytest.raises(ValueError, match=message):
        discover()
