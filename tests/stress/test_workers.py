"""Workers that are killed or stopped at random moments: the others end and say which one, and training can go on."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
WORKERS = 4
TIMES = min(int(os.environ.get("CNTKJAX_STRESS", "1")), 20)
LIMIT = 30  # seconds in which the others end
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SCRIPT = HERE / "workers.py"
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
LAUNCHERS = {
    "cntkjax launch": [
        sys.executable, "-m", "cntkjax.cli", "launch", "-n", str(WORKERS), "--restarts", "1", str(SCRIPT)
    ],
    "mpiexec": [MPIEXEC, "-n", str(WORKERS), sys.executable, str(SCRIPT)],
}
REASONS = {
    signal.SIGKILL: r"worker {0} (\(on .*\) was killed or crashed|failed with SIGKILL)|rank {0} with PID[^.]*signal 9",
    signal.SIGSTOP: r"worker {0} ((\(on .*\) )?has not answered for|\(process \d+\) has been stopped for)",
}


class Run:
    """A job, its workers' processes as soon as they are known, and what is printed."""

    def __init__(self, launcher, folder):
        self.job = subprocess.Popen(
            [*LAUNCHERS[launcher], str(folder)], env=ENVIRONMENT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        self.lines, self.processes, self.started = [], {}, threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.job.stdout:
            self.lines.append(line)
            if match := re.search(r"worker (\d) is process (\d+)", line):
                self.processes[int(match[1])] = int(match[2])
            if len(self.processes) == WORKERS:
                self.started.set()

    def wait(self, seconds=200):
        """The exit status and all output; nothing of the job is left."""
        try:
            status = self.job.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job has not ended after {seconds} s:\n{''.join(self.lines)}")
        finally:
            for process in [*self.processes.values(), self.job.pid]:
                if is_running(process):
                    os.kill(process, signal.SIGKILL)
        self.reader.join()
        self.job.stdout.close()
        return status, "".join(self.lines)


def is_running(process):
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def parameters(folder):
    first, *others = (np.load(folder / f"{rank}.npy") for rank in range(WORKERS))
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The parameters of a run in which nothing happens, and the seconds that it takes once all are started."""
    for _ in range(2):  # the first one compiles
        folder = tmp_path_factory.mktemp("undisturbed")
        run = Run("cntkjax launch", folder)
        assert run.started.wait(200)
        begin = time.monotonic()
        status, output = run.wait()
        assert status == 0, output
    return parameters(folder), time.monotonic() - begin


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_others_end_in_time_name_the_worker_and_training_goes_on(launcher, number, undisturbed, tmp_path):
    if launcher == "mpiexec":
        pytest.importorskip("mpi4py")
        if MPIEXEC is None:
            pytest.skip("needs mpiexec: pip install 'cntkjax[mpi]'")
    chance = random.Random(f"{launcher} {number.name}")
    for repetition in range(TIMES):
        folder = tmp_path / str(repetition)
        folder.mkdir()
        run, victim, delay = Run(launcher, folder), chance.randrange(WORKERS), chance.uniform(0, undisturbed[1])
        assert run.started.wait(200)
        processes = dict(run.processes)
        time.sleep(delay)
        if is_running(processes[victim]):
            os.kill(processes[victim], number)
        others = [rank for rank in range(WORKERS) if rank != victim]
        seconds = seconds_until_ended([processes[rank] for rank in others])
        if all((folder / f"{rank}.npy").exists() for rank in others) and is_running(processes[victim]):
            os.kill(processes[victim], signal.SIGCONT)  # it was stopped when it had nothing left to do but to end
        status, output = run.wait()
        failed = status != 0 or "starts all workers again" in output
        fate = f"end after {seconds:.1f} s" if failed else "have finished"
        context = f"{launcher}, {number.name} to worker {victim} after {delay:.1f} s: the others {fate}"
        print(context)
        if failed:
            assert seconds < LIMIT, f"{context}\n{output}"
            assert re.search(REASONS[number].format(victim), output), f"{context}\n{output}"
        if launcher == "mpiexec" and failed:
            status, output = Run(launcher, folder).wait()
        assert status == 0, f"{context}\n{output}"
        np.testing.assert_array_equal(parameters(folder), undisturbed[0], err_msg=context)


def seconds_until_ended(processes):
    begin = time.monotonic()
    while any(map(is_running, processes)) and time.monotonic() < begin + 4 * LIMIT:
        time.sleep(0.1)
    return time.monotonic() - begin
