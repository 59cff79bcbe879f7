"""How many samples a minibatch has: of the criterion, or of what it is reduced from."""

import numpy as np
import pytest

import cntkjax as C

ONES = [np.ones((n, 2), np.float32) for n in (3, 1, 4)]


def trained_samples(criterion, feeds):
    """The samples of a step, as its learner has counted them; all expected numbers are CNTK's."""
    learner = C.sgd(criterion.parameters, C.learning_parameter_schedule(0.1))
    C.Trainer(None, criterion, learner).train_minibatch(feeds)
    return learner.total_number_of_samples_seen()


@pytest.mark.parametrize(("of_steps", "expected"), [
    (lambda h: h, 8), (C.sequence.reduce_sum, 3), (C.sequence.first, 3),
    (lambda h: C.reduce_sum(h, axis=C.Axis.all_axes()), 8),
    (lambda h: C.reduce_sum(C.sequence.last(h), axis=C.Axis.default_batch_axis()), 3),
    (lambda h: C.sequence.gather(h, C.sequence.is_first(h)), 3),
])
def test_they_are_those_of_the_criterion_or_of_what_it_is_reduced_from(of_steps, expected):
    x = C.sequence.input_variable(2)
    assert trained_samples(of_steps(C.reduce_sum(C.times(x, C.parameter((2, 1))))), {x: ONES}) == expected
