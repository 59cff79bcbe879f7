"""MEL: models edited by commands, and NDL between them."""

import numpy as np
import pytest

from cntkjax.brainscript.mel import edit
from cntkjax.brainscript.models import function_of, load_network
from cntkjax.brainscript.ndl import build_network
from cntkjax.configuration.source import ConfigError, Text

MACROS = """
    Layer(x, rows, cols) { W = Parameter(rows, cols) ; B = Parameter(rows, 1, init=fixedValue, value=0)
                           T = Times(W, x) ; P = Plus(T, B) ; Y = Sigmoid(P) }
"""
NET = MACROS + """
    features = Input(3, tag=feature) ; labels = Input(3, tag=label)
    L1 = Layer(features, 4, 3)
    L2 = Layer(L1, 3, 4)
    ce = CrossEntropyWithSoftmax(labels, L2.P, tag=criteria)
    OutputNodes = (L2.P)
"""
DATA = np.array([[1, -2, 3]], np.float32)


@pytest.fixture
def paths(tmp_path):
    network = build_network(Text("net.ndl", NET), {})
    function_of(network).save(str(tmp_path / "old.dnn"))
    (tmp_path / "macros.ndl").write_text(MACROS)
    return network, tmp_path


def edited(paths, script):
    _, folder = paths
    begin = f'm = LoadModel("{folder}/old.dnn", format="cntk")\nSetDefaultModel(m)\n'
    text = f'{begin}{script}\nSaveModel(m, "{folder}/new.dnn")'
    edit(Text("edit.mel", text), {"ndlMacros": Text("ndlMacros", f'"{folder}/macros.ndl"')})
    return load_network(str(folder / "new.dnn"))


def run(network, name):
    return np.asarray(network.nodes[name].owner.eval({network.nodes["features"]: DATA}))


def value(network, name):
    return network.nodes[name].value


def test_a_model_that_is_only_saved_again_is_the_same(paths):
    network = edited(paths, "# nothing changes\n")
    assert network.roles == paths[0].roles
    assert set(network.nodes) == set(paths[0].nodes)
    np.testing.assert_array_equal(run(network, "L2.P"), run(paths[0], "L2.P"))


def test_what_is_added_to_a_model_in_double_precision_has_it_too(paths):
    function_of(build_network(Text("net.ndl", NET), {}, precision="double")).save(str(paths[1] / "old.dnn"))
    network = edited(paths, """
        New = Layer(L1.Y, 4, 4) ; center = Minus(features, Mean(features))
        SetInput(L2.T, 1, New.Y) ; SetInput(L1.T, 1, center)
    """)
    assert {node.dtype for node in network.nodes.values()} == {np.float64}


def test_a_model_of_single_samples_becomes_one_of_sequences_if_it_needs_them(paths):
    network = edited(paths, """
        before = PastValue(3, 1, L2.P, defaultHiddenActivation=0)
        both = Plus(before, L2.P)
        SetInput(ce, 1, both)
    """)
    steps = [DATA, 2 * DATA]
    outputs = [run(paths[0], "L2.P").reshape(3), np.asarray(paths[0].nodes["L2.P"].owner.eval({
        paths[0].nodes["features"]: steps[1]})).reshape(3)]
    (result,) = network.nodes["both"].owner.eval({network.nodes["features"]: [np.concatenate(steps)]})
    np.testing.assert_allclose(result.reshape(2, 3), [outputs[0], outputs[0] + outputs[1]], rtol=1e-6)
    assert {len(network.nodes[name].dynamic_axes) for name in ("features", "labels", "L1.Y", "ce")} == {2}
    assert network.roles == paths[0].roles


def test_a_layer_of_a_macro_is_put_between_two_others(paths):
    network = edited(paths, """
        HDim = 4
        New = Layer(L1.Y, HDim, HDim)
        SetInput(L2.T, 1, New.Y)
    """)
    assert network.inputs["L2.T"] == ["L2.W", "New.Y"]
    old = paths[0]
    np.testing.assert_array_equal(value(network, "L1.W"), value(old, "L1.W"))

    def layer(x, name):
        return 1 / (1 + np.exp(-(x @ value(network, name)).reshape(1, -1)))

    hidden = layer(layer(DATA, "L1.W"), "New.W")
    np.testing.assert_allclose(run(network, "L2.P").reshape(1, -1), hidden @ value(network, "L2.W"), rtol=1e-5)


def test_names_with_a_star_are_all_that_match(paths):
    network = edited(paths, """
        Copy(L1.*, L3.*)
        SetInput(L3.T, 1, features)
        SetInput(L2.*T, 1, l3.y)
        Remove(L1.*)
    """)
    assert not any(name.startswith("L1.") for name in network.nodes)
    np.testing.assert_array_equal(run(network, "L2.P"), run(paths[0], "L2.P"))


def test_roles_and_gradients_are_properties(paths):
    network = edited(paths, """
        SetProperty(ce, "criterion", false)
        err = ErrorPrediction(labels, L2.P, tag=eval)
        SetProperty(L1.Y, Output, true)
        SetProperty(L1.*, needsGradient, false)  # issue 2027 of CNTK
    """)
    assert network.roles["criterion"] == []
    assert network.roles["evaluation"] == ["err"]
    assert network.roles["output"] == ["L2.P", "L1.Y"]
    assert network.nodes["L1.W"].is_constant
    np.testing.assert_array_equal(run(network, "L2.P"), run(paths[0], "L2.P"))


def test_parameters_that_are_copied_learn_as_they_did_or_as_they_are_told(paths):
    """Issue 2027 of CNTK: values of another model, whose first layer is frozen."""
    network = edited(paths, f"""
        SetProperty(L2.B, needsGradient, false)
        o = LoadModel("{paths[1]}/old.dnn", format="cntk")
        Copy(o.L1.*, m.L1.*, copy=value)
        SetProperty(m.L1.*, needsGradient, false)
        Copy(o.L2.*, m.L2.*, copy=value)
    """)
    learned = {name for name, variable in network.nodes.items() if variable.is_parameter}
    assert learned == {"L2.W"} and network.nodes["L1.W"].is_constant and network.nodes["L2.B"].is_constant
    np.testing.assert_array_equal(run(network, "L2.P"), run(paths[0], "L2.P"))


def test_factors_of_learning_rates_are_copied(tmp_path):
    text = NET.replace("W = Parameter(rows, cols)", "W = Parameter(rows, cols, learningRateMultiplier=0.5)")
    network = build_network(Text("net.ndl", text), {})
    function_of(network).save(str(tmp_path / "old.dnn"))
    (tmp_path / "macros.ndl").write_text(MACROS)
    freezing = "SetProperty(L1.W, needsGradient, false)"
    copied = edited((network, tmp_path), f"{freezing}\nSetProperty(L2.W, needsGradient, true)")
    assert network.rates == {"L1.W": 0.5, "L2.W": 0.5} and copied.rates == {"L2.W": 0.5}
    rates = 'SetProperty(L1.*, "learningRateMultiplier", "0")\nSetProperty(L2.W, learningRateMultiplier, 0.1)'
    changed = edited((network, tmp_path), rates)
    assert changed.rates == {"L2.W": 0.1} and changed.nodes["L1.B"].is_constant and changed.nodes["L2.B"].is_parameter


def test_a_criterion_is_removed_and_an_input_replaced(paths):
    network = edited(paths, """
        Remove(ce)
        Rename(labels, oldLabels)
        labels = Input(3, tag=label)
        Delete(oldLabels)
        ce = SquareError(labels, L2.P, tag=criteria)
    """)
    assert network.operations["ce"] == "SquareError"
    assert network.roles["label"] == ["labels"]


def test_a_dump_lists_nodes_and_values(paths):
    _, folder = paths
    edited(paths, f'Dump(m, "{folder}/dump.txt", includeData=true)')
    lines = (folder / "dump.txt").read_text().splitlines()
    assert "L1.T=Times ( L1.W , features )" in lines
    at = lines.index("L1.W=LearnableParameter [4,3]   learningRateMultiplier=1.000000  NeedsGradient=true")
    row = [float(each) for each in lines[at + 1].split()]
    np.testing.assert_allclose(row, value(paths[0], "L1.W")[:, 0], rtol=1e-6)


@pytest.mark.parametrize(("script", "says"), [
    ("SetInput(L2.X, 1, features)", "no node is called 'L2.X'"),
    ("SaveModel(m=\"new.dnn\")", "1 arguments are needed, 0 are given"),
    ("Remove(*)\nSaveModel(m, \"new.dnn\")", "the network has no nodes that compute something"),
    ("SetInput(L2.T, 5, features)", "has 2 inputs, counted from 0"),
    ("SetInput(L2.T, 1, L1.*)", "name one"),
    ("Remove(L1.Y)", "still needs 'L1.Y'"),
    ("SetProprty(ce, criterion, false)", "did you mean 'SetProperty'"),
    ("SetProperty(ce, colour, true)", "unknown property 'colour'"),
    ("SetInput(L2.T, 1", "not closed"),
    ("SaveModel(n, \"x.dnn\")", "there is no model 'n'"),
    ("x = Tnh(L1.Y)", "did you mean 'Tanh'"),
])
def test_mistakes_are_named_with_their_place(paths, script, says):
    with pytest.raises(ConfigError) as error:
        edited(paths, script)
    assert says in str(error.value)
    assert "edit.mel, line" in str(error.value)


def test_a_snippet_of_a_file_is_added_to_a_model(paths):
    _, folder = paths
    snippet = "first = [ Top = Sigmoid(L2.P) ]\nsecond = [ Wide = Layer(L1.Y, 5, 4) ]\nrun = first"
    (folder / "more.ndl").write_text(snippet)
    network = edited(paths, f'LoadNDLSnippet(m, "{folder}/more.ndl")')
    np.testing.assert_allclose(run(network, "Top"), 1 / (1 + np.exp(-run(network, "L2.P"))), rtol=1e-6)
    assert "Wide.Y" not in network.nodes
    network = edited(paths, f'LoadNDLSnippet(m, "{folder}/more.ndl", section=second)')
    assert "Top" not in network.nodes and network.nodes["Wide.Y"].shape[-2:] in ((5,), (5, 1), (1, 5))
    with pytest.raises(ConfigError, match="there is no section 'frist': did you mean 'first'"):
        edited(paths, f'LoadNDLSnippet(m, "{folder}/more.ndl", section=frist)')


def test_nodes_are_copied_between_models(paths):
    """As the manual says: names begin with that of a model, and later models do not become the default one."""
    network = edited(paths, """
        other = [
            features = Input(3, tag=feature) ; V = Parameter(4, 3) ; U = Parameter(4, 3) ; T = Times(V, features)
            Y = Sigmoid(T) ; Z = Times(U, features)
        ]
        Copy(L1.W, other.V, copy=value)
        Copy(other.V, other.U, copy=value)
        Copy(other.Y, New.Y)
        Copy(other.T, New.T)
        Copy(other.V, New.V)
        SetInput(New.T, 0, New.V)
        SetInput(New.T, 1, features)
        SetInput(New.Y, 0, New.T)
        SetInput(L2.T, 1, New.Y)
        SaveModel(other, "$path$")
    """.replace("$path$", f"{paths[1]}/other.dnn"))
    assert network.inputs["L2.T"] == ["L2.W", "New.Y"] and "V" not in network.nodes
    other = load_network(str(paths[1] / "other.dnn"))
    for copy in (value(network, "New.V"), value(other, "V"), value(other, "U")):
        np.testing.assert_array_equal(copy, value(paths[0], "L1.W"))


def test_one_node_is_copied_to_several_and_all_of_a_model_to_another(paths):
    script = """
        m2 = LoadModel("$path$")
        ten = Parameter(4, 3, init=fixedValue, value=10)
        Copy(ten, m2.L1.*W, copy=value)
        Copy(m2.*, *)
    """.replace("$path$", f"{paths[1]}/old.dnn")
    network = edited(paths, script)
    assert (value(network, "L1.W") == 10).all() and network.inputs["L1.T"] == ["L1.W", "features"]
    np.testing.assert_array_equal(value(network, "L2.W"), value(paths[0], "L2.W"))
    assert run(network, "L2.P").shape == run(paths[0], "L2.P").shape


def test_a_layer_that_is_overwritten_keeps_its_other_inputs(paths):
    network = edited(paths, "S = Layer(L1.Y, 4, 4)\nS2 = Layer(S, 4, 4)\nSetInput(L2.T, 1, S2.Y)\nCopy(S.*, S2.*)")
    assert network.inputs["S2.T"] == ["S2.W", "S.Y"]
    np.testing.assert_array_equal(value(network, "S2.W"), value(network, "S.W"))


def test_a_command_may_follow_a_semicolon(paths):
    network = edited(paths, "New = Layer(L1.Y, 4, 4) ; SetInput(L2.T, 1, New.Y); Rename(L2.T, Product)")
    assert network.inputs["Product"] == ["L2.W", "New.Y"]


def test_a_subtree_is_copied_with_its_inputs_to_other_names(paths):
    network = edited(paths, "CopySubTree(L1.Y, m, copy.)\nCopySubTree(L1.*, M1.*)")
    assert network.inputs["copy.L1.T"] == ["copy.L1.W", "copy.features"]
    assert network.inputs["L1.T"] == ["L1.W", "features"] and network.inputs["M1.T"] == ["M1.W", "features"]
    assert network.nodes["copy.features"].shape == (3,)
    np.testing.assert_array_equal(value(network, "M1.W"), value(paths[0], "L1.W"))


def test_nodes_of_another_model_are_dumped(paths):
    _, folder = paths
    edited(paths, f"other = [ V = Parameter(4, 3) ; S = SumElements(V) ]\nDumpNode(other.V, \"{folder}/logs/v.txt\")")
    assert (folder / "logs" / "v.txt").read_text().startswith("V=LearnableParameter [4,3]")


def test_a_node_may_take_the_name_of_one_that_was_renamed(paths):
    network = edited(paths, """
        Size = 3
        Rename(features, before)
        features = Input(Size, tag=feature)
        SetInput(L1.T, 1, features)
        Delete(before)
    """)
    assert network.roles["feature"] == ["features"] and "before" not in network.nodes
    np.testing.assert_array_equal(run(network, "L2.P"), run(paths[0], "L2.P"))


def test_inputs_without_a_use_are_kept(paths):
    network = edited(paths, "Delete(ce)\n")
    assert network.roles["label"] == ["labels"] and network.nodes["labels"].is_input
