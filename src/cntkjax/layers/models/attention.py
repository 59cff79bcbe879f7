"""Attention over the states of an encoder."""

from __future__ import annotations

from ..._typing import Count
from ...axis import Axis
from ...default_options import default_options, default_override_or, get_default_override
from ...graph.arguments import public
from ...graph.errors import explain
from ...initializer import glorot_uniform
from ...ops import element_select, element_times, reduce_sum, reshape, sequence, softmax, tanh
from ...ops.functions import Function
from ...variables import Variable
from .._arguments import Flag, Init, Operand
from ..blocks import Stabilizer, _inject_name
from ..layers import Dense, Label
from ..sequence import PastValueWindow


def _check_span(span: int | None, axis: int | Axis | None) -> None:
    """Errors: ValueError unless span and axis are both given or both left out, and the span is positive."""
    if span is None and axis is not None:
        raise ValueError(explain(
            "AttentionModel: attention_span cannot be None when attention_axis is not None",
            fix="leave out both to attend to all steps, or give both",
        ))
    if span is not None and axis is None:
        raise ValueError(explain(
            "AttentionModel: attention_axis cannot be None when attention_span is not None",
            fix="add attention_axis=-3, the static axis along which the steps lie",
        ))
    if span is not None and span <= 0:
        raise ValueError(f"AttentionModel: attention_span must be a positive value, not {span}")


@public
def AttentionModel(
    attention_dim: Count,
    attention_span: Count | None = None,
    attention_axis: int | Axis | None = None,
    init: Init = default_override_or(glorot_uniform()),
    go_backwards: Flag = default_override_or(False),
    enable_self_stabilization: Flag = default_override_or(True),
    name: str = "",
) -> Function:
    """Additive attention: a function (encoder states, decoder state) -> weighted mean of the encoder states.

    With `attention_span` only the last steps of the encoder take part (with `go_backwards` the first); they lie along
    the static axis `attention_axis`, counted from the last, as -3.

    Shapes: encoder state [n] with one sequence axis, decoder state [m] with another -> [n] with the decoder's; with a
            span [1, .., n], where the axis of the steps and those after it are 1.
    Errors: ValueError for a span without an axis, an axis without a span, or a span below 1. When it is applied,
            AxisError for an encoder state without a sequence axis.
    Source: Bahdanau, Cho and Bengio, ICLR 2015 (arXiv:1409.0473); graph as in CNTK 2.7.

    >>> import cntkjax as C
    >>> encoder = C.sequence.input_variable(5, sequence_axis=C.Axis("encoder"))
    >>> decoder = C.sequence.input_variable(3, sequence_axis=C.Axis("decoder"))
    >>> context = AttentionModel(4)(encoder, decoder)
    >>> context.shape, [axis.name for axis in context.dynamic_axes]
    ((5,), ['defaultBatchAxis', 'decoder'])
    """
    init = get_default_override(AttentionModel, init=init)
    go_backwards = get_default_override(AttentionModel, go_backwards=go_backwards)
    stabilize = get_default_override(AttentionModel, enable_self_stabilization=enable_self_stabilization)
    _check_span(attention_span, attention_axis)
    with default_options(bias=False, enable_self_stabilization=stabilize, init=init):
        project_encoder, project_decoder, score = (
            (Stabilizer() >> Dense(size, input_rank=1)) for size in (attention_dim, attention_dim, 1)
        )
        stabilize_output = Stabilizer()

    def scores_of(states: Operand, decoder: Variable) -> Function:
        projected_states = sequence.broadcast_as(project_encoder(states), decoder)
        return score(tanh(project_decoder(decoder) + projected_states))

    def attention_model(encoder_hidden_state: Variable, decoder_hidden_state: Variable) -> Function:
        states, mask = sequence.unpack(encoder_hidden_state, padding_value=0).outputs
        valid = sequence.broadcast_as(reshape(mask, (1,), 1, 1), decoder_hidden_state)
        scores = element_select(valid, scores_of(states, decoder_hidden_state), -1e30)
        weights = Label("attention_weights")(softmax(scores, axis=0))
        weighted = element_times(weights, sequence.broadcast_as(states, weights))
        return _inject_name(stabilize_output(reshape(reduce_sum(weighted, axis=0), (), 0, 1)), name)

    def attention_window(h_enc: Variable, h_dec: Variable) -> Function:
        window = PastValueWindow(attention_span, axis=attention_axis, go_backwards=go_backwards)  # type: ignore[arg-type]
        states, valid = window(h_enc).outputs
        broadcast_states = sequence.broadcast_as(states, h_dec)
        scores = scores_of(states, h_dec) + (sequence.broadcast_as(valid, h_dec) - 1) * 50
        weights = Label("attention_weights")(softmax(scores, axis=attention_axis))
        weighted = element_times(broadcast_states, weights)
        return _inject_name(stabilize_output(reduce_sum(weighted, axis=attention_axis)), name)

    return Function(attention_model if attention_span is None else attention_window)


__all__ = [
    "AttentionModel", "Dense", "Function", "Label", "PastValueWindow", "Stabilizer", "default_options",
    "default_override_or", "get_default_override", "glorot_uniform",
]
