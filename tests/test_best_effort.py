"""Whatever goes wrong in work ahead of time and for speed: the losses, and the data of readers, stay as they are."""

import ctypes
import importlib
import json
import logging
import pkgutil
import shutil
import signal
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import cntkjax as C
from cntkjax import _best_effort
from cntkjax._best_effort import BestEffort, efforts, failures, kept_failures
from cntkjax._build_native import LIBRARIES
from cntkjax.cli import main
from cntkjax.engine.lower.carry import Carried
from cntkjax.engine.run import compiling, prices, quick_starts
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.train import step
from cntkjax.engine.xla import background, private_names
from cntkjax.engine.xla.platform import LOWERINGS, lowering_for
from cntkjax.graph.proxy import unwrap
from cntkjax.io import _kept_index
from cntkjax.train import _expected

NOT_PYTHON = {library.path.stem for library in LIBRARIES}
for module in pkgutil.walk_packages(C.__path__, "cntkjax."):
    if module.name.rpartition(".")[2] not in {*NOT_PYTHON, "__main__"}:
        importlib.import_module(module.name)

ON_GPUS_ONLY = {"keep what is measured to choose kernels"}
SYMBOLS = 4


# ---- what the work is done for
def initial(shape, number):
    return (0.3 * np.sin(1.7 * np.arange(np.prod(shape)) + number)).reshape(shape).astype(np.float32)


def recurrent_trainer():
    x, y = C.sequence.input_variable(SYMBOLS), C.sequence.input_variable(SYMBOLS)
    z = C.times(C.layers.Recurrence(C.layers.RNNStep(3))(x), C.parameter((3, SYMBOLS)))
    for number, parameter in enumerate(z.parameters):
        parameter.value = initial(parameter.shape, number)
    criterion = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    learner = C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(0.05))
    return C.Trainer(z, criterion, learner), x, y


def truncated_training(folder):
    """Losses of a recurrent network on pieces of sequences, beginning once, and the metrics of two tests."""
    trainer, x, y = recurrent_trainer()
    text = np.cumsum(np.arange(2 * 24 * 4) % 3 + 1).reshape(2, -1) % SYMBOLS
    data = np.eye(SYMBOLS, dtype=np.float32)[text]
    results = []
    for begin in range(0, 23 * 4, 4):
        pieces, labels = list(data[:, begin : begin + 4]), list(data[:, begin + 1 : begin + 5])
        trainer.train_minibatch(({x: pieces, y: labels}, [begin == 0] * 2))
        results.append(trainer.previous_minibatch_loss_average)
    begun = {x: list(data[:, :4]), y: list(data[:, 1:5])}, [True] * 2
    whole = {x: list(data[:, :9]), y: list(data[:, 1:10])}
    return [*results, trainer.test_minibatch(begun), trainer.test_minibatch(whole)]


def training_on_many_lengths(folder):
    """Losses of a recurrent network where better fitting programs are bought, and evaluations of one that it shares."""
    trainer, x, y = recurrent_trainer()
    results = []
    for number in range(8):
        sequences = [initial((steps, SYMBOLS), i) for i, steps in enumerate((1, 2, 9 if number == 0 else 3))]
        trainer.train_minibatch({x: sequences, y: [np.abs(s) / np.abs(s).sum(1, keepdims=True) for s in sequences]})
        results.append(trainer.previous_minibatch_loss_average)
        results += [float(a.sum()) for a in trainer.model.eval({x: sequences[:2]})]
        wait_for_the_background()
    return results


def reading(folder):
    """What readers of text and images return."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    text, images = folder / "data.ctf", folder / "images.txt"
    text.write_text("".join(f"{i // 3} |x {i % 7} {i % 5}\n" for i in range(240)))
    for i in range(6):
        Image.fromarray(np.full((4, 4, 3), 40 * i, np.uint8)).save(folder / f"{i}.png")
    images.write_text("".join(f"{folder / f'{i}.png'}\t{i % 2}\n" for i in range(6)))
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", shape=2))
    numbers = C.io.CTFDeserializer(str(text), streams)
    numbers["chunkSizeInBytes"] = 256
    scaled = C.io.StreamDef("image", transforms=[C.io.transforms.scale(2, 2, 3)])
    pictures = C.io.ImageDeserializer(str(images), C.io.StreamDefs(x=scaled, y=C.io.StreamDef("label", 2)))
    results = []
    for deserializer, randomize, size in ((numbers, True, 20), (numbers, False, 50), (pictures, True, 2)):
        source = C.io.MinibatchSource(deserializer, randomize=randomize, max_sweeps=2, randomization_window_in_chunks=3)
        while minibatch := source.next_minibatch(size):
            results += [float(s.sum()) for s in minibatch[source["x"]].as_sequences()]
    return results


def training_for_a_gpu(folder):
    """Losses of a network that is traced as for a GPU."""
    x, y = C.input_variable(2), C.input_variable(2)
    z = C.layers.Dense(2, init=initial((2, 2), 0))(x)
    trainer = C.Trainer(z, C.squared_error(z, y), C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(0.1)))
    with lowering_for("gpu"):
        return [train(trainer, {x: initial((4, 2), i), y: initial((4, 2), i + 1)}) for i in range(3)]


def training_of_two_networks(folder):
    """Losses of two trainers that share networks, of which the second one's program is compiled beside the first's."""
    x = C.input_variable(2)
    first = C.times(x, C.parameter((2, 2), init=initial((2, 2), 0)))
    second = C.times(C.tanh(first), C.parameter((2, 1), init=initial((2, 1), 1)))
    rate = C.learning_parameter_schedule_per_sample(0.1)
    trainers = [C.Trainer(None, z * z, C.sgd(z.parameters[-1:], rate)) for z in (second, C.reduce_sum(first))]
    return [train(trainer, {x: initial((4, 2), i)}) for i in range(3) for trainer in trainers]


def training_with_a_test(folder):
    """Losses of a network whose test is compiled beside the training, and the metric of one."""
    x = C.input_variable(2)
    z = C.times(x, C.parameter((2, 1), init=initial((2, 1), 0)))
    trainer = C.Trainer(None, (z * z, C.abs(z)), C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(0.1)))
    losses = [train(trainer, {x: initial((4, 2), i)}) for i in range(21)]
    return [*losses, trainer.test_minibatch({x: initial((4, 2), 0)})]


def evaluations(folder):
    """Values of a network that is compiled quickly, and thoroughly when it has run some times."""
    x = C.input_variable(2)
    y = C.tanh(C.times(x, C.parameter((2, 2), init=initial((2, 2), 0))))
    return [float(y.eval({x: initial((4, 2), i)}).sum()) for i in range(24)]


def convolutions_by_a_library(folder):
    """Values of a network whose convolutions oneDNN computes."""
    x = C.input_variable((1, 4, 4))
    y = C.convolution(C.parameter(init=initial((2, 1, 3, 3), 0)), x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LOWERINGS, "cpu", replace(LOWERINGS["cpu"], convolutions="onednn"))
        return [float(y.eval({x: initial((2, 1, 4, 4), i)}).sum()) for i in range(3)]


def train(trainer, data):
    trainer.train_minibatch(data)
    return trainer.previous_minibatch_loss_average


SCENARIOS = {
    f.__name__: f
    for f in (
        truncated_training, training_on_many_lengths, training_for_a_gpu, training_of_two_networks,
        training_with_a_test, evaluations, convolutions_by_a_library, reading,
    )
}


def wait_for_the_background():
    background.compilations.submit(int).result()
    background.storing.submit(int).result()


def run(scenario, folder, perform):
    """What a scenario returns, with compiled programs in a folder, where all work ahead of time is worth its while."""
    programs.clear()
    private_names.available.cache_clear()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Results are the same", RuntimeWarning)
        patch.setenv("CNTKJAX_CACHE_DIR", str(folder))
        patch.setattr(_best_effort, "_perform", perform)
        patch.setattr(step, "_NOTICED", 0.0)
        patch.setattr(_expected, "cores", lambda: 2)
        patch.setattr(quick_starts, "LOST_TIME_OF_AN_OPERATION", 100)
        patch.setattr(compiling, "_KEPT_TRACES", 1)
        patch.setattr(prices.MeasuredPrices, "compilation_seconds", 1e-9)
        patch.setattr(prices.MeasuredPrices, "seconds_per_work", 1e-6)
        patch.setattr(_kept_index, "SMALLEST", 1)
        patch.setattr(_kept_index, "_SHARE", 0)
        results = SCENARIOS[scenario](folder)
        wait_for_the_background()
    private_names.available.cache_clear()
    return results


class Undisturbed(NamedTuple):
    """The results of a scenario, and the work that is attempted: without compiled programs in its folder, and with."""

    results: list[float]
    folder: Path
    cold: set[str]
    warm: set[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What each scenario does where nothing fails."""

    def of(scenario):
        folder, attempts = tmp_path_factory.mktemp(scenario), []
        for _ in range(2):
            attempts.append(set())
            results = run(scenario, folder, lambda effort, task, *a: attempts[-1].add(effort.work) or task(*a))
        return Undisturbed(results, folder, *attempts)

    return {scenario: of(scenario) for scenario in SCENARIOS}


# What stands for an accident inside of the package; a frame of a user's module would stand for the user.
exec("def accident(): raise ArithmeticError('injected')", inside := {"__name__": "cntkjax.injected"})


def failing(work, after):
    """As `_best_effort._perform`, but one kind of work fails, at its begin or at its end."""

    def perform(effort, task, *arguments):
        if effort.work != work:
            return task(*arguments)
        if after:
            task(*arguments)
        return inside["accident"]()

    return perform


@pytest.mark.parametrize("after", [False, True], ids=["at its begin", "at its end"])
@pytest.mark.parametrize("work", list(dict.fromkeys(effort.work for effort in efforts)))
def test_a_failure_changes_nothing(work, after, undisturbed, tmp_path):
    warm = [scenario for scenario in SCENARIOS if work in undisturbed[scenario].warm]
    cold = [scenario for scenario in SCENARIOS if work in undisturbed[scenario].cold]
    assert cold or work in ON_GPUS_ONLY, "no scenario of this module attempts it: add one"
    for scenario in warm or cold[-1:]:  # where nothing has to be compiled, if possible
        if warm:
            shutil.copytree(undisturbed[scenario].folder, tmp_path / scenario)
        disturbed = run(scenario, tmp_path / scenario, failing(work, after))
        np.testing.assert_allclose(disturbed, undisturbed[scenario].results, rtol=1e-5, atol=1e-6)


# ---- what is not caught
EFFORT = efforts[0]


class Sent(Exception):
    """What another thread sends to this one."""


def test_interrupts_pass_through():
    def interrupt():
        raise KeyboardInterrupt

    def handle(*_):
        raise TimeoutError("too late")

    handler = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            EFFORT.attempt(interrupt)
        with pytest.raises(TimeoutError, match="too late"):
            EFFORT.attempt(signal.raise_signal, signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, handler)


def test_an_exception_that_another_thread_sends_passes_through():
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    begun = threading.Event()

    def sender(target):
        begun.wait()
        send(ctypes.c_ulong(target), ctypes.py_object(Sent))

    exec(  # in a module of the package, as it were
        "def task():\n begun.set()\n end = time.monotonic() + 20\n while time.monotonic() < end: time.sleep(0.001)",
        namespace := {"__name__": "cntkjax.waiting", "time": time, "begun": begun},
    )
    threading.Thread(target=sender, args=(threading.get_ident(),)).start()
    with pytest.raises(Sent):
        EFFORT.attempt(namespace["task"])


def test_an_error_of_code_of_the_user_that_a_task_calls_is_noted(monkeypatch, caplog):
    monkeypatch.setattr(EFFORT, "_is_kept", True)

    class Unprintable:
        def __repr__(self):
            raise Sent("no text")

    with caplog.at_level(logging.DEBUG, "cntkjax"):
        assert EFFORT.attempt(repr, Unprintable(), otherwise="unknown") == "unknown"
    assert f"could not {EFFORT.work}; instead, {EFFORT.instead}" in caplog.text and "no text" in caplog.text
    assert failures[-1].error == "Sent: no text"


def test_each_process_keeps_the_first_failure_of_a_kind_for_the_doctor(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    effort = BestEffort("do it", "it is done later")
    efforts.remove(effort)
    for _ in range(3):
        effort.attempt(inside["accident"])
    (kept,) = kept_failures()
    assert (kept.work, kept.instead, kept.error) == ("do it", "it is done later", "ArithmeticError: injected")
    with open(tmp_path / "failures" / "failures.jsonl", "a") as file:
        file.write("damaged {\n" + json.dumps({"other": 1}) + "\n")
    assert kept_failures() == [kept]
    main(["doctor"])
    assert "could not do it; instead, it is done later. ArithmeticError: injected" in capsys.readouterr().out
    main(["doctor", "--clear-cache"])
    assert not kept_failures()


def test_an_unwritable_folder_stops_nothing(monkeypatch, tmp_path):
    (tmp_path / "failures").touch()
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    effort = BestEffort("do it", "it is done later")
    efforts.remove(effort)
    assert effort.attempt(inside["accident"], otherwise=3) == 3 and failures[-1].work == "do it"


# ---- the test of a training
def test_expecting_a_test_neither_draws_numbers_nor_touches_the_memory_of_a_test(monkeypatch):
    monkeypatch.setattr(step, "_NOTICED", 0.0)
    x = C.input_variable(2)
    noisy = C.layers.Dense(2)(C.layers.Dropout(0.5)(x))
    loss = C.reduce_sum(noisy * C.random.normal((2,), seed=3))
    metric = C.reduce_sum(noisy + C.random.uniform((2,), seed=5))
    trainer = C.Trainer(None, (loss, metric), C.sgd(loss.parameters, C.learning_parameter_schedule(0.1)))
    test = unwrap(trainer).test_step
    streams, begin, seen = test.memory.streams, test.compile_in_background, []

    def compile_in_background(feeds):
        for action in (lambda: None, lambda: begin(feeds)):
            action()
            drawn, generators = streams.drawn.value, streams.generators
            seen.append((dict(drawn.places), {n: (g.begin, g.end) for n, g in generators.items()}))

    test.compile_in_background = compile_in_background
    for _ in range(20):
        trainer.train_minibatch({x: np.ones((3, 2), np.float32)})
    wait_for_the_background()
    assert list(test.program.executables) and test.memory.carried.value == Carried()
    assert seen[0] == seen[1] and len(seen[0][0]) == 3
