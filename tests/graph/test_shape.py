"""Shapes of CNTK's compiled module: their dimensions are in reverse order, as in CNTK 2.7."""
import pytest

from cntkjax.compat import cntk_py
from cntkjax.graph.shape import NDShape


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
