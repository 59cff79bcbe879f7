"""Random operations on a trainer, beside other threads: each takes place or does not, whatever disturbs it.

A run without disturbances says what must be true: after so many steps, the trainer has the state of that run.
"""

import random
import resource
import shutil
import threading

import pytest

from cntkjax.formats.wire import FormatError

from .training import LONGER, SOURCES, Training, assert_same, expected, interrupted

OPERATIONS = 120 * LONGER
FILES = 2

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # as in test_interrupts.py
    pytest.mark.usefixtures("terminal_signals"),
]


def limit_files(size=resource.RLIM_INFINITY):
    """Let no file become larger than so many bytes, as if the disk were full."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size == resource.RLIM_INFINITY else size, hard))


class Attack:
    """Operations by name, and what must be true: `files` has the steps that the checkpoint in each file may be of."""

    def __init__(self, folder, rng):
        self.folder, self.rng, self.training = folder, rng, Training()
        self.files = {str(folder / f"checkpoint{i}"): {self.training.steps} for i in range(FILES)}
        for path in self.files:
            self.training.trainer.save_checkpoint(path, {"steps": 0})
        self.done = dict.fromkeys(self.operations, 0)

    operations = ("train", "train", "train", "save", "save_later", "save_without_space", "restore", "damage")

    def _any_file(self):
        return self.rng.choice(list(self.files))

    def step(self, disturbance):
        """Take one operation, which may be interrupted, and check the state."""
        name = self.rng.choice(self.operations)
        action, before = getattr(self, name)(), self.training.steps
        if disturbance is None:
            action()
            self.done[name] += 1
        else:
            try:
                delay = self.rng.choice((0.002, 0.01, 0.05)) * self.rng.random()
                self.done[name] += not interrupted(disturbance, delay, action)
            finally:
                limit_files()
        if name not in ("train", "restore"):
            assert self.training.steps == before
        assert_same(self.training.state(), expected(self.training.steps))

    def train(self):
        return self.training.train

    def save(self, wait=True):
        path, steps = self._any_file(), self.training.steps
        self.files[path].add(steps)  # until it has certainly replaced the others

        def save():
            self.training.trainer.save_checkpoint(path, {"steps": steps}, wait=wait)
            if wait:
                self.files[path] = {steps}

        return save

    def save_later(self):
        return self.save(wait=False)

    def save_without_space(self):
        path, size = self._any_file(), self.rng.randrange(2000)
        trainer = self.training.trainer

        def save():
            trainer.wait_for_checkpoint()
            limit_files(size)
            with pytest.raises(OSError, match="too large"):
                trainer.save_checkpoint(path)
            limit_files()

        return save

    def restore(self):
        path = self._any_file()

        def restore():
            steps = self.training.trainer.restore_from_checkpoint(path)["steps"]
            assert steps == self.training.steps
            assert steps in self.files[path]

        return restore

    def damage(self):
        """Restore from a checkpoint without its last bytes."""
        path, damaged = self._any_file(), str(self.folder / "damaged")

        def restore():
            self.training.trainer.wait_for_checkpoint()
            for suffix in ("", ".ckp"):
                shutil.copyfile(path + suffix, damaged + suffix)
            with open(damaged + ".ckp", "r+b") as file:
                file.truncate(100)
            with pytest.raises(FormatError):
                self.training.trainer.restore_from_checkpoint(damaged)

        return restore


def beside(attack, stopped, errors):
    """What another thread does meanwhile: reads, evaluates, clones and saves the model."""
    hidden = attack.training.z.find_by_name("hidden")
    x = {hidden.arguments[0]: [[1, 2, 3]]}
    rng = random.Random(threading.get_ident())
    actions = [
        lambda: [p.value for p in attack.training.z.parameters],
        lambda: hidden.eval(x),
        lambda: attack.training.z.clone("clone"),
        lambda: attack.training.trainer.total_number_of_samples_seen,
    ]
    try:
        while not stopped.is_set():
            rng.choice(actions)()
    except BaseException as error:
        errors.append(error)


@pytest.mark.parametrize("disturbance", [None, *SOURCES])
def test_random_operations(disturbance, tmp_path):
    attack = Attack(tmp_path, random.Random(LONGER))
    stopped, errors = threading.Event(), []
    threads = [threading.Thread(target=beside, args=(attack, stopped, errors), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(OPERATIONS):
            attack.step(disturbance)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
    assert not errors and not any(thread.is_alive() for thread in threads)
    attack.training.trainer.wait_for_checkpoint()
    for path, steps in attack.files.items():
        assert attack.training.trainer.restore_from_checkpoint(path)["steps"] in steps
        assert_same(attack.training.state(), expected(attack.training.steps))
    print(attack.done)
