"""Workers that SLURM or mpiexec start, as these do it, and what goes wrong before they have met."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from cntkjax.parallel.siblings import workers_of

from .launching import HERE, mpiexec, outputs, process

SCRIPT = "failing.py"


def test_processes_with_the_variables_of_srun_are_workers():
    step = {
        "SLURM_JOB_ID": random.randrange(10**6), "SLURM_STEP_NUM_TASKS": 2, "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": 2,
    }
    workers = []
    for rank in range(2):
        variables = {**step, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        command = [sys.executable, HERE / SCRIPT, "none"]
        workers.append(process(command, {name: str(value) for name, value in variables.items()}))
    for rank, output in enumerate(outputs(workers)):
        assert f"worker {rank} of 2 has finished" in output


def test_mpiexec_may_have_a_hostfile(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    (output,) = outputs([mpiexec(["-n", 2, "--hostfile", hosts], SCRIPT, "none")])
    assert "worker 0 of 2 has finished" in output and "worker 1 of 2 has finished" in output


def test_mpiexec_without_mpi4py_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['mpi4py'] = None\n")
    path = os.pathsep.join([str(tmp_path), str(HERE.parents[1] / "src")])
    job = mpiexec(["-n", 2], SCRIPT, "none", PYTHONPATH=path)
    (output,) = outputs([job])
    assert job.returncode != 0
    assert 'ImportError: mpiexec started this process, which needs mpi4py: pip install "cntkjax[mpi]"' in output


@pytest.mark.parametrize("worker", [0, 1])
def test_a_worker_that_is_stopped_in_the_end_of_mpi_ends_the_others_and_is_named(worker):
    job = mpiexec(["-n", 3], SCRIPT, "SIGSTOP after jax at the end", worker, CNTKJAX_WORKER_TIMEOUT="3")
    (output,) = outputs([job], seconds=100)
    assert output.count("has finished") >= 2
    assert re.search(rf"worker {worker} \(on .*\) has not answered for 3 s", output), output


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes are stopped")
@pytest.mark.parametrize("number, name", [
    (signal.SIGSTOP, r"worker 1 \(process \d+\) has been stopped for 1 s, before all workers had started"),
    (signal.SIGKILL, r"rank 1 with PID[^.]*signal 9"),
])
def test_a_worker_that_fails_in_the_start_of_mpi_ends_the_others_and_is_named(number, name):
    """MPI waits for all workers, and lets nothing else run in Python meanwhile, unless it is told to."""
    job = mpiexec(["-n", 3], SCRIPT, "none", CNTKJAX_WORKER_TIMEOUT="3")
    while 1 not in (workers := {rank: worker for worker, rank, _ in workers_of(job.pid)}):
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(workers[1], number)
    (output,) = outputs([job], seconds=100)
    assert re.search(name, output), output


def test_standard_output_is_that_of_the_program_alone(tmp_path):
    """Gloo says there that it is connected."""
    (tmp_path / "program.py").write_text(
        "import cntkjax as C\n"
        "x, w = C.input_variable(2), C.parameter(2, init=1)\n"
        "learner = C.distributed.data_parallel_distributed_learner(C.sgd([w], 0.5))\n"
        "C.Trainer(None, C.reduce_sum(x * w), learner).train_minibatch({x: [[1, 1]]})\n"
        "print(w.value.tolist())\n"
    )
    job = mpiexec(["-n", 2], tmp_path / "program.py", errors=subprocess.PIPE)
    output, errors = job.communicate(timeout=100)
    assert output == "[0.5, 0.5]\n" * 2, errors
