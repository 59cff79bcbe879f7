"""Networks made from networks: loading, cloning and editing."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import combine
from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.language import build_network
from cntkjax.brainscript.models import function_of, load_network
from cntkjax.configuration.source import ConfigError, Text

TWO_LAYERS = """
    x = Input {3}
    W1 = ParameterTensor {(4 : 3)} ; W2 = ParameterTensor {(2 : 4)}
    h = Sigmoid (W1 * x)
    z = W2 * h
    featureNodes = (x) ; outputNodes = (z)
"""
LOOP = """
    x = Input {2}
    W = ParameterTensor {(2 : 2)}
    h = Tanh (x + W * PastValue (2, h, defaultHiddenActivation=0))
    y = 2 .* h
    outputNodes = (y)
"""
DATA = np.array([[1, -2, 3]], np.float32)


def build(text, **options):
    return build_network(Text("net.bs", text), options.pop("scope", {}), **options)


@pytest.fixture
def model(tmp_path):
    def save(text):
        path = tmp_path / "model.dnn"
        network = build(text)
        function_of(network).save(str(path))
        return network, path

    return save


def run(network, name, data=DATA, argument="x"):
    return np.asarray(network.nodes[name].owner.eval({network.nodes[argument]: data}))


def test_a_network_that_is_loaded_is_the_one_that_was_saved(model):
    before, path = model(TWO_LAYERS)
    after = build(f"(BS.Network.Load ('{path}'))")
    assert after.roles == before.roles
    assert after.operations == before.operations
    np.testing.assert_array_equal(run(after, "z"), run(before, "z"))


def test_a_new_network_may_use_nodes_and_dimensions_of_a_loaded_one(model):
    before, path = model(TWO_LAYERS)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        W3 = ParameterTensor {{(5 : old.h.dim)}}
        y = W3 * old.h
        outputNodes = (y)
    """)
    assert network.nodes["W3"].shape == (4, 5)
    assert {"x", "W1", "h"} <= set(network.nodes)
    assert "z" not in network.nodes
    np.testing.assert_array_equal(run(network, "h"), run(before, "h"))


@pytest.mark.parametrize(("mode", "trained"), [("learnable", 3), ("constant", 1), ("shared", 3)])
def test_a_cloned_function_computes_what_the_original_does_on_another_input(model, mode, trained):
    before, path = model(TWO_LAYERS)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        f = BS.Network.CloneFunction (old.x, old.z, parameters="{mode}")
        features = Input {{3}}
        z = f (features)
        V = ParameterTensor {{(2 : 2)}}
        out = V * z
        outputNodes = (out)
    """)
    assert "x" not in network.nodes
    assert len(function_of(network).parameters) == trained
    np.testing.assert_array_equal(run(network, "z", argument="features"), run(before, "z"))


def test_what_is_constant_is_so_in_a_clone_that_learns(model):
    """Running means and factors are no learnable parameters, whatever CNTK calls their operation."""
    _, path = model("""
        x = Input {3} ; z = Constant (2) .* LinearLayer {4} (BatchNormalizationLayer {} (x)) ; outputNodes = (z)
    """)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        features = Input {{3}}
        z = BS.Network.CloneFunction (old.x, old.z) (features)
        outputNodes = (z)
    """)
    assert len(function_of(network).parameters) == 4 and len(function_of(network).constants) == 4


@pytest.mark.parametrize(("input", "rank"), [("3", 0), ("(4 : 4 : 3)", 2)])
def test_batch_normalization_in_a_constant_clone_has_the_running_mean_also_in_training(model, input, rank):
    before, path = model(f"""
        x = Input {{{input}}} ; z = Exp (BatchNormalizationLayer {{spatialRank={rank}}} (x)) ; outputNodes = (z)
    """)
    data = np.random.default_rng(0).normal(3, size=(5, *before.nodes["x"].shape)).astype(np.float32)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        features = Input {{{input}}}
        out = BS.Network.CloneFunction (old.x, old.z, parameters="constant") (features)
        outputNodes = (out)
    """)
    out = network.nodes["out"]
    _, trained = function_of(network).forward({network.nodes["features"]: data}, [out], keep_for_backward=[out])
    np.testing.assert_allclose(trained[out], run(before, "z", data), rtol=1e-5)


def test_a_record_of_outputs_is_cloned_to_a_record(model):
    before, path = model(TWO_LAYERS)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        f = BS.Network.CloneFunction ((old.x : old.W2), {{ hidden = old.h ; z = old.z }})
        features = Input {{3}} ; weights = ParameterTensor {{(7 : 4)}}
        result = f (features, weights)
        z = result.z ; h = result.hidden
    """)
    assert network.nodes["z"].shape == (7,)
    np.testing.assert_array_equal(run(network, "h", argument="features"), run(before, "h"))


def test_a_loop_is_cloned_as_a_loop(model):
    before, path = model(LOOP)
    network = build(f"""
        old = BS.Network.Load ("{path}")
        f = CloneFunction (old.x, old.y)
        features = Input {{2}}
        y = f (2 .* features)
        outputNodes = (y)
    """)
    data = np.random.default_rng(0).normal(size=(1, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(run(network, "y", data, "features"), run(before, "y", 2 * data), rtol=1e-6)


def test_edited_nodes_are_replaced_for_all_that_use_them(model):
    before, path = model(TWO_LAYERS)
    network = build(f"""(BS.Network.Edit (
        BS.Network.Load ("{path}"), (node => if node.name == "h" then Tanh (node.inputs[0]) else node), 0
    ))""")
    assert network.operations["h"] == "Tanh"
    assert network.roles == before.roles
    hidden = np.tanh(DATA @ before.nodes["W1"].value)
    np.testing.assert_allclose(run(network, "z"), hidden @ before.nodes["W2"].value, rtol=1e-5)


def test_nodes_with_dots_in_their_names_are_read_with_underscores(model):
    _, path = model("x = Input {2} ; f (x) = { a = Tanh (x) ; b = Sigmoid (a) } ; z = f (x).b ; outputNodes = (z)")
    assert build(f"old = BS.Network.Load ('{path}') ; y = ReLU (old.z_a)").inputs["y"] == ["z.a"]


@pytest.mark.parametrize(("text", "says"), [
    ("m = BS.Network.Load ('nowhere.dnn') ; z = m.z", "there is no model nowhere.dnn"),
    ("y = m.zz", "the network has no node 'zz'"),
    ("f = BS.Network.CloneFunction (m.x, m.z, parameters='frozen') ; y = f (m.x)", "'constant'"),
    ("f = BS.Network.CloneFunction (m.x, m.z) ; y = f (m.x, m.x)", "1 arguments, 2 are given"),
])
def test_mistakes_are_named_with_their_place(model, text, says):
    _, path = model(TWO_LAYERS)
    with pytest.raises(ConfigError) as error:
        build(text if "Load" in text else f"{text} ; m = BS.Network.Load ('{path}')")
    assert says in str(error.value)
    assert "net.bs, line 1" in str(error.value)


def test_what_is_computed_before_training_is_still_to_be_computed_in_a_saved_model(model):
    _, path = model("x = Input {2} ; z = Tanh (MeanVarNorm (x)) ; outputNodes = (z)")
    network = build(f"(BS.Network.Load ('{path}'))")
    assert sorted(network.statistics.values()) == [("InvStdDev", "x"), ("Mean", "x")]


def test_the_edit_action_writes_the_model_that_brainscript_describes(tmp_path):
    (tmp_path / "edit.cntk").write_text("""
        command = make:change
        make = [ action = edit ; outputModelPath = "a.dnn"
                 BrainScriptNetworkBuilder = {
                     x = Input {2} ; h = Tanh (x) ; z = Sigmoid (h) ; outputNodes = (z)
                 } ]
        change = [ action = edit ; editPath = "change.mel" ]
    """)
    script = 'm = LoadModel("a.dnn")\nSetInput(z, 0, x)\nRemove(h)\nSaveModel(m, "b.dnn")\n'
    (tmp_path / "change.mel").write_text(script)
    assert main([f"configFile={tmp_path}/edit.cntk", f"currentDirectory={tmp_path}"]) == 0
    network = load_network(str(tmp_path / "b.dnn"))
    assert set(network.nodes) == {"x", "z"}
    np.testing.assert_allclose(run(network, "z", DATA[:, :2]), 1 / (1 + np.exp(-DATA[:, :2])), rtol=1e-6)


def test_a_constant_clone_of_a_python_model_normalizes_with_its_running_statistics(tmp_path):
    x = C.input_variable(3, name="features")
    model = C.layers.Sequential([C.layers.Dense(4, name="h"), C.layers.BatchNormalization(name="norm")])(x)
    constants = {each.name: each for each in model.constants}
    constants["aggregate_mean"].value = np.arange(4, dtype=np.float32)
    constants["aggregate_variance"].value = np.full(4, 4, np.float32)
    model.save(str(tmp_path / "model.dnn"))
    network = build(f"""
        m = BS.Network.Load ('{tmp_path}/model.dnn')
        f = BS.Network.CloneFunction (m.features, m.norm, parameters='constant')
        x = Input {{3}} ; y = f (x) ; outputNodes = (y)
    """)
    data = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    y = combine([network.nodes["y"]])
    trained = y.forward({y.arguments[0]: data}, y.outputs, set(y.outputs))[1]  # as in training
    expected = (model.h.eval({model.h.arguments[0]: data}) - np.arange(4)) / np.sqrt(4 + 1e-5)
    np.testing.assert_allclose(trained[y.output], expected, rtol=1e-4, atol=1e-5)
    assert not y.parameters


def test_a_recurrent_layer_of_a_python_model_can_be_cloned(tmp_path):
    """Its block has two results, h and c."""
    x = C.sequence.input_variable(2, name="features")
    model = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(3)), C.layers.Dense(2, name="z")])(x)
    model.save(str(tmp_path / "model.dnn"))
    network = build(f"""
        m = BS.Network.Load ('{tmp_path}/model.dnn')
        f = BS.Network.CloneFunction (m.features, m.z) ; x = Input {{2}} ; y = f (x) ; outputNodes = (y)
    """)
    data = [np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)]
    y = combine([network.nodes["y"]])
    np.testing.assert_allclose(y.eval({y.arguments[0]: data}), model.eval({x: data}), rtol=1e-6)
    assert len(y.parameters) == 5


def value(network, name):
    return np.asarray(network.nodes[name].value)


DECODER = """
    labels = Input {4, tag='label'} ; start = Input {4, tag='feature'}
    inputSequence = Pass (start) ; labelSequence = Pass (labels)
    W = ParameterTensor {(4 : 4), init='gaussian', initValueScale=20}
    U = ParameterTensor {(4 : 4), init='gaussian', initValueScale=10}
    decoderHistoryHook = Pass (labelSequence)
    history = BS.Boolean.If (BS.Loop.IsFirst (labelSequence), start, BS.Loop.Previous (decoderHistoryHook))
    h = Tanh (W * history + U * BS.Loop.Previous (h))
    decoderHistoryFromOutput = Pass (Hardmax (W * h))
    scoreSequence = Pass (W * h)
    outputNodes = (scoreSequence)
"""


def test_a_greedy_decoder_feeds_back_its_own_output(model):
    trained, path = model(DECODER)
    decoder = build(f"(BS.Seq2Seq.GreedySequenceDecoderFrom (BS.Network.Load ('{path}')))")
    W, U = (value(trained, name) for name in "WU")
    decode = combine([decoder.nodes["decodeOut"]])
    labels, start = np.eye(4, dtype=np.float32)[[0, 2, 1, 3, 0, 1]], np.eye(4, dtype=np.float32)[[1] * 6]
    given = {v: [labels if v.name == "labels" else start] for v in decode.arguments}
    (found,) = decode.eval(given)
    h, history, expected = np.full(4, 0.1), start[0], []
    for _ in labels:
        h = np.tanh(history @ W + h @ U)
        expected.append((h @ W).argmax())
        history = np.eye(4)[expected[-1]]
    assert np.asarray(found).argmax(-1).ravel().tolist() == expected
    assert expected != labels.argmax(1).tolist()


SEARCHED = """
    rawLabels = Input {5, tag='label'} ; inputSequence = Pass (rawLabels)
    labelSequence = Pass (Slice (1, 0, rawLabels, axis=-1))
    labelSentenceStartEmbeddedScattered = BS.Sequences.Scatter (
        BS.Loop.IsFirst (labelSequence), BS.Sequences.First (rawLabels))
    W = ParameterTensor {(5 : 4), init='gaussian', initValueScale=10}
    U = ParameterTensor {(4 : 4), init='gaussian', initValueScale=4}
    V = ParameterTensor {(4 : 5), init='gaussian', initValueScale=10}
    beamSearchReorderHook = Pass (BS.Constants.OnesTensor (1:1))
    decoderHistoryHook = Pass (labelSequence)
    history = BS.Boolean.If (BS.Loop.IsFirst (labelSequence), labelSentenceStartEmbeddedScattered,
                             BS.Loop.Previous (decoderHistoryHook))
    h = Tanh (V * history + U * BS.Loop.Previous (h * beamSearchReorderHook))
    z = W * h
    criterionNodes = (ReduceLogSum (z) - TransposeTimes (labelSequence, z))
"""


def best_sequence(W, U, V, start, length, depth):
    """The best of the sequences that a beam keeps, with NumPy."""
    paths = [(0.0, [], np.full(4, 0.1))]
    for _ in range(length):
        found = []
        for score, words, state in paths:
            h = np.tanh((start if not words else np.eye(5)[words[-1]]) @ V + state @ U)
            z = h @ W
            found += [(score + value, [*words, word], h) for word, value in enumerate(z - np.log(np.exp(z).sum()))]
        paths = sorted(found, key=lambda path: -path[0])[:depth]
    return paths[0][1]


@pytest.mark.parametrize("depth", [2, 3])
def test_a_beam_search_finds_the_best_sequence_of_those_it_keeps(model, depth):
    trained, path = model(SEARCHED)
    decoder = build(f"(BS.Seq2Seq.BeamSearchSequenceDecoderFrom (BS.Network.Load ('{path}'), {depth}))")
    weights = [value(trained, name) for name in "WUV"]
    starts = np.eye(5, dtype=np.float32)
    data = [starts[[first, 0, 1, 2, 3, 4][:length]] for first, length in ((1, 6), (0, 4), (3, 5))]
    decode = combine([decoder.nodes["network.decodeOut"]])
    results = [np.asarray(each).argmax(-1).ravel().tolist() for each in decode.eval({decode.arguments[0]: data})]
    assert results == [best_sequence(*weights, each[0], len(each) - 1, depth) for each in data]
    assert results != [best_sequence(*weights, each[0], len(each) - 1, 1) for each in data]
    assert decoder.roles["output"] == ["network.inputsOut", "network.labelsOut", "network.decodeOut"]
