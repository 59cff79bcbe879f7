"""Exceptions that arrive anywhere in a step: state is as before it or as after it, never between.

Each test trains to the end in spite of interrupts, and compares with a run without them.
"""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.lower.carry import memory_of
from cntkjax.engine.run.program_cache import programs

from .training import LONGER, SOURCES, Training, assert_same, duration, expected, interrupted, rng_of

INTERRUPTS = 100 * LONGER

# An interrupt may come while the callback of a weak reference runs, where Python reports and drops it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("terminal_signals"),
]


@pytest.mark.parametrize("source", ["signal", "thread"])
def test_evaluations_that_are_interrupted(source):
    """Assigned parameters and offsets of random numbers change together, or not at all."""
    rng = rng_of(source)
    x, count, copy = C.input_variable(2), C.parameter((), init=0), C.parameter((), init=0)
    f = C.combine([C.assign(count, count + 1), C.assign(copy, count + 1), x + C.random.uniform(1, seed=1)])
    node = f.outputs[2].owner.inputs[1].owner
    data = {x: np.ones((3, 2), np.float32)}
    f.eval(data)
    time_of_one = min(duration(lambda: f.eval(data)) for _ in range(9))
    for _ in range(INTERRUPTS):
        interrupted(source, rng.uniform(0, 1.2 * time_of_one), lambda: f.eval(data))
        assert count.value == copy.value == memory_of(f).streams.place(node, False).offset


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("options", [
    {}, {"accumulate": 3}, {"distributed": "data"}, {"distributed": "blocks"}, {"second": "UserLearner"},
    {"second": "universal"}, {"second": "UserLearner", "accumulate": 2},
    {"second": "UserLearner", "distributed": "blocks"}, {"stages": True},
], ids=str)
def test_a_step_that_is_interrupted_is_taken_or_not(source, options, tmp_path):
    rng, training, count = rng_of(source), Training(**options), 0
    for _ in range(4):
        training.train()
    step = min(duration(training.train) for _ in range(9))
    attempts = 0
    while count < INTERRUPTS and attempts < 20 * INTERRUPTS:
        attempts += 1
        if interrupted(source, rng.uniform(0, 1.2 * step), training.train):
            count += 1
            if count % 20 == 0:
                assert_same(training.state(), expected(training.steps, **options))
    assert count >= INTERRUPTS / 2
    assert_same(training.state(), expected(training.steps, **options))
    while training.steps % 2:  # a checkpoint would end the block
        training.train()
    file = str(tmp_path / "checkpoint")
    training.trainer.save_checkpoint(file)
    restored = Training(**options)
    restored.trainer.restore_from_checkpoint(file)
    for _ in range(4):
        restored.train()
        training.train()
    assert_same(restored.state(), expected(restored.steps, **options))
    assert_same(training.state(), expected(training.steps, **options))
    assert np.isfinite(training.test())


@pytest.mark.parametrize("source", SOURCES)
def test_interrupts_while_programs_are_compiled(source):
    rng, sizes = rng_of(source), (8, 5)
    for _ in range(6 * LONGER):
        programs.clear()
        training = Training(sizes)
        interrupted(source, rng.uniform(0, 0.3), training.train)
        assert_same(training.state(), expected(training.steps, sizes=sizes))
        interrupted(source, rng.uniform(0, 0.6), training.train)
        for _ in range(3):
            training.train()
        assert_same(training.state(), expected(training.steps, sizes=sizes))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("truncation", [0, 3])
@pytest.mark.parametrize("randomize", [False, True])
def test_a_read_that_is_interrupted_has_moved_on_or_not(source, truncation, randomize, tmp_path):
    rng, file = rng_of(source), tmp_path / "data.ctf"
    lengths = [rng.randint(1, 9) for _ in range(200)]
    file.write_text("".join(f"{i} |x {i}.{step}\n" for i, length in enumerate(lengths) for step in range(length)))
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", shape=1))

    def open_source():
        return C.io.MinibatchSource(
            C.io.CTFDeserializer(str(file), streams), randomize=randomize, max_sweeps=15 * LONGER,
            randomization_window_in_chunks=0, randomization_window_in_samples=200 if randomize else 0,
            truncation_length=truncation,
        )

    def read(reader):
        minibatch = reader.next_minibatch(12)
        return [a.tolist() for a in minibatch[reader.streams.x].as_sequences()] if minibatch else None

    reader = open_source()
    minibatches = [read(reader) for _ in range(3)]
    time_of_one = min(duration(lambda: minibatches.append(read(reader))) for _ in range(9))
    while minibatches[-1] is not None:
        minibatches.append(read(reader))
    count = 0
    while count < 5:  # how many interrupts hit a read depends on the machine
        reader, i = open_source(), 0
        while i < len(minibatches) - 1:
            result = []
            if interrupted(source, rng.uniform(0, 3 * time_of_one), lambda: result.append(read(reader))) and not result:  # noqa: B023
                count += 1
                following = read(reader)
                assert following in minibatches[i : i + 2]
                i += 2 if following == minibatches[i + 1] else 1
            else:
                assert result[0] == minibatches[i]
                i += 1
        assert read(reader) is None
