"""When a worker fails, all others end, and say which one and why."""

import os
import re
import signal
import sys
import time

import pytest

from tests.parallel.launching import ENVIRONMENT, outputs, start

FAILURES = {
    "raise": r"worker 1 \(on .*\) raised KeyError: 'no such field'",
    "interrupt": r"worker 1 \(on .*\) raised KeyboardInterrupt(?!:)",
    "end": r"worker 1 \(on .*\) has ended, but worker 0 \(on .*\) needs it for minibatch 3",
    "finalize": r"worker 0 \(on .*\) is at minibatch 3 while worker 1 \(on .*\) is at Communicator.finalize",
    "shape": r"worker 1 \(on .*\) raised .*Error: .*shape",
    "SIGKILL": r"worker 1 \(on .*\) was killed or crashed",
    "SIGSTOP": r"worker 1 \(on .*\) has not answered for 3 s",
    "model": r"in the parameters of the model: unnamed \(3, [24]\) float32 instead of unnamed \(3, [24]\) float32",
    "version": r"differs from worker [01] in the version of cntkjax: .* instead of ",
    "learner": r"in the kind of learner 0: rate(, momentum)? instead of rate(, momentum)?;",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_the_others_end_and_name_the_worker_that_fails(failure):
    workers = start("failing.py", failure, timeout="3")
    try:
        (output,) = outputs(workers[:1])
    finally:
        if workers[1].poll() is None:
            os.kill(workers[1].pid, signal.SIGCONT)
        (other,) = outputs(workers[1:])
    assert workers[0].returncode == 1
    assert re.search(FAILURES[failure], output), output
    if failure == "SIGSTOP":
        assert sys.platform != "linux" or workers[1].returncode == -signal.SIGKILL  # nothing is left of the job
    else:
        assert "Check failure" not in other  # of jax, whose service is in worker 0: that has to end last
    if failure in ("model", "version", "learner"):
        assert "differs from worker" in other


FAILURES_OF_WORKER_0 = {
    "raise": r"worker 0 \(on .*\) raised KeyError: 'no such field'",
    "end": r"worker 0 \(on .*\) has ended, but worker 1 \(on .*\) needs it for minibatch 3",
    "SIGKILL": r"worker 0 \(on .*\) was killed or crashed",
}


@pytest.mark.parametrize("failure", FAILURES_OF_WORKER_0)
def test_the_others_end_where_worker_0_fails(failure):
    """What the workers say to each other passes through it."""
    workers = start("failing.py", failure, 0, 2, timeout="3")
    output = outputs(workers)[1]
    assert workers[1].returncode
    assert re.search(FAILURES_OF_WORKER_0[failure], output), output


@pytest.mark.parametrize("worker, failure, message", [
    (0, "SIGSTOP at the end", r"worker 0 \(on .*\) has not answered for 3 s"),
    (1, "SIGSTOP at the end", r"worker 1 \(on .*\) has not answered for 3 s"),
    (1, "SIGKILL at the end", r"worker 1 \(on .*\) was killed or crashed"),
])
def test_the_others_do_not_wait_for_a_worker_that_fails_when_all_have_trained(worker, failure, message):
    workers = start("failing.py", failure, worker, timeout="3")
    try:
        (output,) = outputs([workers[1 - worker]], seconds=100)
    finally:
        workers[worker].kill()
        outputs([workers[worker]])
    assert "has finished" in output
    assert re.search(message, output), output


MISTAKES = {
    "bits": "num_quantization_bits is 1, 2, 4, 8, 16 or 32, not 3",
    "beside": "the learners of a trainer have to be distributed all, or none of them",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_no_worker_can_do_is_an_error_on_each(mistake):
    workers = start("failing.py", mistake)
    for output in outputs(workers):
        assert MISTAKES[mistake] in output
        assert "Check failure" not in output
    assert all(worker.returncode for worker in workers)


def test_workers_with_different_devices_are_an_error_on_each():
    workers = start("failing.py", "devices", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    for output in outputs(workers):
        assert re.search("differs from worker [01] in the devices: [12] of the kind cpu instead of [12] of", output)


def test_workers_that_end_at_different_times_succeed():
    workers = start("failing.py", "longer evaluation")
    for rank, output in enumerate(outputs(workers)):
        assert f"worker {rank} of 2 has finished" in output
    assert [worker.returncode for worker in workers] == [0, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes are stopped")
def test_a_worker_that_is_stopped_before_it_has_joined_ends_the_others_and_is_named():
    workers = start("failing.py", "none", size=3, timeout="3")
    os.kill(workers[2].pid, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        for output in outputs(workers[:2]):
            assert re.search("worker 2 .*has been stopped for 1 s, before all workers had started", output), output
        assert time.monotonic() - begin < 30
    finally:
        workers[2].kill()
        outputs(workers[2:])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes there are")
def test_a_worker_that_is_killed_before_it_has_joined_ends_the_others_and_is_named(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nif os.environ.get('CNTKJAX_RANK') == '2': time.sleep(100)\n"
    )
    path = os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    workers = start("failing.py", "none", size=3, timeout="3", PYTHONPATH=path)
    time.sleep(8)  # the others wait for it by now
    workers[2].kill()
    begin = time.monotonic()
    for output in outputs(workers)[:2]:
        assert re.search(r"worker 2 \(process \d+\) has ended, before all workers had started", output), output
    assert time.monotonic() - begin < 30


def test_workers_that_never_start_are_named():
    workers = start("failing.py", "none", size=4, missing=(1, 2), CNTKJAX_JOIN_TIMEOUT="6")
    for output in outputs(workers):
        assert "worker 1, worker 2 have not started within 6 s" in output
    assert [worker.returncode for worker in workers] == [1, 1]
