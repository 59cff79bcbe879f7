"""Random numbers that the host draws for a program."""

import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.engine.run.random_streams import draw_random_state
from cntkjax.graph.streams import Streams
from cntkjax.graph.variable import relocate


def test_a_draw_that_is_repeated_gives_the_same_numbers_though_the_weights_have_moved():
    """As when they move to the device between two attempts of one evaluation."""
    weights = C.constant(np.arange(20, dtype=np.float32) + 1)
    plan = plan_of([C.random_sample(weights, 8, True, seed=98052).output])
    streams = Streams()
    (first,) = draw_random_state(plan, streams, training=False).values()
    relocate(weights, jnp.asarray(weights.value))
    (second,) = draw_random_state(plan, streams, training=False).values()
    np.testing.assert_array_equal(first.numbers, second.numbers)
    assert first.end == second.end


ZEROS = np.zeros((1, 2), np.float32)


class Model:
    """A random node `n`, the model `r` and the loss `l`. Each action returns which draw of the node it has got."""

    DRAWS = [-0.6931, -0.5797, 0.0292, -0.4982, -0.3469]  # sums of the first draws

    def __init__(self, folder):
        self.folder, self.x, self.w = folder, C.input_variable(2), C.parameter(2, init=0)
        self.n = C.random.normal((2,), seed=7)
        self.r = self.x + self.n + self.w
        self.l = C.reduce_sum(self.r)
        self.trainers = {}

    def trainer(self, name):
        """The trainer t or u."""
        if name not in self.trainers:
            learner = C.sgd([self.w], C.learning_parameter_schedule(1e-30))
            self.trainers[name] = C.Trainer(self.r, (self.l, self.l), learner)
        return self.trainers[name]

    def value(self, action):
        """What an action computes; None if it computes nothing."""
        feeds, file, checkpoint = {self.x: ZEROS}, str(self.folder / "r.model"), str(self.folder / "t.checkpoint")
        return {
            "n": lambda: self.n.eval(),
            "r": lambda: self.r.eval(feeds),
            "l": lambda: self.l.eval(feeds),
            "new": lambda: C.combine([self.r]).eval(feeds),
            "clone": lambda: self.r.clone("share", {self.x: self.x}).eval(feeds),
            "grad": lambda: self.l.grad(feeds, [self.w], [self.l])[1],
            "forward": lambda: list(self.l.forward(feeds, [self.l.output], {self.l.output})[1].values()),
            "t": lambda: self.step("t"),
            "u": lambda: self.step("u"),
            "test": lambda: self.trainer("t").test_minibatch(feeds),
            "session": lambda: self.session(),
            "save": lambda: self.r.save(file),
            "load": lambda: C.load_model(file).eval(ZEROS),
            "restore": lambda: self.r.restore(file),
            "checkpoint": lambda: self.trainer("t").save_checkpoint(checkpoint),
            "resume": lambda: self.trainer("t").restore_from_checkpoint(checkpoint) or None,
            "seed": lambda: self.n.set_attribute("rngSeed", 7),
        }[action]()

    def step(self, name):
        """The loss of a step of a trainer."""
        self.trainer(name).train_minibatch({self.x: ZEROS})
        return self.trainer(name).previous_minibatch_loss_average

    def session(self):
        """Train on two minibatches, and test on two."""
        source, other = (C.io.MinibatchSourceFromData({"x": np.zeros((2, 2), np.float32)}, 2) for _ in range(2))
        validation = C.CrossValidationConfig(other, 2, 1, model_inputs_to_streams={self.x: other.streams.x})
        streams = {self.x: source.streams.x}
        C.training_session(self.trainer("t"), source, 1, streams, cv_config=validation).train()

    def run(self, plan):
        """The draws that the actions of a plan get."""
        values = [self.value(action) for action in plan.split()]
        return " ".join(str(self.DRAWS.index(round(float(np.sum(v)), 4)) + 1) for v in values if v is not None)


@pytest.mark.parametrize(("plan", "draws"), [
    ("r r l l r", "1 2 1 2 3"), ("r r n n r", "1 2 1 2 3"), ("r new new clone r", "1 1 1 1 2"),
    ("t u t u r", "1 1 2 2 1"), ("t test t test l r", "1 2 3 4 1 1"),
    # the first gradient begins again
    ("l l grad grad l", "1 2 1 2 3"), ("grad l forward grad", "1 2 3 4"), ("test test t test", "1 2 1 2"),
    # what is saved are the streams of what is saved, and new ones begin there
    ("r r save r load load", "1 2 3 3 3"), ("t t save load t", "1 2 1 3"),
    ("l r r save l n new clone t", "1 1 2 2 3 3 3 3"), ("r r save r r restore r l", "1 2 3 4 3 3"),
    ("r save r r restore t t checkpoint r n", "1 2 3 2 3 2 4"),
    ("l r save r restore l r n", "1 1 2 2 2 2"),
    # checkpoints
    ("t t checkpoint t t resume t test r", "1 2 3 4 3 4 3"), ("r t t checkpoint l r resume t l r", "1 1 2 3 2 3 4 3"),
    ("t test checkpoint save load r", "1 2 3 3"),
    # cross validation
    ("session t", "5"),
    # a seed
    ("r r seed r r", "1 2 1 2"), ("t t seed t test", "1 2 1 2"),
])
def test_each_function_and_trainer_has_a_stream_of_its_own(plan, draws, tmp_path):
    assert Model(tmp_path).run(plan) == draws


def test_a_checkpoint_resumes_in_another_trainer(tmp_path):
    assert Model(tmp_path).run("t t checkpoint t") == "1 2 3"
    assert Model(tmp_path).run("r t resume t test r l") == "1 1 3 4 2 3"


def test_samples_have_streams_too(tmp_path):
    def classes(f):
        return np.asarray(f.eval().todense()).argmax(-1).tolist()

    drawn = C.random_sample(np.arange(1, 11, dtype=np.float32), 4, False, seed=1)
    assert classes(drawn) == [3, 6, 1, 5]
    assert classes(drawn) == [9, 6, 2, 7]
    assert classes(C.combine([drawn])) == [3, 6, 1, 5]
    drawn.save(tmp_path / "drawn.model")
    assert drawn.root_function.attributes["rngOffset"] == 9
    for f in (C.combine([drawn]), drawn, C.load_model(tmp_path / "drawn.model")):
        assert classes(f) == [7, 2, 8, 4]


def test_dropout_has_streams_too(tmp_path):
    x, w = C.input_variable(30), C.parameter(30, init=0)
    loss = C.reduce_sum(C.dropout(x, 0.5, seed=3) + w)
    trainers = [C.Trainer(loss, (loss, loss), C.sgd([w], C.learning_parameter_schedule(1e-30))) for _ in range(2)]
    numbers = {x: np.arange(30, dtype=np.float32)[None] ** 2}

    def step(trainer):
        trainer.train_minibatch(numbers)
        return trainer.previous_minibatch_loss_average

    def computed(f):
        return np.sum(f.grad(numbers, [w], [f])[1])

    first, second = ([step(trainer) for _ in range(3)] for trainer in trainers)
    assert first == second == [computed(loss) for _ in range(3)] and len(set(first)) == 3
    trainers[0].save_checkpoint(str(tmp_path / "checkpoint"))
    fourth = step(trainers[0])
    assert computed(loss + 0) == fourth
    trainers[1].restore_from_checkpoint(str(tmp_path / "checkpoint"))
    assert step(trainers[1]) == fourth
