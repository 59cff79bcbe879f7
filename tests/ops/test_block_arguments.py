"""Arguments of blocks that occur in the block's own operands. The numbers were printed by CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C

FIVES = np.full((1, 3), 5, np.float32)


def placeholders():
    return C.placeholder(3, name="a"), C.placeholder(3, name="b")


def test_a_placeholder_may_be_mapped_to_itself():
    a, _ = placeholders()
    block = C.as_block(2 * a, [(a, a)], "operation", "instance")
    x, y = C.input_variable(3), C.input_variable(3)
    assert block.arguments == block.placeholders == (a,)
    assert block(x).eval({x: FIVES}).tolist() == [[10, 10, 10]]
    assert block(y).eval({y: FIVES + 2}).tolist() == [[14, 14, 14]]
    assert block.clone("share", {a: x}).eval({x: FIVES}).tolist() == [[10, 10, 10]]


def test_a_block_mapped_to_itself_may_be_inside_another():
    a, _ = placeholders()
    inner = C.as_block(2 * a, [(a, a)], "operation", "inner")
    outer, x = C.as_block(inner, [(a, a)], "operation", "outer"), C.input_variable(3)
    assert outer(x).eval({x: FIVES}).tolist() == [[10, 10, 10]]


def test_parameters_are_shared_with_the_wrapped_function():
    a, _ = placeholders()
    layer, x = C.layers.Dense(3), C.input_variable(3)
    block = C.as_block(layer(a), [(a, a)], "operation", "instance")(x)
    assert set(block.parameters) == {layer.W, layer.b}


def test_placeholders_may_be_exchanged():
    a, b = placeholders()
    block = C.as_block(a - 2 * b, [(a, b), (b, a)], "operation", "instance")
    x, y = C.input_variable(3), C.input_variable(3)
    block.replace_placeholders({a: x, b: y})
    assert block.eval({x: FIVES, y: FIVES - 4}).tolist() == [[-9, -9, -9]]


def test_an_operand_may_be_computed_from_the_placeholder():
    a, _ = placeholders()
    block, x = C.as_block(2 * a, [(a, (a + 1).output)], "operation", "instance"), C.input_variable(3)
    assert block(x).eval({x: FIVES}).tolist() == [[12, 12, 12]]


@pytest.mark.timeout(20)
def test_an_argument_that_would_stand_for_itself_is_an_error():
    a, b = placeholders()
    block = C.as_block(2 * a, [(a, b)], "operation", "instance")
    with pytest.raises(ValueError, match="stand for itself"):
        block.replace_placeholders({b: a})
    inner = C.as_block(2 * a, [(a, b)], "operation", "inner")
    outer = C.as_block(inner, [(b, C.placeholder(3, name="c"))], "operation", "outer")
    with pytest.raises(ValueError, match="stand for itself"):
        outer.replace_placeholders({outer.placeholders[0]: a})
