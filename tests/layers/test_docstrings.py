"""Every layer documents its shapes, with an example that the doctests run."""

import doctest
from importlib import import_module

import pytest

from cntkjax import layers

MODULES = (
    layers.layers, import_module("cntkjax.layers.sequence"), layers.blocks, layers.higher_order_layers, layers.models
)
LAYERS = {
    name: value for module in MODULES for name, value in vars(module).items()
    if name[0].isupper() and getattr(value, "__module__", "").startswith("cntkjax.layers")
} | {name: value for name, value in vars(layers).items()
     if name[0].isupper() and getattr(value, "__module__", "").startswith("cntkjax.layers") and callable(value)
     and not isinstance(value, type)}
EXEMPT = {"UntestedBranchError", "Signature"}  # an exception and a decorator


def test_all_layers_are_covered():
    assert len(LAYERS) >= 38 and {"Dense", "LSTM", "Convolution2D", "UnfoldFrom", "AttentionModel"} < set(LAYERS)


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - EXEMPT))
def test_a_layer_documents_its_shapes_with_an_example(name):
    documentation = LAYERS[name].__doc__
    assert "Shapes" in documentation
    assert doctest.DocTestParser().get_examples(documentation)
