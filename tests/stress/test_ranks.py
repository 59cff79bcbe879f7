"""Four workers, one of which fails in a random way at a random moment: all others end, and name it."""

import os
import random
import signal

import pytest

from tests.parallel.launching import HERE, outputs, start

from .training import LONGER

WORKERS, SECONDS = 4, 3
FAULTS = ("raise", "end", "SIGKILL", "SIGSTOP")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(LONGER))
def test_the_other_workers_end_and_name_the_one_that_fails(number):
    rng = random.Random(number)
    failure, failing, minibatch = rng.choice(FAULTS), rng.randrange(WORKERS), rng.randrange(1, 40)
    workers = start(HERE / "failing.py", failure, failing, minibatch, size=WORKERS, timeout=str(SECONDS))
    others = [worker for rank, worker in enumerate(workers) if rank != failing]
    try:
        texts = outputs(others)
    finally:
        if workers[failing].poll() is None:
            os.kill(workers[failing].pid, signal.SIGCONT)
        outputs([workers[failing]])
    assert all(worker.returncode for worker in others), texts
    for text in texts:
        assert f"worker {failing} (on " in text, (failure, failing, minibatch, text)
