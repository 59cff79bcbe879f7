"""Models that Python programs saved: the tools know their operations and inputs, and edit them."""

import numpy as np

import cntkjax as C
from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.language import build_network
from cntkjax.brainscript.models import function_of, load_network
from cntkjax.configuration.source import Text
from tests.formats import v1_writer

CONFIG = """
modelPath = "python.dnn" ; command = Dump:Plot:Edit
Dump = { action = "dumpNode" ; outputFile = "dump.txt" ; printValues = false }
Plot = { action = "plot" ; outputDOTFile = "graph.dot" }
Edit = { action = "edit" ; editPath = "edit.mel" }
"""
EDIT = """
m = LoadModel("python.dnn", format=cntk)
SetDefaultModel(m)
New = Sigmoid(t)
SetInput(z, 0, New)
SaveModel(m, "edited.dnn", format=cntk)
"""


def test_models_of_python_programs_are_dumped_plotted_and_edited(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = C.sequence.input_variable(2, name="x")
    weights, outer = (C.parameter((2, 2), init=C.uniform(1, seed=i), name=name) for i, name in enumerate("WV", 1))
    t = C.times(C.sequence.past_value(x), weights, name="t")
    C.times(C.tanh(t), outer, name="z").save("python.dnn")
    (tmp_path / "a.cntk").write_text(CONFIG)
    (tmp_path / "edit.mel").write_text(EDIT)
    assert main(["configFile=a.cntk"]) == 0
    network = load_network("python.dnn")
    delay, tanh = (next(name for name, each in network.operations.items() if each == operation)
                   for operation in ("PastValue", "Tanh"))
    lines = (tmp_path / "dump.txt").read_text().splitlines()
    nodes = {f"z=Times ( {tanh} , V )", f"{tanh}=Tanh ( t )", f"{delay}=PastValue ( x )", "x=InputValue [2]"}
    assert nodes <= set(lines)
    assert "W=LearnableParameter [2,2]   learningRateMultiplier=1.000000  NeedsGradient=true" in lines
    assert len(lines) == 7
    assert f' "{tanh}" -> "z" ; ' in (tmp_path / "graph.dot").read_text().splitlines()
    edited, data = load_network("edited.dnn"), np.array([[1, 2], [3, -4]], np.float32)
    before = np.vstack([[0, 0], data[:1]]) @ weights.value
    result = edited.nodes["z"].owner.eval({edited.nodes["x"]: [data]})
    np.testing.assert_allclose(np.squeeze(result), 1 / (1 + np.exp(-before)) @ outer.value, rtol=1e-5)


def test_a_loop_that_nothing_else_uses_is_saved(tmp_path):
    network = build_network(Text("a.bs", """
        x = Input {1} ; z = 2 .* x
        count = PastValue (1, count, defaultHiddenActivation=0) + BS.Constants.OnesLike (x)
        outputNodes = (z : count)
    """), {})
    function_of(network).save(str(tmp_path / "a.dnn"))
    loaded = load_network(str(tmp_path / "a.dnn"))
    assert loaded.roles["output"] == ["z", "count"]
    counts = loaded.nodes["count"].owner.eval({loaded.nodes["x"]: [np.zeros((3, 1), np.float32)]})
    assert np.ravel(counts).tolist() == [1, 2, 3]


def test_files_of_cntk_1_say_which_nodes_are_criteria_metrics_and_outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lists = {"Feature": ["x"], "Label": ["y"], "Criterion": ["loss"], "Eval": ["distance"], "Output": ["h"]}
    (tmp_path / "old.dnn").write_bytes(v1_writer.network(
        v1_writer.source("x", 2), v1_writer.source("y", 2), v1_writer.learnable("b", (2,), [1, 2]),
        v1_writer.node("Plus", "p", "x", "b"), v1_writer.node("RectifiedLinear", "h", "p"),
        v1_writer.node("Minus", "difference", "h", "y"), v1_writer.node("Abs", "distance", "difference"),
        v1_writer.node("SumElements", "loss", "distance"), v1_writer.learnable("W", (3, 2), range(6)),
        v1_writer.times("w", "W", "x"), lists=lists,
    ))
    network = load_network("old.dnn")
    assert network.roles == {"feature": ["x"], "label": ["y"], "criterion": ["loss"], "evaluation": ["distance"],
                             "output": ["h"]}
    assert network.inputs["w"] == ["W", "x"]
    assert network.operations["h"] == "RectifiedLinear" and network.operations["b"] == "LearnableParameter"


def test_inputs_of_a_file_of_cntk_1_meet_new_ones(tmp_path, monkeypatch):
    """Without dynamicAxis, CNTK 1 wrote no name of an axis: it is the default one, as of new inputs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.dnn").write_bytes(v1_writer.network(
        v1_writer.source("x", 2), v1_writer.learnable("b", (2,), [1, 2]), v1_writer.node("Plus", "h", "x", "b"),
        version=31,
    ))
    old, new = load_network("old.dnn"), C.sequence.input_variable(2)
    difference = C.minus(old.nodes["h"], new)
    np.testing.assert_allclose(difference.eval({old.nodes["x"]: [[[1, 1], [2, 2]]], new: [[[1, 0], [0, 1]]]})[0],
                               [[1, 3], [3, 3]])
