"""What XLA makes of a chain of operations grows linearly with its length.

Every run compiles some chains of one operation from each group; operations on elements are in test_boundaries.py.
`make chains` compiles chains of each operation alone and of all pairs of groups, in all forms, which takes some hours.
"""

import itertools
import os

import pytest

from .chains import CHAINS, FORMS, IN_LOOPS, LINKS, MOST, growth

EVERYTHING = "CNTKJAX_CHAINS" in os.environ

long = pytest.mark.skipif(not EVERYTHING, reason="`make chains` compiles them, which takes some hours")
both = pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])


def mixtures(count):
    """Chains of an operation from each group."""
    return list(zip(*(itertools.islice(itertools.cycle(links), count) for links in LINKS.values()), strict=True))


@pytest.mark.parametrize("names", mixtures(10 if EVERYTHING else 4), ids="-".join)
def test_chains_of_operations_of_all_groups_grow_linearly(names):
    assert growth(names, "gated", len(names)) <= MOST


@both
@pytest.mark.parametrize("names", [("tanh",), ("sinh",), ("sin", "softplus")], ids="-".join)
def test_the_step_of_a_recurrence_grows_linearly(names, training):
    assert growth(names, "alone", 20, training, looped=True) <= MOST


def test_sums_in_the_step_of_a_recurrence_grow_linearly_though_they_are_cheap():
    assert growth(("plus",), "residual", 40, looped=True) <= MOST


@pytest.mark.parametrize("name, training, looped", [
    ("pad", False, True), ("pad", True, False), ("pad", True, True), ("splice", True, False), ("gather", False, True),
])
def test_what_moves_elements_and_is_added_to_them_grows_linearly(name, training, looped):
    assert growth((name,), "residual", 40, training, looped) <= MOST


@long
@both
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", CHAINS, ids="-".join)
def test_every_chain_grows_linearly(names, form, training):
    assert growth(names, form, 40, training) <= MOST


@long
@both
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", IN_LOOPS, ids="-".join)
def test_the_step_of_every_recurrence_grows_linearly(names, form, training):
    assert growth(names, form, 40, training, looped=True) <= MOST
