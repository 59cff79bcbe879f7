"""Axes, as CNTK 2.7 shows them."""

import pytest

import cntkjax as C
from cntkjax.graph.axis import Axis, axes_text


def test_static_axes_know_their_index():
    axis = Axis(1)
    assert axis.is_static_axis and axis.is_ordered
    assert (axis.static_axis_index(), axis.name) == (1, "staticAxisIdx=1")
    assert not axis.is_sequence_axis and not axis.is_batch_axis


def test_default_axes_have_the_names_of_cntk():
    batch, sequence = Axis.default_batch_axis(), Axis.default_dynamic_axis()
    assert batch.is_batch_axis and not batch.is_ordered and batch.name == "defaultBatchAxis"
    assert sequence.is_sequence_axis and sequence.name == "defaultDynamicAxis"
    assert Axis.default_batch_axis() == batch and len({batch, Axis.default_batch_axis()}) == 1
    assert axes_text((batch, sequence)) == "[#, *]"


def test_special_axes_are_not_dynamic_axes():
    for axis in (Axis.all_axes(), Axis.all_static_axes(), Axis.unknown_dynamic_axes()[0], Axis.end_static_axis()):
        assert not axis.is_dynamic_axis and not axis.is_sequence_axis and not axis.is_batch_axis
    assert not Axis.all_axes().is_ordered and not Axis.all_static_axes().is_ordered


def test_the_place_in_front_of_the_static_axes_is_one_axis_with_the_number_of_cntk():
    assert Axis.end_static_axis() == Axis.new_leading_axis() == Axis(2147483644)
    assert str(Axis.end_static_axis()) == "Axis('staticAxisIdx=2147483644')" and Axis.end_static_axis().is_static_axis
    x = C.input_variable((2, 3))
    assert C.splice(x, x, axis=Axis.end_static_axis()).shape == (2, 2, 3)
    with pytest.raises(ValueError, match="static axis 2147483644 is out of bounds"):
        C.reduce_sum(x, Axis.end_static_axis())


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_one_of_two_axes_that_are_swapped_exists(shape):
    end = Axis.end_static_axis()
    with pytest.raises(ValueError, match="both axes are before the first one"):
        C.swapaxes(C.input_variable(shape), end, end)


def test_the_sequence_axis_of_operands_is_an_ordered_axis_of_its_name():
    axis = C.cntk_py.Axis_operand_sequence_axis()
    assert axis.is_sequence_axis and axis == Axis("__operandSequenceAxis")


def test_is_dynamic_axis_can_be_called_as_in_cntk():
    assert Axis("words").is_dynamic_axis() and Axis.default_batch_axis().is_dynamic_axis() is True
    assert not Axis(0).is_dynamic_axis() and not Axis.all_axes().is_dynamic_axis()


def test_unique_axes_of_the_same_name_differ():
    assert len({Axis.new_unique_dynamic_axis("words") for _ in range(5)}) == 5


def test_index_of_a_dynamic_axis_is_an_error_unless_unchecked():
    with pytest.raises(ValueError, match="Axis\\('words'\\) is not a static axis"):
        Axis("words").static_axis_index()
    assert Axis("words").static_axis_index(checked=False) == 2**31 - 1


def test_attributes_say_that_all_axes_have_no_order():
    x = C.input_variable((2, 3))
    attributes = [f.root_function.attributes for f in (C.reduce_sum(x, Axis.all_axes()), C.reduce_sum(x))]
    assert [a["axisVec"] for a in attributes] == [
        [("unordered", "dynamic", "AllAxes")], [("unordered", "dynamic", "AllStaticAxes")],
    ]


def test_unique_axes_are_numbered_by_their_name_as_in_cntk():
    unique = Axis.new_unique_dynamic_axis
    Axis("answer")
    assert [unique(n).name for n in ("answer", "reply1", "reply", "reply", "reply1", "reply", "defaultBatchAxis")] == [
        "answer1", "reply1", "reply", "reply2", "reply11", "reply3", "defaultBatchAxis1"
    ]
