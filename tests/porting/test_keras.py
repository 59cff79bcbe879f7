"""Keras 3 as a target: its own layers, several arguments as a list, and training with `fit`."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.porting import TARGETS, PortError, port

from .packages import python_with, run
from .test_porting import images, uneven_windows
from .test_sequences import cells, tagger, upsampled


def source(model):
    return TARGETS["keras"].write(model, "A model.")[0]


def test_recurrences_are_layers_of_keras():
    text = source(cells())
    for line in ("self.gru = layers.GRU(3, return_sequences=True, reset_after=False)", "initial_state=[",
                 "layers.LSTM(2, return_sequences=True)",
                 'layers.SimpleRNN(2, return_sequences=True, activation="relu")'):
        assert line in text
    assert "self.embedding = Embedding(7, 5)" in source(tagger())


def test_padding_is_that_of_keras_where_it_can_be():
    text = source(images())
    assert text.count('layers.Conv2D(4, (3, 3), padding="same", data_format="channels_first")') == 1
    assert "layers.ZeroPadding2D(((2, 1), (2, 1))" in text  # Keras would pad by 1 and 2
    assert "layers.Cropping2D(" in source(upsampled())
    assert "ops.max_pool(" in source(uneven_windows())


def test_several_arguments_are_a_list():
    assert "    def call(self, inputs, training=None):\n        words, lengths = inputs\n" in source(tagger())
    assert "    def call(self, features, training=None):\n" in source(images())


def test_layers_do_not_cover_what_models_of_the_library_have():
    x = C.input_variable(3)
    model = C.layers.Dense(2, name="output")(C.layers.Dense(2, name="layers")(x))
    text = source(model)
    assert "self.layers_1 = layers.Dense(2)" in text and "self.output_1 = layers.Dense(2)" in text
    assert "self.train_1 = nn.Linear" in TARGETS["torch"].write(C.layers.Dense(2, name="train")(x), "A model.")[0]


def test_a_convolution_that_keras_has_not_is_refused_by_its_node():
    x = C.input_variable((1, 20, 20))
    model = C.layers.Convolution2D((3, 3), 2, strides=2, dilation=2, name="sparse_windows")(x)
    with pytest.raises(PortError, match=r"Convolution.*strides and dilation"):
        source(model)


@pytest.mark.timeout(600)
def test_a_ported_model_can_be_trained_with_fit(tmp_path):
    python = python_with("keras")
    port(C.dropout(tagger(), 0.5), "keras", tmp_path / "net")
    words, labels = tmp_path / "words.npy", tmp_path / "labels.npy"
    random = np.random.default_rng(0)
    np.save(words, random.integers(7, size=(4, 5)).astype(np.int32))
    np.save(labels, random.normal(size=(4, 5, 3)).astype(np.float32))
    script = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import numpy as np
from net import load
model = load()
model.compile(optimizer="adam", loss="mse")
inputs, labels = [np.load({str(words)!r}), np.full(4, 5, "int32")], np.load({str(labels)!r})
losses = model.fit(inputs, labels, epochs=3, verbose=0).history["loss"]
assert losses[2] < losses[0], losses
dropped = np.asarray(model(inputs, training=True) == 0).mean()
assert 0.2 < dropped < 0.8 and not np.any(model(inputs) == 0), dropped
"""
    result = run(python, "-c", script)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_model_without_inputs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a Keras model takes inputs, and this one has none"):
        port(C.times(C.parameter(init=np.eye(2)), C.parameter(init=np.eye(2))), "keras", tmp_path / "net")
    assert not (tmp_path / "net").exists()
