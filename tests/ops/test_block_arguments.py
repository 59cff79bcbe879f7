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


class TestRecurrentBlocksOnAnotherAxis:
    """A block with a loop inside has no axes of its own: it goes wherever its operands go."""

    x, other = (C.sequence.input_variable(2, sequence_axis=C.Axis(name)) for name in ("one", "other"))
    steps = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

    def block(self, f):
        axes = C.Axis.default_batch_axis(), C.Axis.default_dynamic_axis()
        p = C.placeholder(2, axes)
        return C.as_block(f(p), [(p, p)], "operation", "instance")

    def running_sum(self, x):
        previous = C.placeholder()
        total = x + C.sequence.past_value(previous)
        return total.replace_placeholders({previous: total.output})

    def moves(self, block, expected):
        on_x = block(self.x)
        on_other = on_x.clone("share", {self.x: self.other})
        for f, x in ((on_x, self.x), (on_other, self.other)):
            assert f.dynamic_axes == x.dynamic_axes
            assert f.eval({x: [self.steps]})[0].tolist() == expected

    def test_the_axis_may_be_another_than_the_placeholder_had(self):
        self.moves(self.block(self.running_sum), [[1, 2], [4, 6], [9, 12]])

    def test_blocks_inside_blocks(self):
        inner = self.block(self.running_sum)
        self.moves(self.block(lambda x: inner(2 * x) + 1), [[3, 5], [9, 13], [19, 25]])

    def test_a_loop_around_the_block(self):
        inner = self.block(self.running_sum)

        def sums_of_sums(x):
            previous = C.placeholder()
            total = inner(x + C.sequence.past_value(previous))
            return total.replace_placeholders({previous: total.output})

        self.moves(self.block(sums_of_sums), [[1, 2], [5, 8], [15, 22]])

    def test_a_block_that_was_loaded(self, tmp_path):
        self.block(self.running_sum)(self.x).save(tmp_path / "sum.model")
        loaded = C.load_model(tmp_path / "sum.model")
        f = loaded.clone("share", {loaded.arguments[0]: self.other})
        assert f.eval({self.other: [self.steps]})[0].tolist() == [[1, 2], [4, 6], [9, 12]]

    def test_an_operand_without_a_sequence_axis_is_an_error_that_names_the_block(self):
        f = self.block(self.running_sum)(self.x)
        with pytest.raises(RuntimeError, match=r"operation 'instance' of Input\('flat'.*has no sequence axis"):
            f.clone("share", {self.x: C.input_variable(2, name="flat")})
