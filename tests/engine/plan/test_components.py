"""Components of graphs: in the order of computation, and which of them are recurrent loops."""

import pytest

import cntkjax as C
from tests.engine.lower.test_loops import sequences


def test_cycle_without_a_delay_is_an_error():
    x = C.sequence.input_variable(2)
    h = C.placeholder(shape=2)
    bad = C.tanh(x + h)
    bad.replace_placeholders({h: bad})
    with pytest.raises(ValueError, match="cycle without a delayed value"):
        bad.eval({x: sequences([2], 2)})


def test_loop_that_looks_both_ways_is_an_error():
    x = C.sequence.input_variable(2)
    h = C.placeholder(shape=2)
    bad = C.tanh(x + C.sequence.past_value(h) + C.sequence.future_value(h))
    bad.replace_placeholders({h: bad})
    with pytest.raises(ValueError, match="both back and ahead"):
        bad.eval({x: sequences([2], 2)})
