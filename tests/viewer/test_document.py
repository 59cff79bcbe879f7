"""Documents: what a page shows of a model."""

import numpy as np
from cntk.layers import LSTM, Dense, Embedding, Recurrence, Sequential

import cntk as C
from cntkjax.viewer.document import BINS, document


def by_op(content, op):
    return [node for node in content["nodes"] if node["op"] == op]


def test_operations_lie_in_their_blocks_and_edges_join_what_computes():
    x = C.input_variable(3, name="x")
    content = document(Sequential([Dense(4, activation=C.tanh, name="h"), Dense(2)])(x))
    blocks = by_op(content, "Dense")
    assert [b["kind"] for b in blocks] == ["block", "block"] and blocks[0]["name"] == "h"
    times = by_op(content, "Times")
    assert [t["parent"] for t in times] == [b["id"] for b in blocks]
    ids = {node["id"]: node for node in content["nodes"]}
    joined = [(ids[e["from"]]["op"], ids[e["to"]]["op"], e["label"]) for e in content["edges"]]
    assert ("input", "Times", "[#] [3]") in joined and ("Tanh", "Times", "[#] [4]") in joined
    assert ("Plus", "output", "[#] [2]") in joined
    assert not any(ids[e[end]]["kind"] == "block" for e in content["edges"] for end in ("from", "to"))


def test_a_loop_is_a_cycle_of_edges():
    x = C.sequence.input_variable(5, is_sparse=True, name="x")
    content = document(Sequential([Embedding(4), Recurrence(LSTM(3))])(x))
    targets = {}
    for edge in content["edges"]:
        targets.setdefault(edge["from"], set()).add(edge["to"])
    delay = by_op(content, "PastValue")[0]["id"]
    reached, waiting = set(), [delay]
    while waiting:
        for target in targets.get(waiting.pop(), set()) - reached:
            reached.add(target)
            waiting.append(target)
    assert delay in reached
    assert by_op(content, "input")[0]["sparse"]


def test_parameters_are_described_by_their_finite_values():
    x = C.input_variable(2)
    values = np.array([1, 2, np.nan, np.inf], np.float32)
    content = document(C.reduce_sum(x) + C.parameter((4,), init=values, name="p"))
    (leaf,) = content["leaves"].values()
    assert (leaf["name"], leaf["kind"], leaf["size"], leaf["not_finite"]) == ("p", "parameter", 4, 2)
    assert (leaf["min"], leaf["max"], leaf["mean"]) == (1, 2, 1.5)
    assert sum(leaf["histogram"]) == 2 and len(leaf["histogram"]) == BINS
    assert leaf["first"] == ["1", "2", "nan", "inf"]


def test_extreme_values_of_double_precision_have_no_histogram():
    p = C.parameter((2,), init=np.array([-1.7e308, 1.7e308]), dtype=np.float64)
    (leaf,) = document(p + C.input_variable(2, dtype=np.float64))["leaves"].values()
    assert leaf["histogram"] == [] and leaf["max"] == 1.7e308


def test_a_parameter_without_a_known_shape_has_no_values():
    content = document(Dense(2))
    assert {leaf["size"] for leaf in content["leaves"].values() if leaf["name"] == "W"} == {None}
    assert next(node["kind"] for node in content["nodes"]) == "placeholder"


def test_a_graph_of_thousands_of_operations_is_described():
    f = x = C.input_variable(2)
    for _ in range(3000):
        f = f + x
    assert len(document(f)["edges"]) == 6001
