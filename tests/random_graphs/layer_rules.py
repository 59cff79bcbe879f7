"""What layers and learners take; see `rules`."""

from __future__ import annotations

from .choosers import ANY, FLAG, integer, number, operand
from .rules import IMAGE, RANKED, Rule, rule

_CELL = number("C.layers.LSTM(2)", "C.layers.GRU(2)", "C.layers.RNNStep(3)", "C.layers.LSTM(2, use_peepholes=True)",
               "C.layers.LSTM(2, enable_self_stabilization=True)", "C.layers.RNNStep(2, activation=C.relu)", "C.layers.LSTM((1, 2))")
_STEPS = operand(at_least=1, sequence=True, closed=True)
_VECTORS = operand(rank=1, sequence=True, sparse=None)
_ACTIVATION = number("None", "C.relu", "C.tanh", "C.sigmoid")

LAYERS: dict[str, Rule] = {
    "Dense": rule("C.layers.Dense({n}, activation={f}, bias={b})({a})", 3, a=operand(at_least=1, sparse=None), n=number(1, 2, 3, "(2, 2)", "()"),
                  f=_ACTIVATION, b=FLAG),
    "Dense map_rank": rule("C.layers.Dense({n}, map_rank=1)({a})", a=operand(at_least=2), n=number(1, 3)),
    "Dense input_rank": rule("C.layers.Dense({n}, input_rank=1)({a})", a=RANKED, n=number(1, 3)),
    "Embedding": rule("C.layers.Embedding({n})({a})", 2, a=operand(rank=1, sparse=True), n=integer(1, 3)),
    "Dropout": rule("C.layers.Dropout(0.5)({a})", 0.3, a=ANY),
    "Stabilizer": rule("C.layers.Stabilizer()({a})", a=ANY),
    "LayerNormalization": rule("C.layers.LayerNormalization()({a})", a=RANKED),
    "BatchNormalization": rule("C.layers.BatchNormalization(map_rank={n})({a})", 1, a=operand(at_least=1, sequence=False, axes=True, closed=True), n=number("None", 1)),
    "Label": rule("C.layers.Label('label')({a})", 0.3, a=ANY),
    "Activation": rule("C.layers.Activation({f})({a})", 0.3, a=ANY, f=number("C.relu", "C.elu", "C.softsign")),
    "Convolution": rule("C.layers.Convolution({w}, {n}, pad={p}, strides={s}, activation={f}, reduction_rank={r})({a})", 2, a=IMAGE,
                        w=number("(1, 1)", "(2, 2)", "(3, 2)"), n=number(1, 2), p=FLAG, s=number(1, 2), f=_ACTIVATION, r=number(1, 1, 0)),
    "Convolution1D": rule("C.layers.Convolution1D(2, 2, pad={p})({a})", a=operand(rank=2, closed=True), p=FLAG),
    "Convolution2D": rule("C.layers.Convolution2D((2, 2), 2, pad={p})({a})", a=IMAGE, p=FLAG),
    "Convolution3D": rule("C.layers.Convolution3D((1, 2, 1), 2, pad={p})({a})", a=operand(rank=4, closed=True), p=FLAG),
    "sequential Convolution": rule("C.layers.Convolution(2, 2, pad={p}, sequential=True, reduction_rank={r})({a})", a=_STEPS, p=FLAG, r=number(1, 0)),
    "ConvolutionTranspose": rule("C.layers.ConvolutionTranspose((2, 2), 2, pad={p}, strides={s})({a})", a=IMAGE, p=FLAG, s=number(1, 2)),
    "ConvolutionTranspose1D": rule("C.layers.ConvolutionTranspose1D(2, 2, pad={p})({a})", 0.5, a=operand(rank=2, closed=True), p=FLAG),
    "ConvolutionTranspose2D": rule("C.layers.ConvolutionTranspose2D((2, 1), 2, pad={p})({a})", 0.5, a=IMAGE, p=FLAG),
    "ConvolutionTranspose3D": rule("C.layers.ConvolutionTranspose3D((1, 2, 2), 2, pad={p})({a})", 0.5, a=operand(rank=4, closed=True), p=FLAG),
    "SequentialConvolution": rule("C.layers.SequentialConvolution(2, 2, pad={p})({a})", a=_STEPS, p=FLAG),
    "MaxPooling": rule("C.layers.MaxPooling((2, 2), strides={s}, pad={p})({a})", a=IMAGE, p=FLAG, s=number(1, 2)),
    "AveragePooling": rule("C.layers.AveragePooling((2, 2), strides={s}, pad={p})({a})", a=IMAGE, p=FLAG, s=number(1, 2)),
    "GlobalMaxPooling": rule("C.layers.GlobalMaxPooling()({a})", 0.5, a=IMAGE),
    "GlobalAveragePooling": rule("C.layers.GlobalAveragePooling()({a})", 0.5, a=IMAGE),
    "Recurrence": rule("C.layers.Recurrence({cell}, go_backwards={b})({a})", 3, a=_VECTORS, cell=_CELL, b=FLAG),
    "Recurrence full": rule("C.layers.Recurrence({cell}, initial_state={i}, return_full_state=True)({a}).outputs[0]", a=_VECTORS, cell=_CELL,
                            i=number(0, 0.5)),
    "Fold": rule("C.layers.Fold({cell}, go_backwards={b})({a})", 2, a=_VECTORS, cell=_CELL, b=FLAG),
    "Recurrence of a lambda": rule("C.layers.Recurrence(lambda h, x: C.tanh(h - x))({a})", a=_STEPS),
    "Recurrence of a pair": rule("C.layers.Recurrence(lambda h, c, x: (C.tanh(h + x), c - h))({a}).outputs[0]", 0.5, a=_STEPS),
    "Fold of plus": rule("C.layers.Fold(C.plus)({a})", a=_STEPS),
    "RecurrenceFrom": rule("C.layers.RecurrenceFrom(C.layers.GRU(2), go_backwards={g})(C.layers.Dense(2)({b}), {a})", a=_VECTORS,
                           b=operand(rank=1, sequence=False, axes=True), g=FLAG),
    "UnfoldFrom": rule("C.layers.UnfoldFrom(lambda s: C.tanh(s * C.constant(0.5, dtype=T)), length_increase={n})({b}, {a})", a=_STEPS,
                       b=operand(sequence=False, axes=True), n=number(1, 1, 2, 1.5)),
    "UnfoldFrom until": rule("C.layers.UnfoldFrom(lambda s: (s + s, C.greater(C.reduce_sum(s), 1)), "
                             "until_predicate=lambda s: C.greater(C.reduce_sum(s), 0.5), length_increase=2)({b}, {a})", 0.3, a=_STEPS, b=operand(rank=1, sequence=False, axes=True)),
    "PastValueWindow": rule("C.layers.PastValueWindow({n}, {axis})({a}).outputs[{i}]", a=operand(rank=1, sequence=True), n=integer(1, 3), axis=number(-2, 0), i=number(0, 1)),
    "Delay": rule("C.layers.Delay({t})({a})", a=_STEPS, t=number(1, 2, -1)),
    "AttentionModel": rule("C.layers.AttentionModel(2)({a}, {b})", 2, a=operand(rank=1, sequence=True), b=operand(rank=1, axes=True)),
    "ResNetBlock": rule("C.layers.ResNetBlock(C.layers.Activation(C.tanh))({a})", 0.5, a=ANY),
    "Sequential": rule("C.layers.Sequential([C.layers.Dense(2), C.tanh, C.layers.Dense({n})])({a})", a=RANKED, n=integer(1, 3)),
    "For": rule("C.layers.For(range(2), lambda i: C.layers.Dense(2, activation=C.tanh))({a})", a=RANKED),
    "SequentialClique": rule("C.layers.SequentialClique([C.layers.Dense(2), C.layers.Dense(2)])({a})", 0.5, a=operand(rank=1)),
    "MaxUnpooling": rule("C.layers.MaxUnpooling((2, 2), strides=2)(C.stop_gradient(C.layers.MaxPooling((2, 2), strides=2)({a})), {a})", 0.5, a=IMAGE),
    "hierarchical_softmax_layer": rule("C.hierarchical_softmax_layer({a}, C.constant([0], dtype=T), 4)[0]", 0.1, a=operand(rank=1, axes=True)),
}

_SCHEDULES = (
    "C.learning_parameter_schedule(0.1)", "C.learning_parameter_schedule_per_sample(0.05)", "0.1",
    "C.learning_parameter_schedule([0.1, 0.01], epoch_size=3)", "C.learning_parameter_schedule(0.2, minibatch_size=3)",
)
_MOMENTA = ("C.momentum_schedule(0.9)", "C.momentum_schedule(0.5, minibatch_size=2)", "C.momentum_as_time_constant_schedule(5)", "0.8")

LEARNERS: dict[str, tuple[str, ...]] = {
    "sgd": ("C.sgd(parameters, {rate})", "C.sgd(parameters, {rate}, l1_regularization_weight=0.01)",
            "C.sgd(parameters, {rate}, l2_regularization_weight=0.01)",
            "C.sgd(parameters, {rate}, gradient_clipping_threshold_per_sample=0.1)",
            "C.sgd(parameters, {rate}, gradient_clipping_threshold_per_sample=0.1, gradient_clipping_with_truncation=False)",
            "C.sgd(parameters, {rate}, minibatch_size=C.learners.IGNORE)"),
    "momentum_sgd": ("C.momentum_sgd(parameters, {rate}, {momentum})", "C.momentum_sgd(parameters, {rate}, {momentum}, unit_gain=False)"),
    "nesterov": ("C.nesterov(parameters, {rate}, {momentum})",),
    "adagrad": ("C.adagrad(parameters, {rate})", "C.adagrad(parameters, {rate}, need_ave_multiplier=False)"),
    "fsadagrad": ("C.fsadagrad(parameters, {rate}, {momentum})",),
    "adam": ("C.adam(parameters, {rate}, {momentum})", "C.adam(parameters, {rate}, {momentum}, adamax=True)",
             "C.adam(parameters, {rate}, {momentum}, unit_gain=False)"),
    "rmsprop": ("C.rmsprop(parameters, {rate}, gamma=0.9, inc=1.2, dec=0.7, max=2, min=0.5)",),
    "adadelta": ("C.adadelta(parameters, {rate})", "C.adadelta(parameters)"),
    "universal": ("C.universal(lambda ps, gs: C.combine([C.assign(p, p - 0.05 * g) for p, g in zip(ps, gs)]), parameters)",),
}
SCHEDULES = {"rate": _SCHEDULES, "momentum": _MOMENTA}
