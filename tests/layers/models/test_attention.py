"""Attention over the states of an encoder: values and shapes are those of CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from tests.layers.test_sequence import assert_equal

S = C.sequence
s = S.input_variable(5)


def test_attention_has_the_values_of_cntk():
    """Literals from CNTK 2.7, all weights 0.1."""
    h = S.input_variable(3, sequence_axis=C.Axis("decoder"))
    rng = np.random.RandomState(0)
    encoder = [rng.randn(3, 5).astype("f"), rng.randn(2, 5).astype("f")]
    decoder = [rng.randn(2, 3).astype("f"), rng.randn(4, 3).astype("f")]
    expected = [
        [[0.43254492, 0.9056251, 0.57698584, 0.8623883, 0.9759413],
         [0.3947955, 0.91688085, 0.56369764, 0.8264015, 0.95303607]],
        [[-1.0931466, 1.078656, 0.32352114, -0.20851299, 0.6899618],
         [-1.0932171, 1.0786355, 0.32354724, -0.20853874, 0.690038],
         [-1.0929472, 1.0787143, 0.32344726, -0.20844007, 0.6897459],
         [-1.0944722, 1.0782701, 0.32401228, -0.20899753, 0.69139624]],
    ]
    full = L.AttentionModel(4, init=0.1)
    window = L.AttentionModel(4, attention_span=3, attention_axis=-3, init=0.1)
    for layer in (full, window):
        for value, expected_value in zip(layer(s, h).eval({s: encoder, h: decoder}), expected, strict=True):
            np.testing.assert_allclose(value.reshape(-1, 5), expected_value, rtol=1e-5)


def test_attention_inside_a_recurrence_gives_the_values_of_cntk():
    """Literals from CNTK 2.7: the decoder's state attends to the encoder in every step."""
    encoder, decoder = S.input_variable(6, sequence_axis=C.Axis("encoder")), S.input_variable(4)
    attention, cell = L.AttentionModel(5, init=0.1), L.GRU(3, init=0.2)
    state = C.placeholder()
    before = S.past_value(state)
    f = cell(before, C.splice(decoder, attention(encoder, before)))
    f.replace_placeholders({state: f})
    rng = np.random.RandomState(1)
    encoded = [rng.randn(n, 6).astype("f") for n in (3, 5, 2)]
    decoded = [rng.randn(n, 4).astype("f") for n in (2, 4, 1)]
    values = f.eval({encoder: encoded, decoder: decoded})
    assert_equal([s[:, 0] for s in values][1:2], [[-0.07347853, -0.06728898, 0.10717303, 0.13199085]])
    of = {p.name: g for p, g in C.square(f).grad({encoder: encoded, decoder: decoded}, wrt=f.parameters).items()}
    np.testing.assert_allclose(np.abs(of["b"]).sum(), 1.8554527, rtol=1e-5)
    np.testing.assert_allclose(np.abs(of["H1"]).sum(), 0.025983112, rtol=1e-5)


@pytest.mark.parametrize(
    ("span", "axis", "scores"), [(None, None, (7,)), (3, -2, (1, 7)), (20, -3, (1, 1, 7))]
)
def test_a_decoder_with_attention_over_a_span_has_the_shapes_of_cntk(span, axis, scores):
    attend, cell, project = L.AttentionModel(3, span, axis), L.LSTM(4), L.Dense(7)

    @C.Function
    def decode(history, encoded):
        @C.Function
        def step(h, c, word):
            return cell(h, c, C.splice(word, attend(encoded, h)))

        return project(L.Recurrence(step)(history))

    encoded, history = (S.input_variable(6, sequence_axis=C.Axis(name)) for name in ("source", "target"))
    decoder = decode(history, encoded)
    assert decoder.shape == scores
    assert (project.W.shape, cell.W.shape) == ((4, 7), (12, 16))
