"""Expressions of BrainScript: their values, and what is never evaluated."""

import pytest

from tests.brainscript.language.descriptions import build


def value(expression, members=""):
    """The number that an expression is: the dimension of a constant."""
    network = build(f"{members}\n x = ConstantTensor (1, ({expression}))")
    return network.nodes["x"].shape[0]


@pytest.mark.parametrize(("expression", "expected"), [
    ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("2 ** 3", 8), ("7 % 4", 3), ("8 / 2 / 2", 2),
    ("10 - 2 - 3", 5), ("-1 + 3", 2),
    ("if 1 < 2 then 3 else 4", 3), ("if !(1 < 2) || false then 3 else 4", 4), ("if true && 1 != 2 then 3 else 4", 3),
    ("(3 : 4 : 5)[1]", 4), ("Length (1 : (2 : 3) : 4)", 4), ("Length ([| 1 ; (2 : 3) |])", 2),
    ("{ x = 5 ; y = x + 1 }.y", 6), ("(x => x + 1) (3)", 4),
    ("array[1..3] (i => i * i)[3]", 9), ("Length ('abcd')", 4),
    ("({ a = 1 ; b = 2 } with { b = 3 }).b", 3),
    ("Floor (2.5) + Ceil (2.5) + Round (2.5)", 8),
    ("Max (3, 4) - Min (3, 4)", 1),
    ("if 'a' + 'b' == 'ab' then 1 else 2", 1), ("Mod (7, 4) + IntDiv (7, 4)", 4),
    ("Length (Replace ('a-b', '-', '--'))", 4),
    ("5 /* a ( comment */ - 2 // another )\n", 3),
    ("if BS.Constants.IsNone (BS.Constants.None) && !BS.Constants.IsNone (0) then 1 else 2", 1),
])
def test_expressions_of_numbers_have_the_values_of_the_language(expression, expected):
    assert value(expression) == expected


def test_functions_take_optional_arguments_by_name_and_see_the_scope_of_their_definition():
    members = """
        base = 10
        f (x, step=1) = base + x * step
        g {n} = { base = 1 ; r = f (n, step=2) }.r
        fib (n) = if n < 2 then n else fib (n - 1) + fib (n - 2)
        squares[i:1..4] = if i == 1 then 1 else squares[i-1] + 2 * i - 1
    """
    assert value("f (3)", members) == 13
    assert value("g {3}", members) == 16
    assert value("fib (10)", members) == 55
    assert value("squares[4]", members) == 16


def test_what_is_never_used_is_never_evaluated():
    assert value("if true then 3 else Fail ('no')", "unused (x) = nonsense + x") == 3
