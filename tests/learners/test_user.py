"""Learners of user-defined classes: what they receive and what they may define. Numbers: CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import learners as L
from cntkjax.compat.cntk_py import Dictionary
from tests.learners.weights import Weights


class Descent(C.learners.UserLearner):
    taken = True

    def update(self, gradient_values, training_sample_count, sweep_end):
        for p, g in gradient_values.items():
            p.value = p.value - 0.125 * g.asarray()
        return self.taken


def trainer_of(kind=Descent, **options):
    x, w = C.input_variable(2), C.parameter(2, init=1)
    loss = C.reduce_sum(x * w)
    learner = kind([w], C.learning_parameter_schedule(0.5), **options)
    return C.Trainer(loss, (loss, None), [learner]), {x: np.array([[1, 2], [3, 4]], np.float32)}, w, learner


def _names_inside():
    """All names of a user learner and of the learner inside it, except those that CNTK uses or lets users set."""
    learner = trainer_of()[3]
    names = {name for o in (learner, learner.__wrapped__) for name in (*dir(o), *vars(o)) if not name.startswith("__")}
    known = {"as_numpy", "create_checkpoint", "minibatch_size", "restore_from_checkpoint", "taken", "update"}
    return sorted(names - known)


@pytest.mark.parametrize("where", ["object", "class"])
def test_users_may_override_any_internal_name(tmp_path, where):
    names = _names_inside()
    internal = {"transform", "hyper", "extra_variables", "counters", "advance", "parameters", "optax_cell", "user"}
    assert internal < set(names)

    class Keeping(Descent):
        def __init__(self, parameters, schedule):
            super().__init__(parameters, schedule)
            for name in names if where == "object" else ():
                setattr(self, name, "mine")

        def update(self, *args):
            assert all(getattr(self, name) == "mine" for name in names)
            return super().update(*args)

    for name in names if where == "class" else ():
        setattr(Keeping, name, "mine")
    trainer, data, w, learner = trainer_of(Keeping)
    assert trainer.train_minibatch(data) and w.value.tolist() == [0.5, 0.25]
    trainer.save_checkpoint(str(tmp_path / "c"))
    assert trainer.train_minibatch(data) and w.value.tolist() == [0, -0.5]
    trainer.restore_from_checkpoint(str(tmp_path / "c"))
    assert w.value.tolist() == [0.5, 0.25] and trainer.parameter_learners == (learner,)
    one = C.distributed.data_parallel_distributed_learner(learner)
    assert C.Trainer(trainer.loss_function, (trainer.loss_function, None), [one]).train_minibatch(data)


def test_gradients_have_the_members_of_array_views():
    """CNTK gives an NDArrayView whatever `as_numpy` says."""
    received = []

    class Sees(Descent):
        def update(self, gradient_values, *args):
            received.extend(gradient_values.values())
            return super().update(gradient_values, *args)

    for as_numpy in True, False:
        trainer, data, w, _ = trainer_of(Sees, as_numpy=as_numpy)
        assert trainer.train_minibatch(data) and w.value.tolist() == [0.5, 0.25]
    for g in received:
        assert g.asarray().tolist() == g.to_ndarray().tolist() == C.constant(g).value.tolist() == [4, 6]
        assert (g.shape, g.dtype, g.is_sparse, g.slice_view([0], [1]).asarray()) == ((2,), np.float32, False, [4])
        assert g.device == C.cpu() and (C.parameter(2) - g).eval().tolist() == [-4, -6]
    assert (0.5 * received[0] + received[0].sum()).tolist() == [12, 13] and isinstance(received[1], C.NDArrayView)


@pytest.mark.parametrize("taken", [None, 1, 0, "x", []])
def test_update_must_return_a_bool(taken):
    trainer, data, _w, learner = trainer_of()
    learner.taken = taken
    with pytest.raises(RuntimeError, match=r"user learner Descent: update returned .*\nFix: return True"):
        trainer.train_minibatch(data)


def test_errors_in_update_are_chained():
    class Broken(Descent):
        def update(self, *args):
            raise KeyError("boo")

    trainer, data, _w, _ = trainer_of(Broken)
    with pytest.raises(RuntimeError, match="user learner Broken: update raised KeyError: 'boo'") as caught:
        trainer.train_minibatch(data)
    assert isinstance(caught.value.__cause__, KeyError)


def test_parameters_can_be_called_as_in_cntk():
    learner = trainer_of()[3]
    assert learner.parameters() == learner.parameters and len(learner.parameters()) == 1


@pytest.mark.parametrize("made_of", [dict, Dictionary])
def test_custom_checkpoints(tmp_path, made_of):
    class Momentum(Descent):
        velocity, restored = np.zeros(2, np.float32), None

        def update(self, gradient_values, *args):
            self.velocity = self.velocity + 1
            return super().update(gradient_values, *args)

        def create_checkpoint(self):
            return made_of(velocity=self.velocity, steps=3, type="Momentum")

        def restore_from_checkpoint(self, checkpoint):
            self.restored, self.velocity = checkpoint, checkpoint["velocity"]

    trainer, data, _w, learner = trainer_of(Momentum)
    trainer.train_minibatch(data)
    trainer.save_checkpoint(str(tmp_path / "c"), {"mine": 1})
    trainer.train_minibatch(data)
    assert trainer.restore_from_checkpoint(str(tmp_path / "c")) == {"mine": 1}
    assert learner.velocity.tolist() == [1, 1] and trainer.total_number_of_samples_seen == 2
    assert type(learner.restored) is dict and learner.restored["steps"] == 3
    other = C.sgd(trainer.loss_function.parameters, 0.1)
    with pytest.raises(ValueError, match="another kind of learner"):
        C.Trainer(None, trainer.loss_function, other).restore_from_checkpoint(str(tmp_path / "c"))
    Momentum.create_checkpoint = lambda self: 3
    with pytest.raises(TypeError, match="create_checkpoint returned 3"):
        trainer.save_checkpoint(str(tmp_path / "c"))


def test_a_missing_super_init_is_an_error():
    class Forgets(Descent):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"Forgets: call super\(\).__init__"):
        Forgets().learning_rate()


class Fixed(L.UserLearner):
    def update(self, gradient_values, training_sample_count, sweep_end=False):
        for p, g in gradient_values.items():
            p.value = p.value - self.learning_rate() * g / training_sample_count
        return True


def test_a_user_learner_takes_its_own_step():
    w = Weights([1.0], np.float64)
    learner = Fixed([w], L.learning_parameter_schedule([0.1, 0.2], epoch_size=4))
    assert learner.update({w: np.array([4.0])}, 4) is True
    assert w.value == pytest.approx([0.9])
    assert learner.parameters == (w,) and learner.as_numpy
    assert learner.learning_rate() == 0.1 and learner.total_number_of_samples_seen() == 0  # as in CNTK


@pytest.mark.parametrize("as_numpy", [True, False])
def test_a_compiled_step_passes_gradients_to_a_user_learner(as_numpy):
    import cntkjax as C

    calls = []

    class Seeing(L.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            calls.append((gradient_values, training_sample_count, sweep_end))
            return len(calls) == 1

    x, w = C.input_variable(2), C.parameter((2, 1), init=1)
    z = C.times(x, w)
    trainer = C.Trainer(z, C.reduce_sum(z), [Seeing([w], L.learning_parameter_schedule(0.1), as_numpy=as_numpy)])
    feed = {x: np.array([[1, 2], [3, 5]], np.float32)}
    assert [trainer.train_minibatch(feed, is_sweep_end=end) for end in (False, True)] == [True, False]
    assert [(count, end) for _, count, end in calls] == [(2, False), (2, True)]
    gradient = calls[0][0][w]
    assert isinstance(gradient, np.ndarray if as_numpy else C.NDArrayView)
    np.testing.assert_array_equal(gradient if as_numpy else gradient.asarray(), [[4], [7]])
    assert w.value.tolist() == [[1], [1]]


def test_a_user_learner_may_use_any_attribute_names():
    import cntkjax as C

    class Momentum(L.UserLearner):
        def __init__(self, parameters, schedule):
            super().__init__(parameters, schedule)
            self.state, self._state, self.precision, self._step = {}, [], "full", 0

        def update(self, gradient_values, training_sample_count, sweep_end):
            self._step += 1
            for p, g in gradient_values.items():
                self.state[p] = 0.5 * self.state.get(p, 0) + g
                p.value = p.value - 0.1 * self.state[p]
            return self._state == [] and self.precision == "full"

    x, w = C.input_variable(1), C.parameter((1, 1), init=1)
    z = C.times(x, w)
    learner = Momentum([w], L.learning_parameter_schedule(0.1))
    trainer = C.Trainer(z, C.reduce_sum(z), [learner])
    assert [trainer.train_minibatch({x: [[1]]}) for _ in range(2)] == [True, True]
    assert learner._step == 2 and w.value.tolist() == [[pytest.approx(0.75)]]


def test_a_user_learner_without_update_is_an_error():
    w = Weights([1.0])
    with pytest.raises(NotImplementedError, match="UserLearner must define update"):
        L.UserLearner([w], L.learning_parameter_schedule(0.1)).update({}, 1)
