"""Where indices come from: which of them can be out of range."""

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.plan.plan import Plan
from tests.engine.run.test_index_check import table


@pytest.mark.parametrize("is_known", [True, False])
def test_indices_that_cannot_be_out_of_range_are_not_compared_in_the_program(is_known):
    x, four = C.input_variable(3), C.input_variable(4)
    known = [C.argmax(x), C.argmin(C.reshape(x, (3, 1)), 0), C.top_k(x, 2).outputs[1], C.constant([0, 2]),
             C.reshape(C.argmax(x), (1, 1)), C.splice(C.reshape(C.argmax(x), (1,)), C.constant([1.0]))]
    others = [C.argmax(four), x + 0, x, C.parameter(init=np.float32([0, 1]))]
    for indices in known if is_known else others:
        (gather,) = (n for n in Plan([C.gather(table(), indices).output]).nodes if n.op_name == "Gather")
        text = str(jax.make_jaxpr(lambda r, i, n=gather: n.primitive.lower(n.node_attributes, r, i))(
            np.ones((3, 2), np.float32), np.zeros(1, np.float32)
        ))
        assert ("fill_value=nan" not in text and "FILL_OR_DROP" not in text) == is_known
