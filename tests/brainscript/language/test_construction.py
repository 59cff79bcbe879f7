"""Nodes that descriptions make, and the seeds of their parameters."""

import numpy as np

import cntkjax as C
from tests.brainscript.language.descriptions import build


def test_a_second_node_of_one_name_gets_an_underscore():
    network = build("f = Input {2} ; z = Sequential (DenseLayer {2} : ReLU : Dropout : LinearLayer {2}) (3 .* f)")
    assert network.operations["z.x._"] == "RectifiedLinear"
    assert any(name.startswith("_") for name in network.nodes)


def test_another_name_of_a_node_is_not_its_name():
    """Before or after its own in the alphabet: A1 = conv1_act in CNTK's test QuickE2E, and an autoencoder's target."""
    network = build("features = Input(2) ; A = z ; z = out(features) ; out(x) = { y = Tanh(x) }.y ; match = (features)")
    assert sorted(network.nodes) == ["features", "z"]


def test_parameters_are_seeded_in_the_sorted_order_of_names_and_depth_first():
    network = build("""
        x = Input {2}
        w = ParameterTensor {(3 : 2)} ; b = ParameterTensor {3} ; zero = ParameterTensor {3, initValue=0}
        z = w * x + b + zero
    """)
    for name, shape, seed in (("b", (3,), 1), ("w", (2, 3), 2)):
        expected = C.parameter(shape, init=C.uniform(0.05, seed=seed)).value
        np.testing.assert_array_equal(network.nodes[name].value, expected)
    assert not network.nodes["zero"].value.any()


def test_a_seed_of_its_own_counts_no_number_and_an_offset_is_added():
    text = "a = ParameterTensor {2, randomSeed=7} ; b = ParameterTensor {2}"
    network = build(text, seed_offset=3)
    np.testing.assert_array_equal(network.nodes["a"].value, C.parameter(2, init=C.uniform(0.05, seed=10)).value)
    np.testing.assert_array_equal(network.nodes["b"].value, C.parameter(2, init=C.uniform(0.05, seed=4)).value)


def test_a_factor_of_a_learning_rate_is_known_to_the_network():
    network = build("""
        a = ParameterTensor {2, learningRateMultiplier=3}
        b = ParameterTensor {2, learningRateMultiplier=0}
    """)
    assert network.rates == {"a": 3.0}
    assert network.nodes["b"].is_constant
