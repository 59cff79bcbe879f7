"""What layers and learners take; see `rules`."""

from __future__ import annotations

from .choosers import ANY, FLAG, integer, number, operand, weights
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
    "Recurrence of a pair": rule("C.layers.Recurrence(lambda h, c, x: (C.tanh({h}), c - h))({a}).outputs[0]", 0.5, a=_STEPS,
                                 h=number("h + x - c", "h - x * c", "x + c", "h + x")),  # CNTK refuses a state that nothing reads
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

# Layers as programs compose them, and options that they seldom give
LAYERS |= {
    "Dense input_rank 2": rule("C.layers.Dense({n}, input_rank=2, init_bias=0.5)({a})", a=operand(at_least=2, closed=True), n=number(2, "(1, 2)")),
    "Dense of a layer": rule("C.layers.Dense(2, activation=C.layers.Dense(3, activation=C.tanh))({a})", a=RANKED),
    "composition": rule("(C.layers.Dense(2) >> {f} >> C.layers.LayerNormalization(initial_scale=2, initial_bias=0.5))({a})", a=RANKED, f=number("C.tanh", "C.relu", "(lambda x: x * x)")),
    "composition of steps": rule("(C.layers.Embedding(2) >> C.layers.Recurrence({cell}, go_backwards={g}) >> C.sequence.last >> C.layers.Dense({n}))({a})", 2, a=_VECTORS, cell=_CELL, g=FLAG, n=integer(1, 3)),
    "Sequential of lists": rule("C.layers.Sequential([C.layers.Dense(2), [C.tanh, C.layers.Stabilizer(steepness=2)], (C.layers.Dense(2), C.layers.identity), C.splice])({a})", a=operand(rank=1)),
    "both directions": rule("C.layers.Sequential([(C.layers.Recurrence({cell}), C.layers.Recurrence({cell}, go_backwards=True)), C.splice, {last}])({a})", 2, a=_VECTORS,
                            cell=number("C.layers.LSTM(2)", "C.layers.GRU(2)"), last=number("C.sequence.first", "C.layers.Fold(C.layers.GRU(1))", "C.layers.Dense(2)")),
    "For of lists": rule("C.layers.For(range(2), lambda i: [C.layers.Dense(i + 2), C.relu])({a})", a=RANKED),
    "Convolution options": rule("C.layers.Convolution2D((2, {w}), 2, pad=({p}, {q}), strides=({s}, 1), bias={b}, init_bias=0.25)({a})", a=IMAGE, w=integer(1, 3), p=FLAG, q=FLAG, s=number(1, 2), b=FLAG),
    "ConvolutionTranspose options": rule("C.layers.ConvolutionTranspose2D((2, 2), 2, strides=({s}, 1), pad=({p}, {q}), init_bias=0.25)({a})", a=IMAGE, p=FLAG, q=FLAG, s=number(1, 2)),
    "SequentialConvolution options": rule("C.layers.SequentialConvolution({w}, 2, pad={p}, strides={s}, init_bias=0.25, activation={f})({a})", 2, a=_STEPS, w=integer(1, 3), p=FLAG, s=number(1, 2), f=_ACTIVATION),
    "pooling options": rule("C.layers.{kind}Pooling((2, {w}), strides=({s}, 1), pad=({p}, {q}))({a})", a=IMAGE, kind=number("Max", "Average"), w=integer(1, 3), p=FLAG, q=FLAG, s=number(1, 2)),
    "BatchNormalization options": rule("C.layers.BatchNormalization(init_scale=0.5, normalization_time_constant={t}, blend_time_constant={b}, epsilon=0.01)({a})",
                                       a=operand(at_least=1, sequence=False, axes=True, closed=True), t=number(0, 5, 5000), b=number(0, 0, 3)),
    "Recurrence initial states": rule("C.layers.Recurrence(C.layers.{cell}(2), initial_state={i})({a})", 2, a=_VECTORS, cell=number("LSTM", "GRU", "RNNStep"),
                                      i=number(0.5, "C.constant([0.25, -0.5], dtype=T)", "C.parameter(init=data(3, 2))")),
    "Fold of a cell with states": rule("C.layers.Fold(C.layers.LSTM(2), initial_state=({i}, 0.25), return_full_state=True)({a}).outputs[{o}]", a=_VECTORS, i=number(0, 0.5), o=integer(0, 1)),
    "RecurrenceFrom LSTM": rule("C.layers.RecurrenceFrom(C.layers.LSTM(2), go_backwards={g}, return_full_state={r})(C.layers.Dense(2)({b}), C.layers.Dense(2)({c}), {a}).outputs[0]", a=_VECTORS,
                                b=operand(rank=1, sequence=False, axes=True), c=operand(rank=1, sequence=False, axes=True), g=FLAG, r=FLAG),
    "UnfoldFrom of a cell": rule("(lambda cell: C.layers.UnfoldFrom(lambda h: cell(h, h))(C.layers.Dense(2)({b}), {a}))(C.layers.GRU(2))", a=_STEPS, b=operand(rank=1, sequence=False, axes=True)),
    "AttentionModel in a decoder": rule("(lambda attend, cell: C.Function(lambda e, d: C.layers.Recurrence(C.Function(lambda h, x: cell(h, C.splice(x, attend(e, h)))))(d))({b}, {a}))"
                                        "(C.layers.AttentionModel(2), C.layers.GRU(2))", 2, a=operand(rank=1, sequence=True), b=operand(rank=1, sequence=True)),
    "Delay of a product": rule("C.layers.Delay({t}, initial_state={i})(C.layers.Dense(2)({a})) - C.layers.Dense(2)({a})", a=_STEPS, t=number(2, -1, 0), i=number(0, 0.5)),
    "Embedding of weights": rule("C.layers.Embedding(weights={w}.value)({a})", a=operand(rank=1, sparse=None, axes=True), w=weights("a", lambda draft, shape: (*shape, 2))),
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
