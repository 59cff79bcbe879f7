"""docs/layers.md: its examples run, and it lists all layers."""

import doctest
import warnings
from importlib import import_module
from pathlib import Path

from cntkjax import layers

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


def test_the_examples_of_the_page_run():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed, tried = doctest.testfile(
            str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        )
    assert tried > 50 and not failed


def test_the_page_lists_all_layers():
    text = PAGE.read_text()
    sequence = import_module("cntkjax.layers.sequence")  # by its name in the package: the operations
    modules = (layers.layers, sequence, layers.blocks, layers.higher_order_layers, layers.models)
    public = {n: f for module in modules for n, f in vars(module).items() if n[0].isupper()}
    layers_of_package = {n for n, f in public.items() if getattr(f, "__module__", "").startswith("cntkjax.layers")}
    assert {"Dense", "LSTM", "UnfoldFrom", "For", "AttentionModel"} < layers_of_package
    missing = {n for n in layers_of_package if n not in text}
    assert missing <= {"UntestedBranchError"}
