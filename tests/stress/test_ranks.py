"""Workers of which one fails or is interrupted at a random moment: all others end, and none has half a step."""

import os
import random
import re
import signal
from pathlib import Path

import pytest

from tests.parallel.launching import HERE, outputs, start

from .training import LONGER, SOURCES

WORKERS, SECONDS = 4, 3
SCRIPT = Path(__file__).parent / "interrupted.py"
PATH = os.pathsep.join(str(SCRIPT.parents[i]) + s for i, s in ((2, "/src"), (2, "")))
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["one program", "two programs", "blocks", "UserLearner"])
@pytest.mark.parametrize("number", range(LONGER))
def test_an_interrupted_worker_has_taken_its_step_or_not(kind, number):
    rng = random.Random(f"{kind} {number}")
    rank, source = rng.randrange(2), rng.choice(list(SOURCES))
    texts = outputs(start(SCRIPT, kind, rank, source, number, timeout=str(SECONDS), PYTHONPATH=PATH))
    assert re.search(rf"worker {rank} is as after step \d+, after 1 interrupts", texts[rank]), texts[rank]
    assert not any("AssertionError" in text for text in texts), texts


@pytest.mark.parametrize("source", SOURCES)
def test_an_interrupted_step_of_several_devices_is_taken_or_not(source):
    flags = "--xla_force_host_platform_device_count=2"
    interrupts = 0
    for number in range(LONGER):
        worker = start(SCRIPT, "devices", 0, source, number, size=1, PYTHONPATH=PATH, XLA_FLAGS=flags)
        (text,) = outputs(worker)
        found = re.search(r"is as after step 24, after (\d+) interrupts", text)
        assert found, text
        interrupts += int(found[1])
    assert interrupts  # a loaded machine may let none come in a single run
