"""Programs over all workers' devices are stored, and loaded by other processes."""

import json

from .launching import outputs, start


def run(cache):
    workers = start("stored.py", CNTKJAX_CACHE_DIR=str(cache), timeout="60")
    printed = outputs(workers)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    return [json.loads(text.splitlines()[-1]) for text in printed]


def test_programs_of_all_workers_are_loaded_and_learn_the_same(tmp_path):
    compiled, loaded = run(tmp_path), run(tmp_path)
    for (before, learned), (after, same) in zip(compiled, loaded, strict=True):
        assert {"the training step for minibatches of up to 4", "an update"} <= set(before)
        assert set(after) == set(before)
        assert all(after.values())
        assert same == learned
