"""What XLA makes of a chain of operations grows linearly with its length.

Every run compiles some chains of one operation from each group; operations on elements are in test_boundaries.py.
`make chains` compiles chains of each operation alone and of all pairs of groups, in all forms, which takes some hours.
"""

import itertools
import os

import pytest

from .chains import ALL, FORMS, LINKS, PAIRS, growth

EVERYTHING = "CNTKJAX_CHAINS" in os.environ
MOST = 2.5  # 2 is linear, 4 is quadratic; short chains are repeated as a whole, so a little more than 2 is right


def mixtures(count):
    """Chains of an operation from each group."""
    return list(zip(*(itertools.islice(itertools.cycle(links), count) for links in LINKS.values()), strict=True))


@pytest.mark.parametrize("names", mixtures(10 if EVERYTHING else 4), ids="-".join)
def test_chains_of_operations_of_all_groups_grow_linearly(names):
    assert growth(names, "gated", len(names)) <= MOST


@pytest.mark.skipif(not EVERYTHING, reason="`make chains` compiles them, which takes some hours")
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [*((name,) for name in ALL), *PAIRS], ids="-".join)
def test_every_chain_grows_linearly(names, form, training):
    assert growth(names, form, 40, training) <= MOST
