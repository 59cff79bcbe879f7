"""Smaller programs are programs, and differences those that CNTK confirms."""

import numpy as np

from .compare import Difference
from .executing import executed
from .generator import write
from .serve import new_names
from .shrink import confirmed, size, smaller


def test_what_shrinking_tries_builds_and_is_mostly_smaller():
    program = next(p for p, _ in map(write, range(3, 20)) if len(p.roots) > 1 and len(p.statements) > 5)
    tried = list(smaller(program))
    assert sum(size(p) < size(program) for p in tried) > len(tried) / 2
    for p in tried[:12]:
        assert set(p.roots) <= set(executed(p)[0])


def test_a_difference_is_a_fault_only_if_it_is_there_again():
    chance, fault = Difference("value", "training", "1", 1), Difference("value", "gradients", "2", 0)
    again = [Difference("value", "gradients", "3", 0)]
    assert [d.kind for d in confirmed([chance, fault], again, [], again)] == ["known", "value"]


def test_a_value_is_a_fault_only_if_double_precision_of_cntk_says_so():
    chaotic, right, wrong = (Difference("value", "training", "1", i) for i in range(3))
    found = confirmed([chaotic, right, wrong], [chaotic, right, wrong], [chaotic], [chaotic, wrong])
    assert [d.kind for d in found] == ["known", "known", "value"]


def test_a_tilted_loss_has_another_gradient_for_each_parameter():
    names = new_names()
    C = names["C"]
    x = C.input_variable(())
    parameters = [C.parameter((2,), init=1), C.parameter((), init=2)]
    unused = C.reduce_sum(parameters[0] * 0) + parameters[1] * 0
    gradients = names["tilted"](unused + x).grad({x: [1]}, wrt=parameters)
    assert all((np.abs(gradients[p]) >= 0.5).all() for p in parameters)
