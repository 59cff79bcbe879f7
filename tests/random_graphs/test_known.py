"""Differences from CNTK that are known to the comparison: users can read about each, and it hides no other one."""

from pathlib import Path

import pytest

from .compare import Difference
from .known import KNOWN, marked
from .program import BATCH, Minibatch, Program, Statement, Type

ROWS = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
IMAGE = Type((2, 3, 3), (BATCH,))


def program(*texts):
    """An image v1, what is computed of it, and v9, which is independent of all of it."""
    statements = [Statement("v1", 'C.input_variable((2, 3, 3), name="v1", needs_gradient=True)', IMAGE, is_input=True)]
    statements += [Statement(f"v{i}", text, IMAGE) for i, text in enumerate(texts, 2)]
    statements += [Statement("v8", "C.parameter((3,))", Type((3,))), Statement("v9", "C.exp(v8)", Type((3,)))]
    minibatch = Minibatch(1, {})
    return Program(1, "float32", tuple(statements), (f"v{len(texts) + 1}", "v9"), (minibatch,), ("values", "gradients"))


def test_known_differences_are_rows_of_the_documentation():
    assert not [k.row for k in KNOWN if f"\n| {k.row}" not in ROWS]


POOLING = "C.pooling(v1, C.MAX_POOLING, (1, 1), (2, 2), auto_padding=[False], ceil_out_dim={})"
SHARED = ("C.layers.ConvolutionTranspose((2, 2), 2)(v1)", "v2 + C.sin(v1)")


@pytest.mark.parametrize(("texts", "what", "place", "is_fault"), [
    (SHARED, "gradients", 0, False),
    (SHARED, "values 0", 0, True),  # only gradients are wrong in CNTK
    (SHARED, "gradients", 1, True),  # of what does not go into the convolution
    (("C.layers.ConvolutionTranspose((2, 2), 2)(v1)", "C.sin(v2)"), "gradients", 0, True),  # nothing else uses v1
    ((POOLING.format("True"), "C.tanh(v2)"), "values 0", 0, False),  # a third window of one cell begins at the fourth
    ((POOLING.format("False"), "C.tanh(v2)"), "values 0", 0, True),
    (("C.user_function(Square(v1))", "loop(lambda h: h + v2)"), "pieces", 0, False),
    (("C.sin(v1)", "loop(lambda h: h + v2)"), "pieces", 0, True),
])
def test_a_difference_is_known_where_its_culprit_contributes(texts, what, place, is_fault):
    (difference,) = marked([Difference("value", what, "[1.] in CNTK, [2.] here", place)], program(*texts))
    assert difference.is_fault == is_fault
