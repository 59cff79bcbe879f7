"""Actions on models that are trained: export, and statistics of batch normalization."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.language import build_network
from cntkjax.brainscript.models import function_of, load_network
from cntkjax.configuration.source import Text

NETWORK = """
    x = Input {3}
    y = BatchNormalizationLayer {} (x)
    z = BatchNormalizationLayer {} (ParameterTensor {(2 : 3)} * y)
    p = Softmax (z)
    featureNodes = (x) ; outputNodes = (p)
"""
CONFIG = """
command = Do
modelPath = "net.dnn"
reader = [ readerType = "CNTKTextFormatReader" ; file = "data.ctf" ; input = [ x = [ dim = 3 ; format = "dense" ] ] ]
Do = [ action = $what$ ; minibatchSize = 10 ]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Runs an action on the model; returns the data and the log."""
    monkeypatch.chdir(tmp_path)
    function_of(build_network(Text("net.bs", NETWORK), {})).save("net.dnn")
    (tmp_path / "a.cntk").write_text(CONFIG)
    data = np.random.default_rng(0).normal(2, 3, (40, 3)).round(3)
    (tmp_path / "data.ctf").write_text("".join(f"|x {' '.join(map(str, row))}\n" for row in data))

    def run(*arguments):
        status = main(["configFile=a.cntk", *arguments])
        log = capfd.readouterr().err
        assert status == 0, log
        return data, log

    return run


def statistics(network, name):
    """The running mean and variance of a batch normalization, flat."""
    return [np.asarray(v.value).ravel() for v in network.nodes[name].owner.inputs[3:5]]


def test_statistics_of_batch_normalization_are_averages_over_minibatches_layer_by_layer(run):
    data, log = run("what=bnstat", "Do=[itersPerNode=3]")
    network = load_network("net.dnn.PBN")
    first, second = [name for name, operation in network.operations.items() if operation == "BatchNormalization"][::-1]
    if network.nodes[first].shape != (3,):
        first, second = second, first
    assert log.index(f"statistics of {first}") < log.index(f"statistics of {second}")
    used = data[:30].reshape(3, 10, 3)
    np.testing.assert_allclose(statistics(network, first)[0], used.mean(1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics(network, first)[1], used.var(1).mean(0), rtol=1e-5)
    x = network.nodes["x"]
    (operand, *_) = network.nodes[second].owner.inputs
    below = operand.owner.eval({x: data[:30].astype(np.float32)}).reshape(3, 10, 2)
    np.testing.assert_allclose(statistics(network, second)[0], below.mean(1).mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics(network, second)[1], below.var(1).mean(0), rtol=1e-4)


def test_statistics_inside_the_blocks_of_a_python_model_are_set(run):
    x = C.input_variable(3, name="x")
    layers = [C.layers.BatchNormalization(name="norm"), C.layers.Dense(2)]
    inside = C.placeholder()
    C.as_block(C.layers.Sequential(layers)(inside), [(inside, x)], "Layers", "z").save("net.dnn")
    data, _ = run("what=bnstat", "Do=[itersPerNode=3]")
    network = load_network("net.dnn.PBN")
    assert network.roles["output"] == ["z"]
    np.testing.assert_allclose(statistics(network, "norm")[0], data[:30].mean(0), rtol=1e-5)


def test_an_exported_model_gives_the_same_values_in_onnx_runtime(run):
    onnxruntime = pytest.importorskip("onnxruntime")
    data, log = run("what=exportModel")
    assert "Nodes p are written to net.dnn.onnx" in log
    session = onnxruntime.InferenceSession("net.dnn.onnx", providers=["CPUExecutionProvider"])
    values = data[:5].astype(np.float32)
    (found,) = session.run(None, {session.get_inputs()[0].name: values})
    network = load_network("net.dnn")
    expected = network.nodes["p"].owner.eval({network.nodes["x"]: values})
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=1e-5)
