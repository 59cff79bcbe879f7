"""Compositions of graphs."""

import numpy as np

import cntkjax as C


def test_combine_has_the_outputs_themselves():
    x = C.input_variable(1)
    a, b = x + 1, x + 2
    f = C.combine([a, b])
    assert f.outputs == (a.output, b.output)
    outputs = f.eval({x: [[1]]})
    np.testing.assert_array_equal(outputs[a.output], [[2]])
    np.testing.assert_array_equal(outputs[b.output], [[3]])
    g = f.clone("share", {x: x})
    assert g.outputs[0] is not a.output and len(g.outputs) == 2
