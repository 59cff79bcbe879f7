"""Attention over the states of an encoder."""

from __future__ import annotations

from typing import Any

from ...default_options import default_options, default_override_or, get_default_override
from ...initializer import glorot_uniform
from ...ops import element_select, element_times, reduce_sum, reshape, sequence, softmax, tanh
from ...ops.functions import Function
from ...variables import Variable
from ..blocks import Stabilizer, _inject_name
from ..layers import Dense, Label
from ..sequence import PastValueWindow


def AttentionModel(
    attention_dim: int,
    attention_span: int | None = None,
    attention_axis: int | None = None,
    init: Any = default_override_or(glorot_uniform()),
    go_backwards: Any = default_override_or(False),
    enable_self_stabilization: Any = default_override_or(True),
    name: str = "",
) -> Function:
    """Additive attention: a function (encoder states, decoder state) -> mean of the encoder states by their relevance.

    With `attention_span` only that many last steps of the encoder (first ones, with `go_backwards`) are looked at; they
    stand along the static axis `attention_axis`, a negative number.

    Shapes: encoder state [n] with one sequence axis, decoder state [m] with another -> [n] with the decoder's; with a
            span [1, .., n], the axis of the steps and those behind it being 1.
    Errors: ValueError for a span without an axis, an axis without a span, or a span below 1.
    Source: Bahdanau, Cho and Bengio, ICLR 2015 (arXiv:1409.0473); graph as in CNTK 2.7.
    """
    init = get_default_override(AttentionModel, init=init)
    go_backwards = get_default_override(AttentionModel, go_backwards=go_backwards)
    stabilize = get_default_override(AttentionModel, enable_self_stabilization=enable_self_stabilization)
    if attention_span is None and attention_axis is not None:
        raise ValueError("attention_span cannot be None when attention_axis is not None")
    if attention_span is not None and attention_axis is None:
        raise ValueError("attention_axis cannot be None when attention_span is not None")
    if attention_span is not None and attention_span <= 0:
        raise ValueError("attention_span must be a positive value")
    with default_options(bias=False, enable_self_stabilization=stabilize, init=init):
        of_encoder, of_decoder, relevance = (
            (Stabilizer() >> Dense(size, input_rank=1)) for size in (attention_dim, attention_dim, 1)
        )
        finish = Stabilizer()

    def scored(states: Any, decoder: Variable) -> Any:
        of_states = sequence.broadcast_as(of_encoder(states), decoder)
        return relevance(tanh(of_decoder(decoder) + of_states))

    def attention_model(encoder_hidden_state: Variable, decoder_hidden_state: Variable) -> Any:
        states, mask = sequence.unpack(encoder_hidden_state, padding_value=0).outputs
        valid = sequence.broadcast_as(reshape(mask, (1,), 1, 1), decoder_hidden_state)
        scores = element_select(valid, scored(states, decoder_hidden_state), -1e30)
        weights = Label("attention_weights")(softmax(scores, axis=0))
        weighted = element_times(weights, sequence.broadcast_as(states, weights))
        return _inject_name(finish(reshape(reduce_sum(weighted, axis=0), (), 0, 1)), name)

    def attention_window(h_enc: Variable, h_dec: Variable) -> Any:
        window = PastValueWindow(attention_span, axis=attention_axis, go_backwards=go_backwards)  # type: ignore[arg-type]
        states, valid = window(h_enc).outputs
        spread = sequence.broadcast_as(states, h_dec)
        scores = scored(states, h_dec) + (sequence.broadcast_as(valid, h_dec) - 1) * 50
        weights = Label("attention_weights")(softmax(scores, axis=attention_axis))
        return _inject_name(finish(reduce_sum(element_times(spread, weights), axis=attention_axis)), name)

    return Function(attention_model if attention_span is None else attention_window)
