"""Methods of classes whose objects wrap an internal object, called on the class, as profilers and decorators do."""

import numpy as np
import pytest

import cntkjax as C


@pytest.fixture
def task():
    x, y = C.input_variable(2), C.input_variable(2)
    model = C.layers.Dense(2)(x)
    loss = C.cross_entropy_with_softmax(model, y)
    return model, loss, {x: np.ones((3, 2), np.float32), y: np.eye(2, dtype=np.float32)[[0, 1, 0]]}


def trainer(cls, model, loss):
    return cls(model, (loss, loss), [C.sgd(model.parameters, C.learning_parameter_schedule(0.1))])


def test_a_method_called_on_the_class_acts_on_the_object(task):
    model, loss, minibatch = task
    bound, unbound = trainer(C.Trainer, model.clone("clone"), loss), trainer(C.Trainer, model, loss)
    assert C.Trainer.train_minibatch(unbound, minibatch)
    assert unbound.previous_minibatch_sample_count == unbound.total_number_of_samples_seen == 3
    assert C.Trainer.previous_minibatch_loss_average.__get__(unbound) == unbound.previous_minibatch_loss_average
    assert C.Trainer.test_minibatch(unbound, minibatch) == unbound.test_minibatch(minibatch)
    assert bound.total_number_of_samples_seen == 0


def test_a_method_overridden_and_called_on_the_base_class_acts_on_the_object(task):
    class Counted(C.Trainer):
        calls = 0

        def train_minibatch(self, *args, **kwargs):
            self.calls += 1
            return C.Trainer.train_minibatch(self, *args, **kwargs)

    model, loss, minibatch = task
    counted = trainer(Counted, model, loss)
    counted.train_minibatch(minibatch)
    assert (counted.calls, counted.total_number_of_samples_seen) == (1, 3)


def test_a_method_replaced_on_the_class_is_called(task, monkeypatch):
    model, loss, minibatch = task
    calls, method = [], C.Trainer.train_minibatch
    monkeypatch.setattr(C.Trainer, "train_minibatch", lambda self, *a: calls.append(self) or method(self, *a))
    patched = trainer(C.Trainer, model, loss)
    patched.train_minibatch(minibatch)
    assert calls == [patched] and patched.total_number_of_samples_seen == 3


def test_learners_and_writers_are_called_on_their_classes_too(task, capsys):
    model, loss, minibatch = task
    learner = C.sgd(model.parameters, C.learning_parameter_schedule(0.1))
    C.learners.Learner.reset_learning_rate(learner, C.learning_parameter_schedule(0.5))
    assert C.learners.Learner.learning_rate(learner) == learner.learning_rate() == 0.5
    of_class = trainer(C.Trainer, model, loss)
    of_class.train_minibatch(minibatch)
    writer = C.logging.ProgressPrinter(freq=1)
    C.logging.ProgressPrinter.update_with_trainer(writer, of_class, True)
    assert "Minibatch[   1-   1]" in capsys.readouterr().out


@pytest.mark.parametrize("thing", [C.logging.ProgressPrinter(), C.sgd([C.parameter(2)], 0.1)])
def test_a_missing_attribute_is_one_of_the_class_that_users_know(thing):
    with pytest.raises(AttributeError, match=f"'{type(thing).__name__}' object has no attribute 'append'") as error:
        thing.append(1)
    assert error.value.obj is thing
