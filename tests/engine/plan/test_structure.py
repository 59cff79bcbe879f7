"""Structures of graphs: equal ones share a program, others do not."""

import numpy as np

import cntkjax as C
from tests.engine.run.test_program import compilations, dense_model


def test_graphs_of_the_same_structure_share_a_program():
    x, f = dense_model(0)
    first = f.eval({x: np.ones((5, 3))})
    y, g = dense_model(1)
    second = []
    assert compilations(lambda: second.append(g.eval({y: np.ones((5, 3))}))) <= 1  # the transfer of the parameter
    assert not np.allclose(first, second[0])


def test_attributes_and_shapes_distinguish_structures():
    x = C.sequence.input_variable(1)
    data = [[[1.0], [2.0], [3.0]]]
    for step in (1, 2):
        expected = [[0]] * step + data[0][: 3 - step]
        np.testing.assert_array_equal(C.sequence.past_value(x, time_step=step).eval({x: data})[0], expected)
