"""Keras 2 on its CNTK backend, in processes of their own; numbers are those of Keras 2.3.1 on CNTK 2.7."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cntkjax import keras2

PATHS = str(Path(keras2.__file__).parents[1]), os.environ.get("PYTHONPATH")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, PATHS))}
PRELUDE = """
import numpy as np, sys
from keras.layers import *
from keras.models import Sequential, load_model

def trained(layers, features, labels, loss, optimizer):
    model, random = Sequential(layers), np.random.RandomState(7)
    model.set_weights([(random.randn(*w.shape) * 0.3).astype("f") for w in model.get_weights()])
    model.compile(optimizer, loss)
    losses = model.fit(features, labels, batch_size=2, epochs=2, verbose=0, shuffle=False).history["loss"]
    return model, [*losses, *model.predict(features, batch_size=2)[0]]

classes = np.eye(3, dtype="f")[np.random.RandomState(4).randint(0, 3, 6)]
sequences = np.random.RandomState(2).rand(6, 5, 4).astype("f")
images = np.random.RandomState(1).rand(6, 8, 8, 3).astype("f")
words = np.random.RandomState(3).randint(1, 10, (6, 5))
"""
CROSS_ENTROPY = "'categorical_crossentropy'"


def has_keras2():
    try:
        keras2._check_version()
    except ImportError:
        return False
    return True


needs_keras2 = pytest.mark.skipif(not has_keras2(), reason="needs Keras 2: pip install 'cntkjax[keras2]'")


def run(folder, code, *arguments):
    """The lines that a script prints last."""
    script = folder / "script.py"
    script.write_text(PRELUDE + code)
    command = [sys.executable, "-m", "cntkjax.keras2", script, *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_keras2
@pytest.mark.parametrize("layers, features, optimizer, expected", [
    ("[Conv2D(4, 3, activation='relu', input_shape=(8, 8, 3)), MaxPooling2D(), Flatten(), Dense(3, "
     "activation='softmax')]",
     "images", "adam", [1.651599, 1.576325, 0.141878, 0.8297836, 0.0283384]),
    ("[Conv2DTranspose(4, 3, strides=2, padding='same', input_shape=(8, 8, 3)), GlobalAveragePooling2D(), "
     "Dense(3, activation='softmax')]",
     "images", "adagrad", [1.131073, 1.115779, 0.3581918, 0.348937, 0.2928713]),
    ("[SeparableConv2D(4, 3, input_shape=(8, 8, 3)), BatchNormalization(), GlobalMaxPooling2D(), Dense(3, "
     "activation='softmax')]",
     "images", "rmsprop", [1.100423, 1.089408, 0.340751, 0.2460209, 0.4132281]),
    ("[Embedding(10, 4, input_length=5), Bidirectional(LSTM(3, return_sequences=True)), "
     "TimeDistributed(Dense(4)), GlobalMaxPooling1D(), Dense(3, activation='softmax')]",
     "words", "adam", [1.13519, 1.132713, 0.3514578, 0.2333171, 0.415225]),
    ("[GRU(4, return_sequences=True, input_shape=(None, 4)), SimpleRNN(4), Dense(3, activation='softmax')]",
     "sequences", "nadam", [1.129815, 1.1264, 0.2228373, 0.3925396, 0.384623]),
    ("[Masking(0.7, input_shape=(5, 4)), LSTM(4, unroll=True), Dropout(0.0), Dense(3, "
     "activation='softmax')]",
     "sequences", "adamax", [1.16993, 1.167421, 0.1795219, 0.3914999, 0.4289782]),
    ("[Conv1D(4, 3, activation='elu', input_shape=(5, 4)), LeakyReLU(0.1), Flatten(), Dense(3, "
     "activation='softmax')]",
     "sequences", "adadelta", [1.166933, 1.16371, 0.443395, 0.3230068, 0.2335982]),
])  # fmt: skip
def test_models_train_as_on_cntk(layers, features, optimizer, expected, tmp_path):
    code = f"print(*trained({layers}, {features}, classes, {CROSS_ENTROPY}, {optimizer!r})[1])"
    np.testing.assert_allclose([float(x) for x in run(tmp_path, code)[-1].split()], expected, rtol=2e-5)


@needs_keras2
def test_weights_of_its_recurrent_layers_are_those_of_layers_here(tmp_path):
    lines = run(tmp_path, """
import cntk as C
R, L = C.layers.Recurrence, C.layers
model = Sequential([
    Bidirectional(GRU(3, return_sequences=True, bias_initializer="normal", name="in"), input_shape=(5, 4)),
    SimpleRNN(2, return_sequences=True, bias_initializer="normal", name="rnn"),
    Dense(3, name="out"),
])
model.save_weights(sys.argv[1])
z = L.Sequential([
    (R(L.GRU(3, name="forward_in")), R(L.GRU(3, name="backward_in"), go_backwards=True)), C.splice,
    R(L.RNNStep(2, activation=C.tanh, name="rnn")), L.Dense(3, name="out"),
])(C.sequence.input_variable(4))
print(C.load_weights(z, sys.argv[1]), np.abs(z.eval(list(sequences)) - model.predict(sequences)).max() < 1e-6)
""", tmp_path / "w.h5")
    assert lines[-1] == "[] True"


@needs_keras2
def test_a_saved_model_is_loaded_and_its_script_gets_its_arguments(tmp_path):
    code = f"""
layers = [LSTM(4, input_shape=(5, 4)), Dense(3, activation="softmax")]
model, _ = trained(layers, sequences, classes, {CROSS_ENTROPY}, "adam")
model.save(sys.argv[1])
model.save_weights(sys.argv[2])
again = load_model(sys.argv[1])
again.load_weights(sys.argv[2])
print(float(abs(again.predict(sequences) - model.predict(sequences)).max()))
"""
    assert run(tmp_path, code, str(tmp_path / "model.h5"), str(tmp_path / "weights.h5"))[-1] == "0.0"


@needs_keras2
def test_models_are_saved_to_streams_and_files_without_a_mode_and_validated_in_chosen_epochs(tmp_path):
    """As Keras's own tests do, with what Python and h5py had then."""
    code = f"""
import io, h5py
model, _ = trained([Dense(3, activation="softmax", input_shape=(4,))], sequences[:, 0], classes, {CROSS_ENTROPY}, "sgd")
data = sequences[:, 0], classes
history = model.fit(*data, epochs=4, validation_data=data, validation_freq=[2, 3], verbose=0).history
stream = io.BytesIO()
model.save(stream)
with h5py.File(sys.argv[1]) as file:
    model.save(file)
loaded = load_model(io.BytesIO(stream.getvalue())), load_model(sys.argv[1])
print(len(history["val_loss"]), *[float(abs(m.predict(data[0]) - model.predict(data[0])).max()) for m in loaded])
"""
    assert run(tmp_path, code, str(tmp_path / "model.h5"))[-1] == "2 0.0 0.0"


@needs_keras2
def test_the_summary_of_a_model_shows_numbers(tmp_path):
    layers = "[Conv1D(4, 3, input_shape=(5, 4)), Flatten(), Dense(3, activation='softmax')]"
    lines = run(tmp_path, f"trained({layers}, sequences, classes, {CROSS_ENTROPY}, 'sgd')[0].summary()")
    assert [line for line in lines if "Flatten" in line and "(None, 12)" in line]


@needs_keras2
def test_the_code_of_the_page_runs(tmp_path):
    docs = Path(__file__).parents[1] / "docs"
    command = [sys.executable, docs / "site" / "executed.py", docs / "keras.md"]
    subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, check=True)


@pytest.mark.parametrize("version, text", [
    ("3.6.0", "Keras 3.6.0 has no CNTK backend"), ("2.10.0", "Keras 2.10.0 has no"), (None, "Keras is not installed"),
])
def test_a_keras_without_the_backend_is_an_error_that_says_what_to_install(version, text, monkeypatch, tmp_path):
    import importlib.metadata

    def found(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    with pytest.raises(ImportError, match=rf"{text}[\s\S]*pip install keras==2.3.1"):
        keras2.prepare()


def test_texts_of_attributes_are_bytes_again():
    assert keras2._as_bytes("a") == b"a" and keras2._as_bytes(3) == 3
    assert keras2._as_bytes(np.array(["a", "b"], object)).tolist() == [b"a", b"b"]
    assert not keras2._as_bytes(np.array([]))
