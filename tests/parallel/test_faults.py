"""When a worker fails, all others end, and say which one and why."""

import os
import re
import signal

import pytest

from .launching import outputs, start

FAILURES = {
    "raise": r"worker 1 \(on .*\) raised KeyError: 'no such field'",
    "end": r"worker 1 \(on .*\) has ended, but worker 0 \(on .*\) needs it for minibatch 3",
    "finalize": r"worker 0 \(on .*\) is at minibatch 3 while worker 1 \(on .*\) is at Communicator.finalize",
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
    if failure in ("model", "version", "learner"):
        assert "differs from worker" in other


def test_workers_that_end_at_different_times_succeed():
    workers = start("failing.py", "longer evaluation")
    for rank, output in enumerate(outputs(workers)):
        assert f"worker {rank} of 2 has finished" in output
    assert [worker.returncode for worker in workers] == [0, 0]
