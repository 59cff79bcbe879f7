"""Where epochs end in the data, and how minibatches are cut."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD, ConfigError
from tests.sgd.problems import RATE, X, Y, regression, trained


def test_epochs_have_epochSize_samples_or_are_sweeps():
    history = trained(**RATE, epochSize=10, maxEpochs=3, minibatchSize=4)[1]
    assert [(e.samples, e.minibatches) for e in history] == [(10, 3)] * 3
    assert [(e.samples, e.minibatches) for e in trained(**RATE, maxEpochs=3, minibatchSize=5)[1]] == [(24, 5)] * 3


@pytest.mark.parametrize(("size", "epochs"), [
    (0, [(24, 3)] * 3), (16, [(16, 2)] * 3), (10, [(10, 1), (10, 1), (10, 2)])
])
def test_minibatches_of_a_file_end_with_the_epoch(tmp_path, size, epochs):
    path = tmp_path / "data.ctf"
    rows = [f"|x {' '.join(map(str, x))} |y {y[0]}" for x, y in zip(X, Y, strict=True)]
    path.write_text("\n".join(rows) + "\n")
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 3), y=C.io.StreamDef("y", 1))
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(path), streams), randomize=False)
    weights, history = trained(None, source, **RATE, epochSize=size, maxEpochs=3, minibatchSize=10)
    assert [(e.samples, e.minibatches) for e in history] == epochs
    assert source.get_checkpoint_state() == {"minibatchSourcePosition": sum(n for n, _ in epochs)}
    expected = trained(None, (X, Y), **RATE, epochSize=size, maxEpochs=3, minibatchSize=10)[0]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_truncated_needs_a_source_that_cuts_sequences(tmp_path):
    (tmp_path / "d.ctf").write_text("".join(f"{i} |x {t}\n" for i in range(4) for t in range(6)))
    stream = C.io.StreamDefs(x=C.io.StreamDef("x", 1))

    def train(length, **block):
        source = C.io.MinibatchSource(C.io.CTFDeserializer(str(tmp_path / "d.ctf"), stream), truncation_length=length)
        x = C.sequence.input_variable(1, name="x")
        h = C.layers.Recurrence(C.layers.RNNStep(2))(x)
        loss = C.squared_error(C.times(h, C.parameter((2, 1))), x)
        return SGD(maxEpochs=1, minibatchSize=3, epochSize=24, **RATE, **block).train(loss, source, progress_writers=[])

    assert train(3, truncated=True)[0].minibatches > train(0)[0].minibatches
    with pytest.raises(ConfigError, match="truncated = true needs a source that cuts sequences"):
        train(0, truncated=True)
    with pytest.raises(ConfigError, match="the source cuts sequences, but truncated = false"):
        train(3)


def test_the_end_of_the_data_is_reported():
    loss = regression()
    source = C.io.MinibatchSourceFromData({"x": X, "y": Y}, max_samples=30)
    with pytest.raises(RuntimeError, match="the data ended before epoch 3"):
        SGD(maxEpochs=3, minibatchSize=4, **RATE).train(loss, source, progress_writers=[])
