"""Elementwise operations and reductions of the library."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.configuration import ConfigError
from tests.brainscript.language.descriptions import build


def test_reductions_are_over_their_axis_and_take_a_tag():
    network = build("""
        x = Input {(2 : 3)}
        rows = ReduceSum (x, axis=1, tag='output') ; columns = ReduceMax (x, axis=2, tag='output')
        all = ReduceMean (x, axis=None, tag='output') ; both = ReduceSum (x, axis=(1 : 2), tag='output')
        pair = Splice (x : x, axis=3, tag='output')
    """)
    assert network.roles["output"] == ["all", "both", "columns", "pair", "rows"]
    data = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    for name, expected in (("rows", data.sum(2, keepdims=True)), ("columns", data.max(1, keepdims=True)),
                           ("all", data.mean(keepdims=True)[0]), ("both", data.sum(keepdims=True)),
                           ("pair", np.stack([data, data], 1))):
        result = network.nodes[name].owner.eval({network.nodes["x"]: data})
        np.testing.assert_allclose(result, expected.reshape(result.shape), rtol=1e-6)
        assert network.nodes[name].shape == expected.shape[1:]


def test_operands_of_reciprocals_and_reductions_are_named_as_in_cntks_log_of_fcn():
    network = build("x = Input {2} ; norm = Reciprocal (ReduceSum (Sin (x))) ; outputNodes = (norm)")
    assert network.inputs["norm"] == ["norm.z.r"] and network.inputs["norm.z.r"] == ["norm.z._"]


def test_reshape_takes_a_number_of_rows_or_a_shape():
    network = build("x = Input {6} ; rows = Reshape (x, 6, tag='output') ; matrix = Reshape (x, (2 : 3)) ; "
                    "image = Reshape (x, 6, imageWidth=2, imageHeight=1, imageChannels=3)")
    assert network.nodes["image"].shape == (3, 1, 2)
    assert network.nodes["rows"].shape == (6,) and network.nodes["matrix"].shape == (3, 2)


def test_the_property_of_training_is_1_where_gradients_are_computed():
    network = build("x = Input {1} ; w = ParameterTensor {1, initValue=3}\n"
                    "t = EnvironmentInput ('isTraining') ; out = w .* x .* t ; outputNodes = (out)")
    out, x, w = (network.nodes[name] for name in ("out", "x", "w"))
    assert network.operations["t"] == "EnvironmentInput"
    assert out.owner.eval({x: [[2]]}).tolist() == [[0]]
    assert C.combine([out]).grad({x: [[2]]}, wrt=[w]).tolist() == [2]


def test_other_properties_of_the_environment_are_unknown_as_in_cntk():
    with pytest.raises(ConfigError, match="there is no environment property 'epoch'; the only one is isTraining"):
        build("t = EnvironmentInput ('epoch') ; outputNodes = (t)")
