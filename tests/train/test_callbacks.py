"""Callbacks end training, save the best model, reduce rates, and go on from checkpoints."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.train.callbacks import (
    Callback,
    CallbackList,
    EarlyStopping,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TerminateOnNaN,
    Timer,
)

ONES = np.ones((8, 1), np.float32)


def regression(rate=0.1, start=0.0):
    x, y = C.input_variable(1, name="x"), C.input_variable(1, name="y")
    z = C.times(x, C.parameter((1, 1), init=start, name="w"))
    loss = C.squared_error(z, y)
    learner = C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(rate))
    return z, loss, learner


def session(callbacks, rate=0.1, samples=800, start=0.0, config=None, data=None):
    z, loss, learner = regression(rate, start)
    trainer = C.Trainer(z, (loss, loss), learner)
    source = C.io.MinibatchSourceFromData(data or {"x": ONES, "y": 3 * ONES})
    streams = {v: source.streams[v.name] for v in loss.arguments}
    cv = C.CrossValidationConfig((ONES, 3 * ONES), 8, criterion=(loss, loss))
    C.training_session(trainer, source, 8, streams, 8, samples, config, cv_config=cv, callbacks=callbacks).train()
    return trainer, z


@pytest.mark.parametrize("monitor", ["loss", "metric", "val_metric"])
def test_early_stopping_ends_a_session_that_no_longer_improves(monitor):
    stop = EarlyStopping(monitor, patience=2, min_delta=1e-3)
    trainer, z = session([stop])
    assert stop.stop_training and trainer.total_number_of_samples_seen < 200
    assert abs(z.parameters[0].value.item() - 3) < 0.1


@pytest.mark.parametrize("callback", [EarlyStopping("accuracy"), ModelCheckpoint("never.model", "accuracy")])
def test_a_quantity_that_never_comes_is_reported(callback):
    with pytest.warns(UserWarning, match=r"waited for 'accuracy', and there was '(val_metric|loss)'"):
        session([callback], samples=16)


def test_early_stopping_restores_the_best_weights():
    stop = EarlyStopping("val_metric", patience=3, restore_best_weights=True)
    _, z = session([stop], rate=0.13, start=2.9)  # each step overshoots: the error grows
    error = (z.parameters[0].value.item() - 3) ** 2
    assert error == pytest.approx(stop.best, rel=1e-4)


def test_the_best_model_is_kept(tmp_path):
    path = tmp_path / "best.model"
    best = ModelCheckpoint(path)
    _, z = session([best], rate=0.13, start=2.9, samples=160)
    kept = C.load_model(path).parameters[0].value.item()
    assert (kept - 3) ** 2 == pytest.approx(best.best, rel=1e-4) and best.epoch == 1
    assert abs(z.parameters[0].value.item() - 3) > 2 * abs(kept - 3)


def test_all_models_are_kept_with_numbered_names(tmp_path):
    session([ModelCheckpoint(tmp_path / "m{epoch}.model", save_best_only=False)], samples=24)
    assert {p.name for p in tmp_path.iterdir()} >= {"m1.model", "m2.model", "m3.model"}


def test_rates_are_reduced_on_a_plateau():
    reduce = ReduceLROnPlateau("val_metric", factor=0.5, patience=2, min_lr=0.02)
    trainer, z = session([reduce], rate=0.13, start=2.9)
    assert trainer.parameter_learners[0].learning_rate() < 0.13
    assert abs(z.parameters[0].value.item() - 3) < 0.1


def test_a_loss_that_is_not_a_number_ends_training():
    values = np.array([[1], [1], [np.nan], [1]] * 2, np.float32)
    with pytest.warns(RuntimeWarning, match="is NaN"):
        trainer, _ = session([TerminateOnNaN()], data={"x": values, "y": values})
    assert trainer.total_number_of_samples_seen == 8


def test_a_time_limit_ends_training_and_goes_on_counting():
    timer = Timer(0)
    trainer, _ = session([timer])
    assert trainer.total_number_of_samples_seen == 8
    resumed = Timer(10)
    resumed.restore_from_checkpoint({"elapsed": 9.5})
    assert resumed.time_elapsed >= 9.5


def test_callbacks_go_on_from_the_checkpoint_of_a_session(tmp_path):
    def callbacks():
        return [EarlyStopping(patience=100, restore_best_weights=True), ReduceLROnPlateau(patience=1, factor=0.5)]

    def config():
        return C.CheckpointConfig(str(tmp_path / "c"), 8)

    whole = callbacks()
    _, z = session(whole, rate=0.13, start=2.9, samples=96)
    session(callbacks(), rate=0.13, start=2.9, samples=48, config=config())
    resumed = callbacks()
    _, again = session(resumed, rate=0.13, start=2.9, samples=96, config=config())
    for one, other in zip(whole, resumed, strict=True):
        assert one.best == pytest.approx(other.best, rel=1e-5)
    np.testing.assert_allclose(z.parameters[0].value, again.parameters[0].value, rtol=1e-5)


@pytest.mark.parametrize("monitor", ["loss", "val_metric"])
def test_what_callbacks_did_when_a_checkpoint_was_written_is_in_it(monitor, tmp_path):
    class PowerCut(Callback):
        batches = 0

        def on_train_batch_end(self):
            self.batches += 1
            if self.batches == 7:
                raise KeyboardInterrupt

    def callbacks():
        return [ReduceLROnPlateau(monitor, patience=1, factor=0.5, min_delta=1)]

    whole, resumed = callbacks(), callbacks()
    one, z = session(whole, samples=96)
    with pytest.raises(KeyboardInterrupt):
        session([*callbacks(), PowerCut()], config=C.CheckpointConfig(str(tmp_path / "c"), 8))
    two, again = session(resumed, samples=96, config=C.CheckpointConfig(str(tmp_path / "c"), 8))
    assert whole[0].get_checkpoint_state() == resumed[0].get_checkpoint_state()
    assert one.parameter_learners[0].learning_rate() == two.parameter_learners[0].learning_rate()
    np.testing.assert_array_equal(z.parameters[0].value, again.parameters[0].value)


def test_train_of_a_function_takes_them():
    _, loss, learner = regression()
    stop = EarlyStopping("loss", patience=1, min_delta=1e-3)
    result = loss.train((ONES, 3 * ONES), 8, parameter_learners=[learner], max_epochs=100, callbacks=[stop])
    assert stop.stop_training and len(result.epoch_summaries) < 50
    with pytest.raises(ValueError, match="progress writers"):
        loss.test((ONES, ONES), callbacks=[stop])


def test_classes_of_users_see_each_event_and_end_training():
    class Events(Callback):
        def __init__(self):
            self.events = []

        def on_train_begin(self):
            self.events.append("begin")

        def on_train_batch_end(self):
            self.events.append("batch")

        def on_epoch_end(self, logs):
            self.events.append(sorted(logs))
            self.stop_training = self.events.count("batch") == 2

        def on_train_end(self):
            self.events.append("end")

    events = Events()
    session([events])
    assert events.events == ["begin", *["batch", ["loss", "metric"]] * 2, "end"]


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="mode"):
        EarlyStopping(mode="best")
    with pytest.raises(ValueError, match="factor"):
        ReduceLROnPlateau(factor=2)
    with pytest.raises(ValueError, match="EarlyStopping: patience has to be 0 or more, not -1"):
        EarlyStopping(patience=-1)
    with pytest.raises(ValueError, match="ReduceLROnPlateau: cooldown has to be 0 or more, not -2"):
        ReduceLROnPlateau(cooldown=-2)
    with pytest.raises(TypeError, match="derives from"):
        CallbackList(C.Trainer(None, *regression()[1:]), [print])


@pytest.mark.parametrize("name", ["best-{val_metric}.model", "{}.model", "{0}.model", "best{.model", "{epoch:x.model"])
def test_a_name_with_other_braces_is_refused_before_training(name):
    with pytest.raises(ValueError, match=r"only \{epoch\} and \{value\} can be in braces.*unlike in"):
        ModelCheckpoint(name)
