"""What is written out again and again, and generators that end: unrolled recurrences, equal layers; see `rules`.

From 64 equal nodes on, in eight pieces, they are compiled as one (`engine/plan/repeats.py`).
"""

from __future__ import annotations

from .choosers import ANY, FLAG, Chooser, like, number, operand, weights
from .program import BATCH, SEQUENCE, Type
from .rules import IMAGE, STEPS, VECTOR, Rule, rule

_PER_SEQUENCE = operand(rank=1, sequence=False, axes=True, closed=True)
_VECTORS = operand(rank=1, sequence=True)
_TIMES = number(7, 13, 17, 24)
_SQUARE = weights("a", lambda draft, shape: (*shape, *shape))
_SAME = weights("a", lambda draft, shape: shape)


def series(*shape: int) -> Chooser:
    """An input, with values for 24 steps along its first axis."""
    return lambda draft, chosen: draft.leaf(
        Type((24, *shape), draft.random.choice([(BATCH,), (BATCH,), (BATCH, SEQUENCE)]))
    )


REPEATED: dict[str, Rule] = {
    "unrolled": rule("repeated(lambda h, i: C.tanh(C.times(h, {w}) + {a} * C.slice({x}, 0, i, i + 1)), {a}, {n})[-1]",
                     a=VECTOR, w=_SQUARE, x=series(), n=_TIMES),
    "unrolled states": rule("C.splice(*repeated(lambda h, i: C.sigmoid(C.reduce_sum(h) * 0.1 + C.slice({x}, 0, i, i + 1)), C.slice({x}, 0, 0, 1), {n}))",
                            x=series(2), n=_TIMES),
    "unrolled from the end": rule("(lambda x: repeated(lambda h, i: C.sin(h * 0.5 + C.slice(x, 0, 23 - i, 24 - i)), C.constant(0, dtype=T), {n})[-1])({x} * {w})",
                                  x=series(3), w=weights("x", lambda draft, shape: ()), n=number(20, 24)),
    "unrolled LSTM": rule("(lambda cell: repeated(lambda s, i: cell(s[0], s[1], C.slice({x}, 0, i, i + 1)).outputs, [C.constant(0, (2,), dtype=T)] * 2, {n}))(C.layers.LSTM(2))[-1][0]",
                          x=series(), n=number(9, 12)),
    "unrolled GRU": rule("(lambda cell: C.splice(*repeated(lambda h, i: cell(h, C.slice({x}, 0, i, i + 1)), C.constant(0, (2,), dtype=T), {n})))(C.layers.GRU(2))",
                         x=series(), n=number(9, 12)),
    "equal layers": rule("repeated(lambda h, i: C.layers.Dense(2, activation={f})(h), {a}, {n})[-1]", a=operand(at_least=1, closed=True), n=number(16, 24),
                         f=number("C.tanh", "C.relu", "C.sigmoid")),
    "equal residual layers": rule("repeated(lambda h, i: h + C.layers.Dense({d}, activation=C.tanh)(h) * 0.25, C.layers.Dense({d})({a}), {n})[-1]",
                                  a=VECTOR, d=number(1, 3), n=number(13, 18)),
    "equal normalized layers": rule("repeated(lambda h, i: C.layers.LayerNormalization()(h + C.tanh(h)), {a}, {n})[-1]", a=VECTOR, n=number(8, 12)),
    "equal convolutions": rule("repeated(lambda h, i: C.tanh(C.layers.Convolution2D((2, 2), 2, pad=True)(h)), {a}, {n})[-1]", 0.5, a=IMAGE, n=number(14, 18)),
    "equal layers, two kinds": rule("repeated(lambda h, i: (C.sin if i % 2 else C.tanh)(h * 0.5) + C.abs(h - {b}), {a}, {n})[-1]", a=ANY, b=like("a"), n=_TIMES),
    "equal steps with their number": rule("repeated(lambda h, i: C.tanh(h + {b} * C.constant(i / 8.0, dtype=T)), {a}, {n})[-1]", a=ANY, b=like("a"), n=number(17, 24)),
    "equal steps of a pair": rule("repeated(lambda s, i: (C.tanh(s[0] + s[1]) - {b}, C.sin(s[0] - s[1] * 0.5)), ({a}, {b}), {n})[-1][0]", a=ANY, b=like("a", False), n=_TIMES),
    "equal steps with those before": rule("repeated(lambda s, i: (C.tanh(s[0] * 0.5 + s[1]) + {b}, s[0]), ({a}, {b}), {n})[-1][0]", a=ANY, b=like("a", False), n=number(17, 24)),
    "equal steps of a sequence": rule("repeated(lambda h, i: C.tanh(C.sequence.past_value(h) + {a} * h), {a}, {n})[-1]", a=STEPS, n=number(17, 24)),
    "equal loops": rule("repeated(lambda g, i: loop(lambda h: C.tanh(h * 0.5 + g)), {a}, {n})[-1]", 0.5, a=STEPS, n=number(9, 12)),
    "loop of equal steps": rule("loop(lambda h: repeated(lambda g, i: C.tanh(g - {a}), h, {n})[-1])", 0.5, a=STEPS, n=number(3, 4)),
    "equal selections": rule("repeated(lambda h, i: C.element_select(C.greater(h, {b}), C.sin(h), h * 1.25), {a}, {n})[-1]", a=ANY, b=like("a"), n=number(17, 24)),
    # Pieces whose values are sparse or indices, so that each is compiled by itself
    "equal indices": rule("repeated(lambda h, i: C.argmax({a} * (0.5 * i) - C.sin(h)), {a}, {n})[-1] * 0.5", a=VECTOR, n=number(17, 24)),
    "equal rows of indices": rule("C.splice(*repeated(lambda h, i: C.times(C.one_hot(C.argmax(h), 2, {sparse}), {w}) * 0.5 + {a}, {a}, {n}))", a=VECTOR,
                                  w=weights("a", lambda draft, shape: (2, *shape)), sparse=FLAG, n=number(13, 17)),
    "equal sparse rows": rule("(lambda s: C.times(s[4][1], {w}) + s[-1][0])(repeated(lambda s, i: (lambda y: (C.times(y, {w}) * 0.5 + {a}, y))"
                              "(C.one_hot(C.argmax(s[0]), 2, True)), ({a}, None), {n}))", a=VECTOR, w=weights("a", lambda draft, shape: (2, *shape)), n=number(16, 20)),
    "equal steps of two kinds of values": rule("repeated(lambda h, i: C.tanh(h * 0.5 + ({a}, {b})[i % 2]) - C.sin(h), {a} + {b}, {n})[-1]", a=ANY, b=like("a", False), n=number(16, 24)),
    # Loops that a GPU computes side by side
    "loops alike": rule("C.splice(*[loop(lambda h: C.tanh(C.times(h, {w}) + {b}), d) for b, d in [({a}, C.sequence.past_value), ({b}, C.sequence.{d})]])",
                        2, a=_VECTORS, b=like("a", False), w=_SQUARE, d=number("past_value", "future_value")),
    "cells alike": rule("C.splice(C.layers.Recurrence({cell})({a}), C.layers.Recurrence({cell}, go_backwards={g})({a}))", 2, a=_VECTORS, g=number(True, False),
                        cell=number("C.layers.LSTM(2)", "C.layers.GRU(2)", "C.layers.RNNStep(2)", "C.layers.LSTM(2, enable_self_stabilization=True)")),
    "folds alike": rule("C.layers.Fold({cell})({a}) - C.layers.Fold({cell}, go_backwards={g})({b})", a=_VECTORS, b=_VECTORS, g=number(True, False),
                        cell=number("C.layers.LSTM(2)", "C.layers.GRU(2)")),
    "loops alike from other states": rule("C.splice(*[loop(lambda h: C.tanh(h * 0.5 + {a}), lambda h: C.sequence.past_value(h, s)) for s in ({b}, C.sequence.{e}({a}))])", a=_VECTORS,
                                          b=_SAME, e=number("first", "last")),
    # Products in loops, parts of which are computed before
    "loop scaled product": rule("loop(lambda h: C.tanh(C.times(h * {s}, {w}) + C.times(C.splice(h, {a}) * {s}, {v})))", a=_VECTORS, w=_SQUARE,
                                s=weights("a", lambda draft, shape: ()), v=weights("a", lambda draft, shape: (2 * shape[0], shape[0]))),
    "loop product in the middle": rule("loop(lambda h: C.tanh(C.times(C.splice({a}, h, {a} * 2), {w})))", a=_VECTORS, w=weights("a", lambda draft, shape: (2 * shape[0] + 2, 2))),
    "loop products of one operand": rule("loop(lambda h: C.sigmoid(C.times(h, {w}) + {a}) * C.tanh(C.times(h, {v}) - {a}))", 2, a=_VECTORS, w=_SQUARE, v=_SQUARE),
    "loop weights of a sequence": rule("loop(lambda h: C.tanh(C.times(h, C.sequence.broadcast_as(C.reshape(C.times({b}, {w}), (2, 2)), {a})) + C.reduce_sum({a})),"
                                       " lambda h: C.sequence.past_value(h, C.constant(0.5, (2,), dtype=T)))", a=_VECTORS, b=_PER_SEQUENCE,
                                       w=weights("b", lambda draft, shape: (*shape, 4))),
    "loop transposed product": rule("loop(lambda h: C.tanh(C.times_transpose(h, {w}) + {a}))", a=_VECTORS, w=_SQUARE),
    # Generators that end
    "generator until": rule("C.layers.UnfoldFrom(lambda s: C.tanh(s - {w}), until_predicate=lambda y: C.{more}(C.reduce_sum(y), {t}), length_increase={n})({a}, {b})", 3,
                            a=_PER_SEQUENCE, b=STEPS, w=_SAME, more=number("greater", "less"), t=number(-0.5, 0, 0.5, 3), n=number(1, 2, 3)),
    "generator of pairs until": rule("C.layers.UnfoldFrom(lambda s: (C.softmax(C.times(s, {v})), C.sin(s + {w})), until_predicate=lambda y: C.greater(C.slice(y, -1, 1, 2), {t}), "
                                     "length_increase={n})({a}, {b})", 3, a=_PER_SEQUENCE, b=STEPS, w=_SAME, v=weights("a", lambda draft, shape: (*shape, 3)),
                                     t=number(0.2, 0.35, 0.5), n=number(1, 2, 3)),
    "generator with a loop until": rule("C.layers.UnfoldFrom(lambda s: C.tanh(s + loop(lambda h: C.softsign(h + s))), until_predicate=lambda y: C.greater(C.reduce_sum(y), {t}), "
                                        "length_increase=2)({a}, {b})", a=_PER_SEQUENCE, b=STEPS, t=number(0.5, 1, 3)),
    "generator folded": rule("C.sequence.reduce_sum(C.layers.UnfoldFrom(lambda s: C.cos(s + {w}), until_predicate=lambda y: C.less(C.reduce_sum(y), {t}), length_increase=2)({a}, {b}))",
                             2, a=_PER_SEQUENCE, b=STEPS, w=_SAME, t=number(-0.5, 0, 0.5)),
    "generator cell until": rule("(lambda cell: C.layers.UnfoldFrom(lambda s: cell(s, s), until_predicate=lambda y: C.greater(C.reduce_max(y), {t}), length_increase={n}))(C.layers.GRU(2))"
                                 "(C.layers.Dense(2)({a}), {b})", a=_PER_SEQUENCE, b=STEPS, t=number(0.1, 0.3, 2), n=number(1, 2)),
}
