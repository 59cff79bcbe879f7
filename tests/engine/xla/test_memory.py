"""Too little memory is an error that says what a program takes, what there is, and what to do."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest

from cntkjax.engine.xla.memory import is_out_of_memory, memory, needs, out_of_memory
from cntkjax.graph.errors import OutOfMemoryError

LIMITED = """
    import resource
    import jax
    import numpy as np
    import cntk as C
    from cntkjax.graph.errors import OutOfMemoryError

    x, y = C.input_variable(64), C.input_variable(1)
    model = C.layers.Sequential([C.layers.Dense(256, C.sigmoid), C.layers.Dense(1)])(x)
    trainer = C.Trainer(model, C.squared_error(model, y), [C.sgd(model.parameters, 0.01)])

    def minibatch(size):
        return {x: np.ones((size, 64), np.float32), y: np.ones((size, 1), np.float32)}

    def fails(call, *words):
        try:
            call()
        except OutOfMemoryError as error:
            print(error)
            assert all(word in str(error) for word in words), str(error)
        else:
            raise AssertionError("there was enough memory")

    large = minibatch(400_000)
    trainer.train_minibatch(minibatch(8))
    before = trainer.previous_minibatch_loss_average
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + 450_000_000,) * 2)
    for _ in range(2):
        fails(lambda: trainer.train_minibatch(large), "the training step", "minibatches of up to 400000", "it takes",
              "in between", "are free", "smaller minibatches", "rematerialize=True")
    fails(lambda: model.eval({x: large[x]}), "an evaluation", "it takes")
    trainer.train_minibatch(minibatch(8))  # goes on as if nothing had happened
    assert trainer.previous_minibatch_loss_average < before
"""


def test_a_step_that_does_not_fit_says_what_it_takes_and_leaves_the_model_as_it_was():
    """The memory is limited for real (as by `ulimit -v`), in a process of its own."""
    if not sys.platform.startswith("linux"):
        pytest.skip("limits of address space are Linux's")
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(LIMITED)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_what_a_program_takes():
    compiled = jax.jit(lambda x: jnp.sort(jnp.sin(x), axis=0).sum()).lower(jnp.ones((256, 256))).compile()
    takes = needs(compiled)
    assert takes.inputs == 256 * 256 * 4 and takes.outputs == 4 and takes.temporary >= 256 * 256 * 4


def test_the_host_has_memory():
    has = memory(jax.devices("cpu")[0])
    assert has.total >= has.free > 0 or not sys.platform.startswith("linux")


def test_the_memory_of_a_container_is_its_limit(monkeypatch, tmp_path):
    """Of nested control groups the smallest counts; files that the system caches are as good as free."""
    if not sys.platform.startswith("linux"):
        pytest.skip("control groups are Linux's")
    inner = tmp_path / "inner"
    inner.mkdir()
    for group, limit in ((tmp_path, "300000000"), (inner, "max")):
        (group / "memory.max").write_text(limit + "\n")
        (group / "memory.current").write_text("200000000\n")
        (group / "memory.stat").write_text("anon 140000000\ninactive_file 50000000\n")
    monkeypatch.setattr("cntkjax.engine.xla.memory._control_groups", lambda: [inner, tmp_path])
    assert memory(jax.devices("cpu")[0]) == (150_000_000, 300_000_000)


def test_the_message_without_figures_still_says_what_to_do():
    error = out_of_memory("gradients", None, jax.devices("cpu")[0])
    assert str(error).startswith("gradients does not fit") and "Fix: use smaller minibatches" in str(error)
    assert isinstance(error, RuntimeError) and isinstance(error, MemoryError)
    assert not is_out_of_memory(error) and not is_out_of_memory(ValueError("RESOURCE_EXHAUSTED"))
    assert issubclass(OutOfMemoryError, MemoryError)
