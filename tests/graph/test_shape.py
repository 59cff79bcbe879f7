"""Arithmetic on shapes, and those of CNTK's compiled module, whose dimensions are in reverse order, as in CNTK 2.7."""

import pytest

from cntkjax.compat import cntk_py
from cntkjax.graph.shape import (
    FREE,
    INFERRED,
    UNKNOWN_SHAPE,
    NDShape,
    as_shape,
    broadcast,
    filled,
    matches,
    merge_dimension,
    normal_axis,
    shape_text,
)


def test_axes_are_in_reverse_order():
    shape = NDShape((2, 3, 4))
    assert shape.dimensions() == (4, 3, 2)
    assert (shape[0], shape[2], shape.rank(), shape.total_size(), shape.as_string()) == (4, 2, 3, 24, "[4 x 3 x 2]")
    assert [shape.sub_shape(*ends) for ends in [(1,), (0, 2), (1, 2)]] == [(4, 3), (3, 2), (3,)]


def test_a_shape_can_be_created_from_a_rank():
    assert NDShape(3).dimensions() == (-1, -1, -1)
    assert NDShape(3, 2).dimensions() == (2, 2, 2)
    assert NDShape().is_scalar() and NDShape(()).is_scalar()


def test_unknown_dimensions_are_reported():
    assert NDShape.unknown().is_unknown() and cntk_py.NDShape_unknown() == NDShape.unknown()
    inferred = NDShape(2)
    assert inferred.has_inferred_dimension() and inferred.has_unbound_dimension() and not inferred.has_free_dimension()
    with pytest.raises(RuntimeError, match="no total size"):
        inferred.total_size()


def test_equal_shapes_have_equal_hashes():
    assert len({NDShape((2, 3)), NDShape([2, 3]), NDShape((3, 2))}) == 2
    assert NDShape((2, 3)) != (2, 3)


@pytest.mark.parametrize(("shapes", "expected"), [
    ([(2, 1), (3,)], (2, 3)), ([(2, 3), (3,), ()], (2, 3)), ([(2,), (3,)], None), ([(0, 2), (1,)], (0, 2)),
    ([(INFERRED,), (4,)], (4,)), ([(FREE, 2), (1, 2)], (FREE, 2)), ([(FREE,), (INFERRED,)], (FREE,)),
    ([(FREE,), (5,), (FREE,)], (5,)), ([], ()),
])
def test_shapes_broadcast_from_the_last_axis_on(shapes, expected):
    assert broadcast(shapes) == broadcast(shapes[::-1]) == expected


def test_an_inferred_dimension_becomes_1_where_an_operand_of_1_follows_and_stays_open_otherwise():
    """As in CNTK 2.7; see the corpus of tests/random_graphs."""
    assert broadcast([(INFERRED, INFERRED), (2, 1)]) == (2, 1)
    assert broadcast([(2, 1), (INFERRED, INFERRED)]) == (2, INFERRED)
    assert broadcast([(1,), (INFERRED,), (1,)]) == (1,)
    assert broadcast([(INFERRED, 3), (3,)]) == (INFERRED, 3)


@pytest.mark.parametrize(("a", "b", "expected"), [
    (3, 3, 3), (3, 4, None), (3, INFERRED, 3), (FREE, 3, 3), (INFERRED, FREE, FREE), (FREE, INFERRED, FREE),
    (INFERRED, INFERRED, INFERRED),
])
def test_dimensions_agree_on_the_size_that_is_known(a, b, expected):
    assert merge_dimension(a, b) == merge_dimension(b, a) == expected


@pytest.mark.parametrize(("shape", "size", "expected"), [
    ((FREE, 3), 12, (4, 3)), ((FREE, 3), 13, None), ((2, 3), 6, (2, 3)), ((2, 3), 7, None), ((FREE, FREE), 4, None),
    ((FREE, 2), 0, (0, 2)),
])
def test_a_free_dimension_is_filled_by_the_number_of_elements(shape, size, expected):
    assert filled(shape, size) == expected


def test_a_shape_allows_what_its_known_dimensions_are():
    assert matches((FREE, 3), (7, 3)) and matches((INFERRED,), (2,)) and matches((), ())
    assert not matches((FREE, 3), (7, 4)) and not matches((FREE,), (7, 3))


@pytest.mark.parametrize("sizes", [2.5, (3, -4), ("3",), (None,), 2**63, float("nan")])
def test_sizes_of_a_shape_are_whole_numbers(sizes):
    with pytest.raises(ValueError, match="the sizes of a shape are whole numbers, -1 .* or -3 "):
        as_shape(sizes)


def test_static_axes_are_counted_from_both_ends():
    assert [normal_axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (3, -4):
        with pytest.raises(IndexError, match=f"static axis {axis} does not exist in a shape of rank 3"):
            normal_axis(axis, 3)


def test_shapes_are_printed_as_in_cntk():
    shapes = (3, 2), (), UNKNOWN_SHAPE, (INFERRED, FREE)
    assert [shape_text(shape) for shape in shapes] == ["[3 x 2]", "[]", "[???]", "[? x *]"]
