"""`Function.train` and `Function.test` (what they return was recorded from CNTK 2.7)."""

import sys

import numpy as np
import pytest

import cntkjax as C

X = np.arange(20, dtype=np.float32).reshape(10, 2) / 10
Y = np.arange(10, dtype=np.float32).reshape(10, 1) / 10


@pytest.fixture
def criterion():
    x, y = C.input_variable(2, name="x"), C.input_variable(1, name="y")
    z = C.times(x, C.parameter((2, 1)))
    return C.combine([C.squared_error(z, y), C.abs(z - y)])


def sgd(criterion):
    return C.sgd(criterion.parameters, C.learning_parameter_schedule_per_sample(0.01))


def samples(records):
    return [record.samples for record in records]


@pytest.mark.parametrize(("options", "updates", "epochs"), [
    ({"minibatch_size": 4}, [8], [10]),
    ({"minibatch_size": 2, "max_epochs": 2}, [10, 10], [10, 10]),
    ({"minibatch_size": 2, "max_epochs": 2, "progress_frequency": 5}, [4, 4, 4, 4], [6, 4, 6, 4]),
    ({"minibatch_size": 4, "max_samples": 14}, [], [14]),
    ({"minibatch_size": 4, "epoch_size": 6, "max_epochs": 2}, [4, 4, 2, 2], [8, 4]),
    ({"minibatch_size": 4, "epoch_size": 6, "max_samples": 14}, [4, 4, 2, 4], [8, 6]),
    ({"minibatch_size": 2, "callbacks": [C.logging.ProgressWriter(sys.maxsize)]}, [10], [10]),
])
def test_updates_and_epochs_are_recorded(criterion, options, updates, epochs):
    record = criterion.train((X, Y), parameter_learners=[sgd(criterion)], **options)
    assert samples(record.updates) == updates
    assert samples(record.epoch_summaries) == epochs


def test_a_training_that_is_restored_at_its_end_has_one_epoch_of_no_samples(criterion, tmp_path):
    """So scripts that read the last epoch may be started again, as in CNTK."""
    callbacks = [C.CheckpointConfig(str(tmp_path / "model"), restore=True)]
    done, again = (criterion.train((X, Y), 4, parameter_learners=[sgd(criterion)], callbacks=callbacks) for _ in "12")
    assert (samples(done.epoch_summaries), samples(again.epoch_summaries), samples(again.updates)) == ([10], [0], [0])
    assert again.epoch_summaries[-1].loss == 0


def test_the_first_printer_defines_the_frequency(criterion, capsys):
    printers = [C.logging.ProgressPrinter(freq=2), C.logging.ProgressPrinter(freq=3)]
    record = criterion.train((X, Y), 2, parameter_learners=sgd(criterion), callbacks=printers)
    assert samples(record.updates) == [4, 4]
    assert "Learning rate per 1 samples: 0.01" in capsys.readouterr().out


def test_values_are_those_of_cntk(criterion):
    record = criterion.train((X, Y), 4, parameter_learners=[sgd(criterion)], max_epochs=2)
    losses = [record.loss for record in record.epoch_summaries]
    np.testing.assert_allclose(losses, [0.217998, 0.071219], rtol=1e-5)
    np.testing.assert_allclose([r.metric for r in record.epoch_summaries], [0.404014, 0.230134], rtol=1e-5)
    w = criterion.parameters[0].value
    tested = criterion.test((X, Y), minibatch_size=3)
    assert tested == {"metric": pytest.approx(np.abs(X @ w - Y).mean(), rel=1e-5), "samples": 10}


def test_a_source_with_everything(criterion, tmp_path):
    def source(n=LIMITLESS):
        return C.io.MinibatchSourceFromData({"a": X, "b": Y}, max_samples=n)

    data, test = source(), source(C.io.FULL_DATA_SWEEP)
    inputs = dict(zip(criterion.arguments, test.streams.values(), strict=True))
    callbacks = [
        C.CheckpointConfig(tmp_path / "model", frequency=10),
        C.CrossValidationConfig((X[:6], Y[:6]), criterion=criterion, minibatch_size=4),
        C.TestConfig(test, model_inputs_to_streams=inputs),
    ]
    record = criterion.train(
        data, 4, streams=(data.streams.a, data.streams.b), parameter_learners=[sgd(criterion)], epoch_size=10,
        max_epochs=2, callbacks=callbacks,
    )
    assert samples(record.epoch_summaries) == [10, 10]
    assert record.test_summary.samples == 10
    assert (tmp_path / "model.ckp").exists()


LIMITLESS = C.io.INFINITELY_REPEAT


def test_wrong_arguments_are_errors(criterion):
    learners = [sgd(criterion)]
    source = C.io.MinibatchSourceFromData({"a": X, "b": Y})
    for wrong, message, options in [
        ((X, Y), "exclude each other", {"max_epochs": 1, "max_samples": 1}),
        ((X, Y, Y), "2 arguments .* 3 data", {}),
        (source, "epoch_size or max_samples", {"streams": source.streams.values()}),
        (source, "model_inputs_to_streams is empty", {"max_samples": 4}),
        ((X, Y), "two of type CheckpointConfig", {"callbacks": [C.CheckpointConfig("a"), C.CheckpointConfig("b")]}),
    ]:
        with pytest.raises(ValueError, match=message):
            criterion.train(wrong, parameter_learners=learners, **options)
    with pytest.raises(TypeError, match="a callback has to be a progress writer, a Callback or one of .*, not 3"):
        criterion.train((X, Y), parameter_learners=learners, callbacks=[3])
    with pytest.raises(TypeError, match=r"call it, Timer\(...\)"):
        criterion.train((X, Y), parameter_learners=learners, callbacks=[C.train.callbacks.Timer])
    with pytest.raises(ValueError, match="at least one learner"):
        criterion.train((X, Y))
    with pytest.raises(ValueError, match="limited number of samples"):
        criterion.test(source, streams=source.streams.values())


def test_an_epoch_of_sequences_has_as_many_samples_as_there_are_sequences():
    """Recorded with CNTK 2.7: one pass where each sequence has a label, less where each step has one."""
    data = [np.ones((i % 3 + 1, 2), np.float32) for i in range(6)]
    s, w = C.sequence.input_variable(2), C.parameter((2, 2))
    tagging = C.squared_error(C.times(s, w), C.sequence.input_variable(2))
    classification = C.squared_error(C.times(C.sequence.last(s), w), C.input_variable(2))
    for loss, labels, size, expected in (
        (tagging, data, 4, [7, 5, 6]), (tagging, data, 20, [12, 6]), (classification, np.ones((6, 2)), 20, [6, 6, 6]),
    ):
        record = loss.train((data, labels), size, parameter_learners=[sgd(loss)], max_epochs=3)
        assert samples(record.epoch_summaries) == expected
    assert tagging.test((data, data)).samples == 12
