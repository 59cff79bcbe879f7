"""Files of CNTK 1: their parts in each version, and what is said about damaged ones."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats.dictionary import FormatError
from tests.formats.test_v1 import one, w

SHAPES = {
    (10, "Slice"): w.uint64(1, 2) + w.int32(1),
    (22, "Slice"): w.int32(1) + w.uint64(1, 2) + w.int32(1),
    (27, "Slice"): w.int32(1) + w.uint64(1, 2) + w.int32(1, 1),
    (31, "Reshape"): w.int32(1, 2) + w.shape(2, 0),
    (23, "ReduceElements"): w.int32(1) + w.text("Sum"),
    (31, "ReduceElements"): w.int32(1, 1) + w.text("Sum") + b"\1",
}
DATA = np.float32([[1, 2, 3, 4]])
EXPECTED = {"Slice": [[2, 3]], "Reshape": [[[1, 2], [3, 4]]], "ReduceElements": [[10]]}


@pytest.mark.parametrize(("version", "op"), SHAPES)
def test_payloads_of_each_version(version, op):
    f = C.load_model(one(op, w.source("x", 4), values=SHAPES[version, op], version=version))
    np.testing.assert_array_equal(f.eval({f.arguments[0]: [DATA]})[0], EXPECTED[op])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (one("Tanh", w.source("x", 3), version=3), "version 3"),
        (one("Pooling", w.source("x", 3, version=4), version=4), "'Pooling', whose layout in version 4 is not known"),
        (one("MaxPooling", w.source("x", 3), values=w.int32(2, 0) + w.uint64(3, 1, 2)), "images of the layout 0"),
        (one("Tanh", w.source("x", 3), version=32), "version 32"),
        (one("KhatriRaoProduct", w.source("x", 3)), "'KhatriRaoProduct', which is not known"),
        (one("Tanh", w.source("x", 3), values=b"xy"), "instead of 'ENodeList'"),
        (one("Tanh", w.source("x", 3))[:-60], "does not end|are left"),
        (w.network(w.source("x", 3), w.node("Tanh", "t", "nowhere")), "'nowhere', which is not in the file"),
        (w.network(w.source("x", 3), w.source("x", 3)), "two nodes have the name 'x'"),
        (w.network(w.source("x", 3)), "no node that is an output"),
        (one("Plus", w.source("x", 3), w.source("y", 4)), "does not fit"),
        (w.network(w.source("x", 3), w.node("Tanh", "a", "b"), w.node("Tanh", "b", "a"), outputs=["a"]), "Tanh|loop"),
    ],
)
def test_each_kind_of_damage_is_named(data, reason):
    with pytest.raises(FormatError, match=reason):
        C.load_model(data)
