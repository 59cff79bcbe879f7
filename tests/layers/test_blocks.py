"""Cells, stabilizers and forward declarations."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.layers import ForwardDeclaration


class TestForwardDeclaration:
    @pytest.mark.parametrize("form", [lambda f: f, lambda f: f.output], ids=["function", "variable"])
    def test_resolves_to_a_function_that_is_defined_later(self, form):
        x, total = C.sequence.input_variable(1), ForwardDeclaration("total")
        running = x + C.sequence.past_value(total)
        assert total.resolve_to(form(running)) is None
        assert not running.placeholders
        np.testing.assert_array_equal(running.eval({x: [[[1], [2], [3]]]})[0], [[1], [3], [6]])

    def test_a_function_that_does_not_depend_on_it_is_an_error(self):
        with pytest.raises(ValueError, match="it is no placeholder of"):
            ForwardDeclaration("total").resolve_to(C.input_variable(1) + 1)
