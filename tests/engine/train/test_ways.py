"""The ways of gradients on one worker: in the program that computes them, or in a second one, they do the same."""

import numpy as np
import optax

from cntkjax.engine.train.update import TrainedState
from cntkjax.engine.train.ways import Agreement, LocalExchange


class Learner:
    """A learner as steps see it; it takes no step on an odd number of samples."""

    runs_python = False
    transform = optax.GradientTransformationExtraArgs(
        lambda parameters: (), lambda gradients, state, parameters=None, *, hyper, **_: (
            [-g / hyper["samples"] for g in gradients], state
        )
    )

    def hyper(self, sample_count, flagged=False):
        return None if sample_count % 2 else {"samples": np.float32(sample_count)}


def test_a_worker_by_itself_agrees_with_itself():
    exchange = LocalExchange([Learner()])
    assert exchange.shares == 1 and exchange.agree_on_sizes([], None) is None
    assert exchange.agree(5) == Agreement(5, joins=False)
    assert exchange.agree(5, lambda: "shapes") == Agreement(5, joins=True)


def test_learners_learn_from_the_samples_of_the_minibatch():
    way = LocalExchange([Learner(), Learner()]).in_one_program(Agreement(6))
    counts = way.counts(4)
    assert (counts.reported, counts.learned) == (6, [4, 4])
    assert [hyper["samples"] for hyper in way.hypers(counts)] == [4, 4]
    assert way.hypers(way.counts(3)) == [None, None]


def test_in_one_program_nothing_happens_to_program_state_and_outputs():
    way = LocalExchange([Learner()]).in_one_program(Agreement(1))
    assert [way.program("p"), way.donated("s"), way.received("o")] == ["p", "s", ("o", {})]


def test_a_second_program_updates_the_parameters():
    way = LocalExchange([Learner()]).separate(Agreement(4), None)
    outputs, before, gradients = [], TrainedState([[np.float32([1, 1])]], [()], None), [[np.float32([8, 4])]]
    way.update(outputs, before, gradients, [np.float32(3)], way.hypers(way.counts(4)))
    state, sums, changes = way.updated(outputs[0]())
    assert (state.parameters[0][0].tolist(), sums, changes) == ([-1, 0], [3], {})
