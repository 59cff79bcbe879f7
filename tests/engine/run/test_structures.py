"""Structures of outputs: they come back from JSON, and nothing else does."""

import json

import jax
import numpy as np
import optax
import pytest

from cntkjax.engine.run.handover import captured
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.run.structures import decoded, encoded

ONES = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own, and no programs of other tests."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    programs.clear()
    return tmp_path


@pytest.mark.parametrize("tree", [
    (1, [2, None], {"b": 3, "a": (4,)}), {3: 1, 1: 2}, optax.adam(0.1).init([ONES]), optax.EmptyState(),
    captured([1, 2]), optax.named_chain(("a", optax.trace(0.9)), ("b", optax.identity())).init([ONES]),
], ids=["tuple", "dict", "adam", "empty", "captured", "named"])
def test_structures_are_restored(tree):
    structure = jax.tree.structure(tree)
    assert decoded(json.loads(json.dumps(encoded(structure)))) == structure


def test_structures_with_static_fields_are_restored():
    from cntkjax.engine.data.sparse import Sparse
    from cntkjax.engine.lower.rows import Rows

    structure = jax.tree.structure([Rows(ONES, ONES, 7), Sparse(ONES, None, (2, 3), np.dtype(np.float32))])
    assert decoded(json.loads(json.dumps(encoded(structure)))) == structure


@pytest.mark.parametrize("value", [
    ["record", "os", "stat_result"], ["record", "cntkjax.engine.xla.cache", "Store", "folder", 1], ["eval", "1"],
    ["record", "cntkjax.engine.xla.cache", "nothing"],
])
def test_only_records_of_known_packages_are_restored(value):
    with pytest.raises((ValueError, KeyError, AttributeError)):
        decoded(value)
