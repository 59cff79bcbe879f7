"""Options of layers, cells, initializers and operations that the other rules leave at their defaults; see `rules`."""

from __future__ import annotations

from .choosers import ANY, FLAG, integer, number, operand
from .rules import CLOSED, IMAGE, RANKED, Rule, rule

_STEPS = operand(at_least=1, sequence=True, closed=True)
_VECTORS = operand(rank=1, sequence=True, sparse=None)
_INIT = number(
    "0.25", "C.glorot_uniform(scale=2)", "C.glorot_normal()", "C.he_uniform(scale=0.5)", "C.he_normal(seed=3)",
    "C.xavier()", "C.normal(0.5)", "C.uniform(0.25)",
    "C.initializer_with_rank(C.glorot_uniform(), output_rank=1, filter_rank=0)",
)
_CELLS = number(
    "C.layers.LSTM(2, activation=C.relu, init_bias=0.25)", "C.layers.GRU(3, activation=C.softsign, init_bias=-0.5)",
    "C.layers.RNNStep(2, activation=C.sigmoid, init_bias=0.5)", "C.layers.LSTM(2, cell_shape=3)",
    "C.layers.LSTM(3, cell_shape=2, use_peepholes=True, init_bias=0.25)", "C.layers.GRU(2, cell_shape=3)",
    "C.layers.RNNStep(2, cell_shape=3)",
)

OPTIONS: dict[str, Rule] = {
    "options of Dense": rule("C.layers.Dense({n}, init={i}, init_bias={i})({a})", 2, a=operand(at_least=1, sparse=None), n=number(2, "(2, 3)"), i=_INIT),
    "options of Embedding": rule("C.layers.Embedding(shape={n}, init={i})({a})", a=operand(rank=1, sparse=None, axes=True), n=integer(1, 3), i=_INIT),
    "options of cells": rule("C.layers.Recurrence({cell}, go_backwards={g})({a})", 3, a=_VECTORS, cell=_CELLS, g=FLAG),
    "init of cells": rule("C.layers.Fold(C.layers.{cell}(2, init={i}))({a})", a=_VECTORS, cell=number("LSTM", "GRU", "RNNStep"), i=_INIT),
    "options of AttentionModel": rule("C.layers.AttentionModel(2, init={i}, enable_self_stabilization={s})({a}, {b})", a=operand(rank=1, sequence=True),
                                      b=operand(rank=1, axes=True), i=_INIT, s=FLAG),
    "options of PastValueWindow": rule("C.layers.PastValueWindow({n}, {axis}, go_backwards={g})({a}).outputs[{i}]", a=operand(rank=1, sequence=True), n=integer(1, 3),
                                       axis=number(-2, 0), g=FLAG, i=number(0, 1)),
    "options of Stabilizer": rule("C.layers.Stabilizer(steepness={n}, enable_self_stabilization={e})({a})", 0.5, a=ANY, n=number(1, 0.5, 4), e=FLAG),
    "options of LayerNormalization": rule("C.layers.LayerNormalization({s}, {b}, epsilon={e})({a})", a=RANKED, s=number(1, 2, "C.uniform(1, seed=4)"), b=number(0, "C.normal(0.5, seed=5)"),
                                          e=number(0.1, 1e-3, 1)),
    "init of BatchNormalization": rule("C.layers.BatchNormalization(init_scale={s})({a})", 0.5, a=CLOSED, s=number(0.5, "C.uniform(1, seed=2)", "C.normal(0.5, seed=3)")),
    "one state for all": rule("C.layers.Recurrence(C.layers.LSTM(2), initial_state=({s},))({a})", a=_VECTORS, s=number(0.25, "C.constant([0.5, -0.5], dtype=T)")),
    "options of Convolution": rule("C.layers.Convolution2D((2, 2), {n}, activation={f}, init={i}, bias={b}, reduction_rank={r})({a})", a=IMAGE, n=number(2, "(2,)"),
                                   f=number("None", "C.tanh"), i=_INIT, b=FLAG, r=number(1, 0)),
    "options of Convolution1D": rule("C.layers.Convolution1D(2, 2, activation=C.sigmoid, init={i}, strides={s}, pad={p}, bias={b})({a})", a=operand(rank=2, closed=True),
                                     i=_INIT, s=number(1, 2), p=FLAG, b=FLAG),
    "options of ConvolutionTranspose": rule("C.layers.ConvolutionTranspose2D((2, 2), 2, activation={f}, init={i}, bias={b}, strides={s}, pad={p})({a})", a=IMAGE,
                                            f=number("None", "C.tanh"), i=_INIT, b=FLAG, s=number(1, 2), p=FLAG),
    "output_shape of ConvolutionTranspose": rule("C.layers.ConvolutionTranspose2D((3, 3), 1, strides=2, pad=True, output_shape=({h}, {h}))({a})", 0.5, a=IMAGE, h=integer(4, 8)),
    "options of SequentialConvolution": rule("C.layers.SequentialConvolution({w}, 2, init={i}, bias={b}, pad={p}, reduction_rank={r})({a})", a=_STEPS, w=number(2, "(2, 1)"), i=_INIT,
                                             b=FLAG, p=FLAG, r=number(1, 0)),
    "options of MaxUnpooling": rule("C.layers.MaxUnpooling((2, 2), strides={s}, pad={p})(C.stop_gradient(C.layers.MaxPooling((2, 2), strides={s}, pad={p})({a})), {a})", 0.5,
                                    a=IMAGE, s=number(1, 2), p=FLAG),
    "softplus steepness": rule("C.softplus({a}, steepness={n})", a=ANY, n=number(2, 0.5, 10)),
    "slice strides": rule("C.slice({a}, {x}, 0, 0, strides={s})", a=RANKED, x=number(0, -1), s=number(1, 2, -1, -2)),
    "reduce keepdims": rule("C.reduce_{op}({a}, axis={x}, keepdims={k})", a=RANKED, op=number("mean", "sum", "max", "log_sum_exp"), x=number(0, -1), k=FLAG),
    "reshape of some axes": rule("C.reshape({a}, (-1,), {b}, {e})", a=operand(at_least=2, closed=True), b=number(0, 1, -2), e=number(1, 2, -1, "None")),
    "times infer_input_rank_to_map": rule("C.times({a}, C.parameter((C.InferredDimension, {n}), init={i}, dtype=T), infer_input_rank_to_map={m})", a=operand(at_least=1, closed=True), n=integer(1, 3), i=_INIT, m=number(0, 1)),
    "pooling strides": rule("C.pooling({a}, C.{kind}_POOLING, {w}, strides={s}, auto_padding={p})", a=IMAGE, kind=number("MAX", "AVG"), w=number("(2, 2)", "(1, 2)"),
                            s=number(2, "(2, 1)", "(1, 2)"), p=number("[False]", "[False, True, False]", "[True]")),
    "identity": rule("C.layers.identity({a})", 0.2, a=ANY),
    "Function with a Signature": rule("C.Function(lambda x: C.tanh(x) * 2)({a})", 0.3, a=ANY),
}

_COMMON = (
    "l1_regularization_weight=0.02", "l2_regularization_weight=0.05", "gradient_clipping_threshold_per_sample=0.05",
    "gradient_clipping_threshold_per_sample=0.05, gradient_clipping_with_truncation=False", "use_mean_gradient=True", "minibatch_size=2",
    "minibatch_size=C.learners.IGNORE", "l1_regularization_weight=0.01, l2_regularization_weight=0.02, minibatch_size=3",
)
_LEARNERS = (
    "sgd(parameters, {rate}", "momentum_sgd(parameters, {rate}, {momentum}", "nesterov(parameters, {rate}, {momentum}", "adagrad(parameters, {rate}",
    "fsadagrad(parameters, {rate}, {momentum}, variance_momentum={momentum}", "adam(parameters, {rate}, {momentum}, variance_momentum={momentum}, epsilon=0.01",
    "rmsprop(parameters, {rate}, 0.8, 1.1, 0.9, 3, 0.2, need_ave_multiplier=False", "adadelta(parameters, {rate}, rho=0.8, epsilon=0.01",
)
LEARNER_OPTIONS = tuple(f"C.{learner}, {options})" for learner in _LEARNERS for options in _COMMON)
