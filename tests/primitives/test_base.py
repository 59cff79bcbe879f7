"""Traits, by which operations describe themselves: no module of the engine refers to one by name."""

import ast
from pathlib import Path

import pytest

import cntkjax
from cntkjax.primitives import BY_NAME, contraction, fused
from cntkjax.primitives.base import Attribute, Primitive, primitive
from cntkjax.primitives.jax_function import JaxCall
from cntkjax.primitives.user import UserDefined

ENGINE = Path(cntkjax.__file__).parent / "engine"
NAMES = {"op_name", "op_type", "block_name"}
# Every operation, the class of those that have one instance for each function of the user.
OPERATIONS = [
    *BY_NAME.values(), contraction.CONTRACTION, JaxCall, UserDefined,
    *(v for v in vars(fused).values() if isinstance(v, Primitive)),
]
TRAITS = sorted(
    name for name, value in vars(Primitive).items()
    if isinstance(value, (bool, int, type(None))) and not name.startswith("__")
)


def is_operation_name(node):
    """True for `….op_name` and the like, and for `….primitive.name`."""
    if not isinstance(node, ast.Attribute):
        return False
    return node.attr in NAMES or (
        node.attr == "name" and isinstance(node.value, ast.Attribute) and node.value.attr == "primitive"
    )


def comparisons(source):
    """The lines that compare the name of an operation."""
    return [
        node.lineno for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare) and any(map(is_operation_name, [node.left, *node.comparators]))
    ]


def test_comparisons_are_recognized():
    lines = 'n.primitive.name == "Times"\nn.op_name in ("A", "B")\nx.name == "loss"\n"Plus" != n.block_name\n'
    assert comparisons(lines) == [1, 2, 4]


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.py")), ids=lambda path: str(path.relative_to(ENGINE)))
def test_no_module_of_the_engine_compares_the_name_of_an_operation(path):
    source = path.read_text()
    if "jaxpr" in source:  # where the primitives are JAX's
        source = source.replace(".primitive.name", ".primitive_name")
    assert comparisons(source) == [], "ask a trait or a method of Primitive instead (primitives/base.py)"


def test_traits_are_defined():
    assert {"elementwise", "packed", "delay", "weight_operand", "equal_lengths", "assigns_operand"} <= set(TRAITS)


@pytest.mark.parametrize("trait", TRAITS)
def test_each_trait_is_that_of_some_operation_and_not_of_most(trait):
    default = getattr(Primitive, trait)
    different = [op for op in OPERATIONS if getattr(op, trait) != default]
    assert 0 < len(different) < len(OPERATIONS), "a trait that no operation has, or every one"


def test_an_ordinary_operation_needs_no_traits():
    class Doubled(Primitive):
        name = "Doubled"
        attributes = {"times": Attribute("Int")(2)}

    doubled = Doubled()
    assert doubled.complete({}) == {"times": 2}
    assert doubled.specialize({}) is doubled
    assert doubled.padding_value({}, []) is None and not doubled.ignores_padding({}, [])
    assert not doubled.makes_sparse({}) and doubled.free_dimension_sizes() == ()
    with pytest.raises(TypeError, match="Doubled has no attribute thrice"):
        doubled.complete({"thrice": 1})


@pytest.mark.parametrize(("name", "number"), [("Plus", 123_456), ("Another", 0)])
def test_a_name_or_number_that_is_taken_is_an_error_that_names_the_other_operation(name, number):
    with pytest.raises(ValueError, match=r"registered already; take another name and a number that is free"):
        primitive(name, number)(type("Another", (Primitive,), {}))
    assert BY_NAME["Plus"].cntk_id != number
