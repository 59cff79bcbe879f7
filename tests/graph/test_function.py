"""Functions: the order of their inputs, and attributes that users set on them."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.function import Node
from tests.graph.parts import parts


def test_inputs_are_visited_depth_first_in_the_order_of_operands():
    x, W, b, W2 = parts()
    assert C.times(C.times(x, W) + b, W2).inputs == (x, W, b, W2)
    assert C.plus(C.times(C.times(x, W), W2), b).inputs == (x, W, W2, b)
    y = C.input_variable(2, name="y")
    assert (y + C.times(x, W)).arguments == (y, x)


OF_NODES = [n for n in vars(Node(primitive=C.plus(1, 2).root_function.primitive)) if not n.startswith("_")]


@pytest.mark.parametrize("name", [*OF_NODES, "layer", "origin", "passes_through", "copied_attributes"])
def test_user_attributes_do_not_change_a_function(name, tmp_path):
    x = C.input_variable(2)
    z = C.layers.Dense(1, init=1, name="dense")(x) + 1
    setattr(z, name, "mine")
    assert getattr(z, name) == "mine"
    z.save(str(tmp_path / "z"))
    for copy in (z, z.clone("share"), z(C.input_variable(2)), C.load_model(str(tmp_path / "z"))):
        np.testing.assert_array_equal(copy.eval([[1, 2]]), [[4]])


@pytest.mark.parametrize("name", [*OF_NODES, "layer", "origin"])
def test_layers_of_any_name_are_found_as_attributes(name):
    model = C.layers.Sequential([C.layers.Dense(2, name=name), C.relu])(C.input_variable(2))
    assert getattr(model, name).op_name == "Dense"


def test_types_and_the_like_can_be_set_on_variables():
    x = C.input_variable(2)
    x.type, x.is_unknown, x.origin = "a", "b", "c"
    assert (x.type, x.is_unknown, x.origin) == ("a", "b", "c") and (x + 1).type == C.Variable._Type(
        shape=(2,), dtype=np.float32, needs_gradient=False, is_sparse=False, dynamic_axes=x.dynamic_axes
    )
