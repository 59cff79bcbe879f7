"""What an annotation accepts."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from cntkjax import _typing
from cntkjax.graph.annotations import parameters_of


@pytest.mark.parametrize(
    "annotation, accepted, refused",
    [
        ("int", [3, np.int8(3), 3.0, True], [2.5, "3", None, 2**70, math.nan, [3]]),
        ("float", [3, 2.5, np.float32(1), np.array(1.0), math.inf], ["3", None, math.nan, object(), 1j]),
        ("bool", [True, 0, None, np.True_], ["yes", [], 0.5, object()]),
        ("str | bytes | None", ["a", b"a", None], [3, ["a"]]),
        ("int | Sequence[int]", [3, (3, 4), [], range(3), np.array([3])], [[2.5], "34", {}, [None]]),
        ("Count | None", [1, 5, None], [0, -1, 1.5]),
        ("ArrayLike", [1, [1, 2], np.ones(2), 2.5], ["a", None, {}, [object()]]),
        ("Mapping[str, int]", [{}, {"a": 1}], [[], 3]),
        ("Callable[..., int]", [len], [3, "len"]),
        ("ElementType", [np.float32, "float", 1], []),
        ("UnknownName", [3, "a", None], []),
    ],
)
def test_annotations_decide_what_is_accepted(annotation, accepted, refused):
    names = {"Sequence": Sequence, "Mapping": Mapping, "Callable": Callable} | vars(_typing)
    scope = {}
    exec(f"def f(a: {annotation!r}): pass", names, scope)
    check = parameters_of(scope["f"]).annotations.get("a")
    assert not any(check.rejects(value) for value in accepted) if check else not refused
    assert all(check.rejects(value) for value in refused) if check else True
