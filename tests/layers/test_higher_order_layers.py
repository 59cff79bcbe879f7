"""Layers composed of layers."""

import pytest

import cntkjax as C
from cntkjax import layers as L

x, s = C.input_variable(5), C.sequence.input_variable(5)


class TestComposition:
    def test_for_creates_a_layer_for_each_item(self):
        f = L.For(["one", "two"], lambda name: L.Dense(5, name=name))(x)
        assert [f.one.name, f.two.name] == ["one", "two"]
        assert len(L.For(range(3), lambda: L.Dense(5))(x).parameters) == 6
        assert L.For(range(0), lambda: L.Dense(5)) is L.identity

    def test_for_needs_a_function(self):
        with pytest.raises(TypeError, match="needs a Python function"):
            L.For(range(2), L.Dense(3))

    def test_names_lead_to_layers_and_their_parameters(self):
        f = L.Sequential([L.Dense(3, name="first"), L.Label("middle"), L.Dense(2, name="second")])(x)
        assert f.first.W.shape == (5, 3) and f.second.W.shape == (3, 2)
        assert f.middle.shape == (3,)

    def test_a_tuple_of_layers_has_an_output_for_each(self):
        f = L.Sequential([(L.Dense(3), L.Dense(2)), (C.relu, C.tanh)])(x)
        assert [v.shape for v in f.outputs] == [(3,), (2,)]

    def test_calling_twice_shares_parameters(self):
        layer = L.Dense(5)
        assert layer(layer(x)).parameters == layer.parameters


def test_all_outputs_of_a_block_have_its_name():
    states = L.Recurrence(L.LSTM(3, name="cell"), return_full_state=True)(s)
    assert [v.name for v in states.outputs] == ["cell", "cell"]
    assert [v.name for v in L.Recurrence(L.LSTM(3, name="cell"))(s).outputs] == ["cell"]
    assert [v.name for v in L.LSTM(3).outputs] == ["", ""]
