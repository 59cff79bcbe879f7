"""Models of sequences and the golden models are ported; some are refused by a node."""

from pathlib import Path

import pytest

import cntkjax as C
from cntkjax.porting import PortError, port

from .packages import passed, python_with

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
# What has no counterpart: random numbers, assignments, graphs of labels, and images by places of maxima.
REFUSED = {
    "conv_sequential": "ConvolutionSequenceShape", "ctc": "LabelsToGraph", "pooling": "Unpooling",
    "random_ops": "RandomDistribution", "random_sampling": "RandomSample", "softmax_axes": "Argmax",
    "user_function": "",
}


def words(sparse=False):
    return C.sequence.input_variable(7, is_sparse=sparse, name="words")


def tagger():
    """Both directions, an embedding and a layer for each word."""
    embedded = C.layers.Embedding(5)(words(sparse=True))
    forward, backward = (C.layers.Recurrence(C.layers.LSTM(4), go_backwards=b)(embedded) for b in (False, True))
    return C.layers.Dense(3)(C.splice(forward, backward))


def cells():
    """Cells that libraries have, and cells that are written step by step."""
    x = words()
    gru = C.layers.Recurrence(C.layers.GRU(3))(x)
    sigmoid = C.layers.Recurrence(C.layers.RNNStep(3, activation=C.sigmoid), go_backwards=True)(gru)
    peepholes = C.layers.Recurrence(C.layers.LSTM(3, use_peepholes=True, enable_self_stabilization=True))(x)
    started = C.layers.Recurrence(C.layers.LSTM(2), initial_state=0.3)(x)
    return C.combine([sigmoid, peepholes, C.layers.Recurrence(C.layers.RNNStep(2, activation=C.relu))(started)])


def steps():
    """Steps that are selected, reduced, delayed and spread."""
    x = words()
    return C.combine([
        C.sequence.first(x), C.sequence.last(2 * x), C.sequence.reduce_sum(x), C.sequence.reduce_max(x),
        C.sequence.softmax(x), C.sequence.past_value(x, 0.5, 2), C.sequence.future_value(x, None, 1),
        C.sequence.slice(x, 1, 0), C.sequence.broadcast_as(C.sequence.last(x), x) - x,
        C.layers.Fold(C.plus)(x), C.sequence.is_first(x), C.layers.RecurrenceFrom(C.plus)(C.sequence.last(x), x),
    ])


def losses():
    """Criteria over the steps of sequences."""
    x, label = words(), C.sequence.input_variable(3, name="label")
    z = C.layers.Dense(3)(x)
    return C.combine([C.cross_entropy_with_softmax(z, label), C.classification_error(z, label),
                      C.squared_error(z, x[:3])])


def upsampled():
    x = C.input_variable((2, 4, 5))
    layer = C.layers.ConvolutionTranspose2D
    pooled = C.pooling(x[:, :, :4], C.MAX_POOLING, (2, 2), (2, 2))
    return C.combine([C.unpooling(2 * pooled, x[:, :, :4], C.MAX_UNPOOLING, (2, 2), (2, 2)),
                      layer((3, 3), 3, strides=2, pad=True)(x), layer((2, 3), 2, strides=(1, 2))(x),
                      C.pad(x, [(0, 0), (1, 2), (2, 1)], mode=C.ops.REFLECT_PAD), C.pad(x, [(0, 0), (1, 2), (0, 1)])])


def negatives():
    """The cosine with other samples of the minibatch."""
    x, y = C.input_variable(4), C.input_variable(4)
    return C.cosine_distance_with_negative_samples(C.tanh(x), y, shift=1, num_negative_samples=3)


MODELS = [tagger, cells, steps, losses, upsampled, negatives]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["torch", "flax", "keras"])
def test_sequences_and_upsampling_compute_the_same(target, tmp_path):
    python = python_with(target)
    for make in MODELS:
        port(make(), target, tmp_path / make.__name__)
    assert passed(tmp_path, python) == len(MODELS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["torch", "flax", "keras"])
def test_golden_models_compute_the_same_or_are_refused(target, tmp_path):
    python = python_with(target)
    ported = 0
    paths = sorted(GOLDEN.glob("*.model"))
    for path in {"torch": paths, "flax": paths[::2], "keras": paths[1::2]}[target]:  # jax compiles for a second each
        model = C.load_model(path) if path.stem != "user_function" else None
        if path.stem not in REFUSED:
            port(model, target, tmp_path / path.stem)
            ported += 1
        elif model is not None:
            with pytest.raises(PortError, match=REFUSED[path.stem]):
                port(model, target, tmp_path / path.stem)
    assert passed(tmp_path, python) == ported


def test_a_recurrence_is_the_layer_of_the_library(tmp_path):
    port(tagger(), "torch", tmp_path)
    text = (tmp_path / "model.py").read_text()
    for line in ("= nn.Embedding(7, 5)", "= nn.LSTM(5, 4, batch_first=True)", "def forward(self, words, lengths):"):
        assert line in text


def test_names_of_python_are_not_covered(tmp_path):
    x = C.sequence.input_variable(3, name="input")
    h = C.layers.Recurrence(C.layers.GRU(2))(C.plus(x, 1, name="len"))
    port(h, "torch", tmp_path)
    text = (tmp_path / "model.py").read_text()
    assert "def forward(self, input_, lengths):" in text and "len_ = input_ + 1.0" in text


def test_each_sequence_axis_has_lengths(tmp_path):
    port(C.load_model(GOLDEN / "attention_seq2seq.model"), "torch", tmp_path)
    text = (tmp_path / "model.py").read_text()
    assert "def forward(self, target, source, target_lengths, source_lengths):" in text
    assert text.count(" = recurrence(step, ") == 1  # the decoder; the encoder is a layer
