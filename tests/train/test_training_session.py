"""Training sessions: the order of events, recorded from CNTK 2.7.

t4: a step with 4 samples; S10: a summary of 10 samples; e4, E6: the same of tests; k: a checkpoint has appeared;
c1: the callback of cross validation number 1.
"""

import sys
import threading

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.proxy import unwrap
from cntkjax.train import DataUnit

LIMITLESS = C.io.INFINITELY_REPEAT


class Session:
    """A linear model, data of ten samples in a file, and a log of what happens."""

    def __init__(self, folder):
        self.folder, self.log = folder, []
        self.x, self.y = C.input_variable(2), C.input_variable(1)
        z = C.times(self.x, C.parameter((2, 1)))
        loss = C.squared_error(z, self.y)
        self.weights = z.parameters[0]
        self.parts = z, loss

    def source(self, samples=10, max_sweeps=LIMITLESS):
        file = self.folder / f"{samples}.ctf"
        file.write_text("".join(f"|x {i % 5} 1 |y {i % 2}\n" for i in range(samples)))
        streams = C.io.StreamDefs(x=C.io.StreamDef("x", 2), y=C.io.StreamDef("y", 1))
        return C.io.MinibatchSource(
            C.io.CTFDeserializer(str(file), streams), randomize=False, max_sweeps=max_sweeps
        )

    def trainer(self, rate=0.01, metric=True):
        z, loss = self.parts
        schedule = C.learning_parameter_schedule_per_sample(rate)
        return C.Trainer(z, (loss, loss if metric else None), C.sgd(z.parameters, schedule), Recorder(self))

    def checkpoints(self):
        return sorted(f.name for f in self.folder.iterdir() if f.name.startswith("model") and f.suffix != ".ckp")

    def checkpoint(self, **options):
        return C.CheckpointConfig(self.folder / "model", **options)

    def callback(self, stop_at=None):
        def called(index, average_error, num_samples, num_minibatches):
            self.log.append(f"c{index}")
            return index != stop_at

        return called

    def validation(self, **options):
        return C.CrossValidationConfig(self.source(6, max_sweeps=1), minibatch_size=4, **options)

    def run(self, trainer=None, mb_size=4, source=None, **options):
        self.log.clear()
        source, trainer = source or self.source(), trainer or self.trainer()
        inputs = {self.x: source.streams.x, self.y: source.streams.y}
        inner = unwrap(trainer)  # as in CNTK a session calls no methods of the user's trainer
        saved = inner.save_checkpoint

        def save(*arguments, wait):
            saved(*arguments, wait=wait)
            self.log.append("k" + arguments[0].removeprefix(str(self.folder / "model")))

        inner.save_checkpoint = save
        C.training_session(trainer, source, mb_size, inputs, **options).train()
        return " ".join(self.log)


class Recorder(C.logging.ProgressWriter):
    def __init__(self, session):
        super().__init__(1, 0, 1, 0, sys.maxsize, 0)
        self.session = session

    def on_write_training_update(self, samples, updates, aggregate_loss, aggregate_metric):
        self.session.log.append(f"t{samples[1] - samples[0]}")

    def on_write_training_summary(self, samples, *rest):
        self.session.log.append(f"S{samples}")

    def on_write_test_update(self, samples, updates, aggregate_metric):
        self.session.log.append(f"e{samples[1] - samples[0]}")

    def on_write_test_summary(self, samples, *rest):
        self.session.log.append(f"E{samples}")


@pytest.fixture
def session(tmp_path):
    return Session(tmp_path)


@pytest.mark.parametrize(("options", "expected"), [
    ({}, "t4 t4 t4 t4 t4 t2 S22"),
    ({"progress_frequency": 10}, "t4 t4 t4 S12 t4 t4 S8 t2 S2"),
    ({"progress_frequency": 5}, "t4 t4 S8 t4 S4 t4 S4 t4 S4 t2 S2"),
    ({"progress_frequency": (3, DataUnit.minibatch)}, "t4 t4 t4 S12 t4 t4 t2 S10"),
    ({"progress_frequency": (1, DataUnit.sweep)}, "t4 t4 t4 S12 t4 t4 S8 t2"),
    ({"mb_size": C.minibatch_size_schedule([2, 4, 8], epoch_size=10)}, "t2 t2 t2 t2 t2 t4 t4 t4 S22"),
])
def test_progress_is_reported_when_due(session, options, expected):
    assert session.run(max_samples=22, **options) == expected


@pytest.mark.parametrize("unit", DataUnit)
def test_a_frequency_of_0_is_never_and_none_is_once_at_the_end(session, tmp_path, unit):
    """As in CNTK, whatever has the frequency."""
    name, validation = str(session.folder / "model"), session.source()
    inputs = {session.x: validation.streams.x, session.y: validation.streams.y}

    def run(frequency):
        test = C.CrossValidationConfig(validation, frequency, 4, max_samples=4, model_inputs_to_streams=inputs)
        checkpoint = C.CheckpointConfig(name, frequency, restore=False)
        return session.run(
            max_samples=8, progress_frequency=frequency, cv_config=test, checkpoint_config=checkpoint
        )

    assert run((0, unit)) == "t4 t4"
    assert run(None) == "t4 t4 k S8 e4 E4"


@pytest.mark.parametrize(("options", "expected"), [
    ({}, "t4 t4 t4 t4 t4 t2 k S22"),
    ({"frequency": 8}, "t4 S4 t4 k S4 t4 S4 t4 k S4 t4 S4 t2 k S2"),
    ({"frequency": 8, "preserve_all": True}, "t4 S4 t4 k0 S4 t4 S4 t4 k1 S4 t4 S4 t2 k2 S2 k"),
    ({"frequency": (2, DataUnit.minibatch), "preserve_all": True}, "t4 t4 k0 t4 t4 k1 t4 t2 k2 S22 k"),
    ({"frequency": (1, DataUnit.sweep), "preserve_all": True}, "t4 t4 t4 k0 t4 t4 k1 t2 S22 k"),
    ({"frequency": 20, "preserve_all": True}, "t4 t4 t4 t4 t4 k0 t2 k1 S22 k"),
])
def test_checkpoints_are_written_when_due(session, options, expected):
    frequency = 4 if options.get("frequency") == 8 else None
    log = session.run(max_samples=22, progress_frequency=frequency, checkpoint_config=session.checkpoint(**options))
    assert log == expected


def test_checkpoint_numbers_count_periods(session):
    config = session.checkpoint(frequency=5, preserve_all=True)
    session.run(mb_size=12, max_samples=50, source=session.source(30), checkpoint_config=config)
    assert session.checkpoints() == ["model", "model0", "model2", "model4", "model7", "model9"]


@pytest.mark.parametrize(("frequency", "stop_at", "expected"), [
    (None, None, "t4 t4 t4 t4 t4 t2 S22 e4 e2 E6 c0"),
    (8, None, "t4 t4 e4 e2 E6 c0 t4 t4 e4 e2 E6 c1 t4 t2 S22 e4 e2 E6 c2"),
    (8, 1, "t4 t4 e4 e2 E6 c0 t4 t4 e4 e2 E6 c1 S16"),
])
def test_cross_validation_runs_when_due(session, frequency, stop_at, expected):
    config = session.validation(frequency=frequency, callback=session.callback(stop_at))
    assert session.run(max_samples=22, cv_config=config) == expected


def test_cross_validation_on_some_samples_or_none(session):
    some = session.validation(frequency=8, max_samples=4)
    assert session.run(max_samples=16, cv_config=some) == "t4 t4 e4 E4 t4 t4 e4 E4 S16"
    none = C.CrossValidationConfig(frequency=8, callback=session.callback())
    assert session.run(max_samples=16, cv_config=none) == "t4 t4 c0 t4 t4 c1 S16"


def test_cross_validation_callback_gets_the_average(session):
    results = []
    config = session.validation(callback=lambda *result: results.append(result))
    session.run(max_samples=8, cv_config=config)
    rows = [(i % 5, 1, i % 2) for i in range(6)]
    w = session.weights.value[:, 0]
    average = np.mean([(w @ row[:2] - row[2]) ** 2 for row in rows])
    assert results == [(0, pytest.approx(average, rel=1e-5), 6, 2)]


def test_tests_begin_where_their_source_is(session):
    """Numbers of CNTK 2.7. A cross validation leaves its source where it was, a test does not."""
    sources = [session.source(6, max_sweeps=1) for _ in range(2)]
    for source in sources:
        source.next_minibatch(4)
    inputs = {session.x: sources[0].streams.x, session.y: sources[0].streams.y}
    cv = C.CrossValidationConfig(sources[0], 8, 4, model_inputs_to_streams=inputs)
    test = C.TestConfig(sources[1], 4)
    assert session.run(max_samples=16, cv_config=cv, test_config=test) == "t4 t4 e2 E2 t4 t4 e2 E2 S16 e2 E2"
    assert session.run(max_samples=8, test_config=test) == "t4 t4 S8 E0"


def test_a_test_without_data_has_no_average(session):
    averages, empty = [], session.source(6, max_sweeps=1)
    empty.next_minibatch(6)
    cv = C.CrossValidationConfig(empty, 8, 4, callback=lambda index, average, *rest: averages.append(average))
    session.run(max_samples=8, cv_config=cv)
    np.testing.assert_equal(averages, [np.nan])


def test_cross_validation_on_the_source_of_the_training_leaves_that_where_it_was(session):
    def weights(frequency):
        session.weights.value = np.zeros((2, 1))
        source = session.source()
        cv = C.CrossValidationConfig(source, frequency, 3, max_samples=6, callback=lambda *_: source.next_minibatch(5))
        session.run(source=source, max_samples=22, cv_config=cv)
        return session.weights.value

    np.testing.assert_array_equal(weights(8), weights(0))


def test_the_final_test_runs_last(session):
    config = C.TestConfig(session.source(6, max_sweeps=1), minibatch_size=4)
    log = session.run(max_samples=10, test_config=config, cv_config=session.validation(frequency=20))
    assert log == "t4 t4 t2 S10 e4 e2 E6 e4 e2 E6"


def test_a_rate_of_zero_ends_the_session(session):
    trainer = session.trainer([0.1, 0.0])
    assert session.run(trainer, max_samples=20) == "t4 t4 t4 t4 S16"
    assert trainer.total_number_of_samples_seen == 12


def test_the_end_of_the_source_ends_the_session(session):
    assert session.run(source=session.source(max_sweeps=2)) == "t4 t4 t4 t4 t4 S20"


def test_a_session_resumes_from_the_last_checkpoint(session, capsys):
    def config():
        return session.checkpoint(frequency=8, preserve_all=True)

    session.run(max_samples=40, checkpoint_config=config())
    straight = session.weights.value
    for file in session.folder.glob("model*"):
        if not file.name.startswith("model1"):
            file.unlink()
    session.weights.value = np.zeros(session.weights.shape)
    assert session.run(max_samples=40, checkpoint_config=config(), progress_frequency=10) == (
        "t4 S4 t4 k2 t4 t4 k3 S12 t4 t4 k4 S8 k"
    )
    assert "model1'" in capsys.readouterr().err
    np.testing.assert_array_equal(session.weights.value, straight)
    assert session.run(max_samples=40, checkpoint_config=config(), progress_frequency=10) == "k"
    assert session.run(max_samples=8, checkpoint_config=session.checkpoint(restore=False)) == "t4 t4 k S8"


def test_arrays_in_place_of_a_source(session):
    x = np.ones((6, 2), np.float32)
    criterion = session.parts[1]
    log = session.run(max_samples=8, test_config=C.TestConfig((x, x[:, :1]), criterion=criterion, minibatch_size=4))
    assert log == "t4 t4 S8 e4 e2 E6"
    with pytest.raises(ValueError, match="give criterion="):
        C.TestConfig((x, x))
    with pytest.raises(ValueError, match=r"2 arguments .* but there are 1 data"):
        C.TestConfig((x,), criterion=criterion)


def test_configurations_without_a_source_test_nothing(session):
    """As in CNTK."""
    assert session.run(max_samples=8, cv_config=C.CrossValidationConfig(), test_config=C.TestConfig()) == "t4 t4 S8"
    data = (np.ones((6, 2), np.float32), np.ones((6, 1), np.float32))
    learner = C.sgd(session.parts[1].parameters, 0.1)
    trained = session.parts[1].train(data, parameter_learners=[learner], callbacks=[C.TestConfig(None), None])
    assert "test_summary" not in trained


def test_wrong_arguments_are_errors(session):
    endless = session.source()
    for options in {}, {"cv_config": C.CrossValidationConfig(endless)}, {"test_config": C.TestConfig(endless)}:
        with pytest.raises(ValueError, match="minibatch source must have a limited number of samples or sweeps"):
            session.run(max_samples=8 if options else None, **options)
    with pytest.raises(ValueError, match="or a callback"):
        C.CrossValidationConfig(frequency=8)
    with pytest.raises(ValueError, match="the name of the checkpoint is empty"):
        C.CheckpointConfig("")
    with pytest.raises(ValueError, match="without a filename"):
        C.CheckpointConfig(None, 10)
    for wrong in -1, "a", (1, 7), 2.5:
        with pytest.raises(ValueError, match="CheckpointConfig: a frequency is"):
            C.CheckpointConfig("model", frequency=wrong)
    with pytest.raises(ValueError, match="model_inputs_to_streams is empty"):
        C.training_session(session.trainer(), endless, 4, {})
    with pytest.raises(RuntimeError, match="no stream 'z'"):
        stream = C.io.StreamInformation("z", 0, "dense", np.float32, (2,))
        C.training_session(session.trainer(), endless, 4, {session.x: stream}, max_samples=4).train()


@pytest.mark.parametrize("wrong", [0, -1, 2.5, [2, 0]])
def test_minibatch_sizes_are_positive_and_whole(wrong):
    with pytest.raises(ValueError, match="at least 1"):
        C.minibatch_size_schedule(wrong)


class Hooked(C.train.TrainingSession):
    """Records the calls, and the number of checkpoints after each."""

    stop_at = None

    def note(self, what):
        self.log.append(what)

    def on_minibatch_start(self):
        self.note("(")

    def on_minibatch_end(self):
        self.note(")")
        return self._trainer.total_number_of_samples_seen != self.stop_at

    def on_checkpoint_start(self, index):
        self.note(f"k{index}")

    def on_checkpoint_end(self, index):
        self.note(f"K{len(self.session.checkpoints())}")

    def on_cross_validation_start(self, index):
        self.note(f"c{index}")

    def on_cross_validation_end(self, index, average_error, num_samples, num_minibatches):
        self.note(f"C{index}:{num_samples}/{num_minibatches}")
        return super().on_cross_validation_end(index, average_error, num_samples, num_minibatches)


def hooked(session, **members):
    source, trainer = session.source(), session.trainer()
    inputs = {session.x: source.streams.x, session.y: source.streams.y}
    validation = session.validation(frequency=8)
    training = Hooked(
        trainer, source, C.minibatch_size_schedule([4, 2], epoch_size=8), inputs, 12, None,
        session.checkpoint(frequency=8, preserve_all=True, restore=False), validation, None,
    )
    training.__dict__.update(members, session=session, log=[])
    return training


def test_a_subclass_is_notified(session):
    """The order is CNTK's, in which those that begin something are not called."""
    training = hooked(session)
    training.train()
    assert " ".join(training.log) == "( ) ( ) k0 K1 c0 C0:6/2 ( ) ( ) ( ) k1 K2 c1 C1:6/2"
    assert session.checkpoints() == ["model", "model0", "model1"]


def test_a_subclass_can_end_training(session):
    """As in CNTK a last, empty minibatch follows, and the actions that are due at the end."""
    training = hooked(session, stop_at=4)
    training.train()
    assert " ".join(training.log) == "( ) ( ) k0 K1 c0 C0:6/2"
    assert training._trainer.total_number_of_samples_seen == 4


def test_minibatch_size_and_restoring_from_a_checkpoint(session):
    training = hooked(session)
    assert training.get_minibatch_size() == 4
    training.train()
    again = hooked(session)
    again.restore_from_checkpoint(session.folder / "model0")
    assert (again._trainer.total_number_of_samples_seen, again.get_minibatch_size()) == (8, 2)
    assert again.cv_callback is None


@pytest.mark.parametrize("where", ["object", "class"])
def test_users_may_override_any_internal_name(session, where):
    """A session does not call overridden methods of a trainer either."""

    def keeping(base):
        def begin(self, *arguments, **options):
            super(kind, self).__init__(*arguments, **options)
            for name in names if where == "object" else ():
                setattr(self, name, "mine")

        kind = type("Keeping", (base,), {"__init__": begin} | dict.fromkeys(names if where == "class" else (), "mine"))
        return kind

    def members(core):
        names = {name for o in (core, unwrap(core)) for name in (*dir(o), *vars(o))}
        return {name for name in names if not name.startswith(("__", "on_"))}

    z, loss = session.parts
    learner, source = C.sgd(z.parameters, 0.01), session.source()
    inputs = {session.x: source.streams.x, session.y: source.streams.y}
    names = members(C.Trainer(z, (loss, loss), learner))
    assert {"progress", "memory", "_steps", "train_minibatch", "model", "test_sum"} < names
    trainer = keeping(C.Trainer)(z, (loss, loss), learner)
    of_session = trainer, source, 4, inputs, 8, 4, session.checkpoint(), session.validation(), C.TestConfig(
        session.source(6, max_sweeps=1)
    )
    names = members(C.train.TrainingSession(*of_session)) - {"cv_callback", "train"}
    assert {"_trainer", "_session", "_run_actions", "get_minibatch_size"} < names
    keeping(C.train.TrainingSession)(*of_session).train()
    assert unwrap(trainer).total_number_of_samples_seen == 8 and session.checkpoints() == ["model"]
    evaluator = C.Evaluator(loss)
    names = members(evaluator) - {"test_minibatch"}
    feed = {session.x: [[1, 2]], session.y: [[1]]}
    assert keeping(C.Evaluator)(loss).test_minibatch(feed) == evaluator.test_minibatch(feed)


@pytest.mark.parametrize("result", [3, "abc", {"x": [1]}, [1]], ids=repr)
def test_what_a_users_source_returns_has_to_be_a_minibatch(session, result):
    class Wrong(C.io.UserMinibatchSource):
        def stream_infos(self):
            return [C.io.StreamInformation(name, i, "dense", np.float32, (2 - i,)) for i, name in enumerate("xy")]

        def next_minibatch(self, num_samples, number_of_workers=1, worker_rank=0, device=None):
            return result

    with pytest.raises(TypeError, match=r"Wrong.next_minibatch returned .*: return \{stream: MinibatchData\}"):
        session.run(source=Wrong())


def test_a_users_source_is_asked_after_the_step_before_it_in_the_same_thread(tmp_path):
    """The order of calls is CNTK's. Such a source may look at the parameters, so nothing is read ahead of a step."""
    calls = []
    x, w = C.input_variable(2), C.parameter((2, 1))

    class Source(C.io.UserMinibatchSource):
        read = 0

        def stream_infos(self):
            return [C.io.StreamInformation("x", 0, "dense", np.float32, (2,))]

        def next_minibatch(self, num_samples, number_of_workers=1, worker_rank=0, device=None):
            calls.append(("read", self.read, threading.current_thread() is threading.main_thread(), w.value.sum()))
            self.read += 1
            if self.read > 4:
                return {}
            value = C.Value(np.ones((num_samples, 2), np.float32))
            return {self.streams.x: C.io.MinibatchData(value, num_samples, num_samples, False)}

        def get_checkpoint_state(self):
            calls.append(("state", self.read))
            return {"read": self.read}

    source = Source()
    loss = C.reduce_sum(C.times(x, w))
    trainer = C.Trainer(None, loss, C.sgd([w], C.learning_parameter_schedule_per_sample(0.1)))
    config = C.CheckpointConfig(str(tmp_path / "u"), frequency=8, restore=False)
    C.training_session(
        trainer, source, 4, {x: source.streams.x}, progress_frequency=8, checkpoint_config=config
    ).train()
    values = [0.0, -0.8, -1.6, -2.4, -3.2]
    reads = [("read", i, True, pytest.approx(value)) for i, value in enumerate(values)]
    assert calls == [reads[0], reads[1], ("state", 2), reads[2], reads[3], ("state", 4), reads[4]]
