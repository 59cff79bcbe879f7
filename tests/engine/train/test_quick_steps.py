"""The first steps of a training run programs that were compiled quickly: which, the number of the step decides."""

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run import compiling

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the options are for the CPU")
QUICK_STEPS = 4


@pytest.fixture(autouse=True)
def few_quick_steps(tmp_path, monkeypatch):
    """Whatever its size, a program is compiled quickly for the steps up to the fourth; nothing is stored before."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "affordable_runs", lambda lost_time, operations: QUICK_STEPS)


class Training:
    """A small network, and its trainer."""

    def __init__(self):
        x, y = C.input_variable(3), C.input_variable(1)
        with C.layers.default_options(init=C.glorot_uniform(seed=1), activation=C.tanh):
            model = C.layers.Sequential([C.layers.Dense(20), C.layers.Dense(20), C.layers.Dense(1)])(x)
        loss = C.squared_error(model, y)
        self.trainer = C.Trainer(model, (loss, None), C.adam(model.parameters, 0.01, 0.9))
        self.arguments = x, y

    def steps(self, first, last, size=5):
        for step in range(first, last + 1):
            data = np.random.RandomState(step).rand(size, 4).astype(np.float32)
            self.trainer.train_minibatch(dict(zip(self.arguments, (data[:, 1:], data[:, :1]), strict=True)))
        return self

    def parameters(self):
        return [p.value for p in self.trainer.model.parameters]

    def executables(self):
        return list(self.trainer._step(()).program.executables)

    def are_quick(self):
        return [not executable.allowance.is_unlimited for executable in self.executables()]


def test_steps_run_quickly_compiled_programs_first_and_better_ones_then():
    training = Training()
    assert training.steps(1, QUICK_STEPS).are_quick() == [True]
    assert training.steps(QUICK_STEPS + 1, QUICK_STEPS + 1).are_quick() == [False]


def test_a_size_that_comes_later_has_no_quickly_compiled_program():
    training = Training().steps(1, QUICK_STEPS)
    assert training.steps(QUICK_STEPS + 1, QUICK_STEPS + 1, size=50).are_quick()[1:] == [False]


@pytest.mark.parametrize("cut", [1, QUICK_STEPS - 1, QUICK_STEPS, QUICK_STEPS + 2])
def test_training_that_resumes_ends_with_the_same_bits(tmp_path, cut):
    straight = Training().steps(1, 8)
    Training().steps(1, cut).trainer.save_checkpoint(str(tmp_path / "cut"))
    resumed = Training()
    resumed.trainer.restore_from_checkpoint(str(tmp_path / "cut"))
    resumed.steps(cut + 1, 8)
    for before, after in zip(straight.parameters(), resumed.parameters(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_stored_executables_compute_the_same_bits():
    compiled, loaded = (Training().steps(1, QUICK_STEPS + 2) for _ in range(2))
    assert all(executable.stored for executable in loaded.executables())
    for one, other in zip(compiled.parameters(), loaded.parameters(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_compiled_for_a_late_step_does_not_run_in_a_first_one():
    size = 50
    late = Training().steps(1, QUICK_STEPS).steps(QUICK_STEPS + 1, QUICK_STEPS + 1, size)
    assert late.are_quick()[1:] == [False]
    assert Training().steps(1, 1, size).are_quick() == [True]
    later = Training().steps(1, QUICK_STEPS).steps(QUICK_STEPS + 1, QUICK_STEPS + 1, size)
    assert later.executables()[1].stored
