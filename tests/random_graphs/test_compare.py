"""What counts as a difference between two runs, and whether NumPy finds wrong values."""

import numpy as np
import pytest

from cntkjax.graph.errors import ArgumentError

from . import numpy_reference, serve
from .compare import compare
from .draft import Draft, Refused
from .executing import executed
from .processes import comparable
from .program import BATCH, Minibatch, Program, Statement, Type
from .rules import RULES
from .serve import plain

ONE, TWO = plain(np.ones(2)), plain(np.full(2, 2.0))
REFUSAL = {"error": "ValueError", "message": "no", "place": "", "accident": False}


@pytest.mark.parametrize(("cntk", "ours", "expected"), [
    ([ONE, ONE, ONE], [ONE, TWO, TWO], [("value", 1), ("value", 2)]),
    ([ONE, ONE], [ONE], [("value", 0)]),
    (REFUSAL, [ONE], [("accepted", -1)]),
    ([ONE], REFUSAL, [("refused", -1)]),
    (REFUSAL, REFUSAL, [("both refuse", -1)]),
])
def test_each_value_that_differs_is_a_difference(cntk, ours, expected):
    found = compare({"values 0": cntk}, {"values 0": ours}, "float32")
    assert [(d.kind, d.place) for d in found] == expected


def test_what_is_refused_here_alone_is_a_fault_although_cntk_refuses_something_else():
    found = compare({"values 0": [ONE], "loaded": REFUSAL}, {"values 0": REFUSAL, "loaded": [ONE]}, "float32")
    assert [(d.kind, d.what) for d in found] == [("refused", "values 0")]


def test_what_cntk_alone_refuses_is_accepted_although_both_refuse_something_else():
    found = compare({"values 0": REFUSAL, "values 1": REFUSAL}, {"values 0": [ONE], "values 1": REFUSAL}, "float32")
    assert [(d.kind, d.what) for d in found] == [("accepted", "values 0"), ("both refuse", "values 1")]


def test_an_accident_is_one_although_the_package_explains_it_by_arguments_that_fit():
    error = ArgumentError("Function.eval cannot be called with ...")
    error.__cause__ = TypeError("mul got incompatible shapes")
    assert serve.refusal(error, is_fed_well=True)["accident"]
    assert not serve.refusal(error)["accident"]


@pytest.mark.parametrize(("computed", "kinds"), [(REFUSAL, ["both refuse"]), ([ONE], ["type"])])
def test_types_that_stay_unknown_differ_only_if_something_is_computed(computed, kinds):
    cntk, ours = ({"type of v1": [shape, [], "float32"], "values 0": computed} for shape in ([2], [-2]))
    assert [d.kind for d in compare(cntk, ours, "float32")] == kinds


@pytest.mark.parametrize(("a", "b"), [(np.nan, 0), (0, np.inf), (np.inf, -np.inf)])
def test_infinite_values_differ_from_finite_ones_and_in_their_sign(a, b):
    assert compare({"values 0": [plain(np.array(a))]}, {"values 0": [plain(np.array(b))]}, "float32")


def test_numpy_computes_operations_that_have_rules():
    assert set(numpy_reference.OPERATIONS) <= set(RULES)


def test_numpy_finds_a_wrong_value_in_a_step_of_a_sequence():
    steps = Type((2, 3), (BATCH, "defaultDynamicAxis"))
    statements = (
        Statement("v1", 'C.sequence.input_variable((2, 3), name="v1")', steps, is_input=True),
        Statement("v2", "C.parameter(init=data(2, 3, 4))", Type((3, 4))),
        Statement("v3", "C.times(v1, v2)", Type((2, 4), steps.axes)),
        Statement("v4", "C.reduce_sum(v3, (0, 1))", Type((1, 1), steps.axes)),
    )
    program = Program(1, "float32", statements, ("v4",), (Minibatch(2, {"defaultDynamicAxis": (3, 1)}),), ("values",))
    names, (minibatch,) = executed(program)
    assert not list(numpy_reference.disagreements(program, names, minibatch))
    right = names["evaluate"]

    def wrong(outputs, minibatch):
        values = right(outputs, minibatch)
        values[-1][0][2] += 0.25
        return values

    (found,) = numpy_reference.disagreements(program, names | {"evaluate": wrong}, minibatch)
    assert found.startswith("v4 = C.reduce_sum")


def test_nothing_is_asked_of_which_cntk_shows_nothing():
    statements = (Statement("v1", "C.parameter(init=data(1, 2))", Type((2,))),)
    program = Program(1, "float32", statements, ("v1",), (Minibatch(1, {}),) * 2, ("values", "other values"))
    assert comparable(program, {"type of v1": [], "values 0": [ONE], "values 1": REFUSAL}) == program.lines()[:-1]
    assert comparable(program, {"line 1": REFUSAL}) == program.lines()[:2]
    found = compare({"values 0": [ONE], "values 1": REFUSAL}, {"values 0": [TWO]}, "float32")
    assert [(d.kind, d.is_fault) for d in found] == [("not asked", False), ("value", True)]


def test_nothing_is_compared_after_a_training_that_cntk_left():
    shown = {"values 0": [ONE], "training": REFUSAL, "values 1": [ONE]}
    found = compare(shown, {"values 0": [TWO], "training": [ONE], "values 1": [TWO]}, "float32")
    assert [(d.kind, d.what) for d in found] == [("accepted", "training"), ("value", "values 0")]


def test_programs_have_inputs_of_known_axes_only():
    """An axis that an operation creates is no axis of an input."""
    draft = Draft(0, "float32")
    with pytest.raises(Refused):
        draft.leaf(Type((2,), (BATCH, "whereNodeDynamicAxis")))
