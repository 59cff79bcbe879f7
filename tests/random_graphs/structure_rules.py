"""Sparse operands, loops in loops and in clones, user functions: where several parts of the engine meet; see `rules`."""

from __future__ import annotations

from .choosers import ANY, FLAG, input_below, integer, like, number, operand, same_step, weights
from .rules import STEPS, VECTOR, Rule, rule

_SPARSE = operand(rank=1, sparse=True)
_SPARSE_STEPS = operand(rank=1, sequence=True, sparse=True)
_VECTORS = operand(rank=1, sequence=True)
_PER_SEQUENCE = operand(rank=1, sequence=False, axes=True)
_ROWS = weights("a", lambda draft, shape: (shape[0], draft.random.randint(1, 3)))
_SQUARE = weights("a", lambda draft, shape: (*shape, *shape))
_HOW = number("share", "clone", "freeze")
_TABLE = weights("a", lambda draft, shape: (3, 2))
_INDICES = number(*(f.format("C.constant([[0, 2, 1], [1, 0, 2]], dtype=T)") for f in (
    "{0}", "C.reshape({0}, (3, 2))", "C.slice({0}, 1, 0, 2)", "C.slice({0}, 1, -2, 0)", "C.slice({0}, 1, 0, 3, 2)",
    "C.splice({0}, {0}, axis=0)", "C.transpose({0}, (1, 0))", "C.squeeze(C.slice({0}, 0, 1, 2))", "C.argmax({0}, 1)",
)))

STRUCTURE: dict[str, Rule] = {
    # Sparse operands
    "sparse past_value": rule("C.times(C.sequence.past_value({a}, 0, {t}), {w})", a=_SPARSE_STEPS, w=_ROWS, t=number(1, 2)),
    "sparse future_value": rule("C.times(C.sequence.future_value({a}), {w})", a=_SPARSE_STEPS, w=_ROWS),
    "sparse first": rule("C.times(C.sequence.first({a}), {w})", a=_SPARSE_STEPS, w=_ROWS),
    "sparse last": rule("C.times(C.sequence.last({a}), {w})", a=_SPARSE_STEPS, w=_ROWS),
    "sparse slice": rule("C.times(C.sequence.slice({a}, {range}), {w})", a=_SPARSE_STEPS, w=_ROWS, range=number("0, 1", "1, 0", "-1, 0")),
    "sparse gather": rule("C.times(C.sequence.gather({a}, C.sequence.is_{end}({a})), {w})", a=_SPARSE_STEPS, w=_ROWS, end=number("first", "last")),
    "sparse is_first": rule("C.sequence.is_first({a})", 0.5, a=_SPARSE_STEPS),
    "sparse times twice": rule("C.times({a}, {w}) - C.times({a}, {w} * 0.5)", 0.5, a=_SPARSE, w=_ROWS),
    "sparse times_transpose": rule("C.times_transpose({a}, {w})", a=_SPARSE, w=weights("a", lambda draft, shape: (draft.random.randint(1, 4), *shape))),
    "sparse cross entropy": rule("C.cross_entropy_with_softmax({a}, {b})", 2, a=operand(rank=1, axes=True), b=like("a", False, True)),
    "sparse classification_error": rule("C.classification_error({a}, {b})", a=operand(rank=1, axes=True), b=like("a", False, True)),
    "sparse plus": rule("{a} + {b}", 0.5, a=operand(rank=1, axes=True), b=like("a", False, True)),
    "sparse element_times": rule("C.element_times({a}, {b})", 0.5, a=operand(rank=1, axes=True), b=like("a", False, True)),
    "sparse reduce_sum": rule("C.reduce_sum({a})", 0.5, a=_SPARSE),
    "sparse sequence reduce_sum": rule("C.sequence.reduce_sum(C.times({a}, {w}))", a=_SPARSE_STEPS, w=_ROWS),
    "sparse unpack": rule("C.sequence.unpack({a}, 0, no_mask_output=True)", 0.5, a=_SPARSE_STEPS),
    "sparse broadcast_as": rule("C.times(C.sequence.broadcast_as({a}, {b}), {w})", a=operand(rank=1, sequence=False, sparse=True), b=STEPS, w=_ROWS),
    "sparse reshape": rule("C.times(C.reshape({a}, (1, -1)), {w})", 0.5, a=_SPARSE, w=_ROWS),
    "sparse splice": rule("C.splice({a}, {a})", 0.5, a=_SPARSE),
    "one_hot times": rule("C.times(C.one_hot(C.round(C.abs({a})), 3, True), {w})", a=operand(rank=0, axes=True), w=_TABLE),
    "gather indices": rule("C.reduce_sum(C.gather({w}, {i})) * {a}", 0.5, a=ANY, w=_TABLE, i=_INDICES),
    "one_hot indices": rule("C.reduce_sum(C.times(C.one_hot({i}, 3, {sparse}), {w})) * {a}", 0.5, a=ANY, w=_TABLE, i=_INDICES, sparse=FLAG),
    "sparse alias": rule("C.times(C.{f}({a}), {w})", 0.5, a=_SPARSE, w=_ROWS, f=number("alias", "stop_gradient", "abs", "tanh")),
    # Recurrences
    "loop splice": rule("loop(lambda h: C.tanh(C.times(C.splice(h, {a}), {w})))", a=_VECTORS, w=weights("a", lambda draft, shape: (shape[0] + 1, 1))),
    "loop splice of several": rule("loop(lambda h: C.tanh(C.times(C.splice({a}, h), {w}) + C.reduce_sum({a})))", a=_VECTORS,
                                   w=weights("a", lambda draft, shape: (shape[0] + 2, 2))),
    "loop cloned": rule("loop(lambda h: C.tanh(h + {a})).clone('{how}')", a=STEPS, how=_HOW),
    "loop clone of a step": rule("(lambda p: loop(lambda h: (C.tanh(p) * 0.5 + {a}).clone('{how}', {{p: h}})))(C.placeholder())", a=STEPS, how=_HOW),
    "loop of a block": rule("C.layers.Recurrence(C.BlockFunction('op', 'name')(lambda h, x: C.tanh(h - x)), go_backwards={g})({a})", a=STEPS, g=FLAG),
    "loop twice": rule("(lambda r: r(r({a})))(C.layers.Recurrence(C.layers.RNNStep({n}), go_backwards={g}))", a=_VECTORS, n=integer(1, 2), g=FLAG),
    "loop on a loop": rule("loop(lambda h: C.tanh(C.sequence.broadcast_as(C.sequence.last(loop(lambda g: C.sin(g) + {a})), {a}) + h))", 2, a=STEPS),
    "loop with own weights in a loop": rule("loop(lambda h: C.tanh(C.times(loop(lambda g: C.softsign(C.times(g, {w}) + h)), {w}) + {a}))", a=_VECTORS, w=_SQUARE),
    "loop both delays": rule("loop(lambda h: C.tanh(C.sequence.past_value(C.sin(h)) + {a}))", a=STEPS),
    "loop delayed input": rule("loop(lambda h: C.tanh(h + C.sequence.future_value({a}) - C.sequence.past_value({a})))", a=STEPS),
    "loop with a mask": rule("loop(lambda h: C.element_select(C.sequence.is_first({a}), {a}, h + C.sequence.is_last({a})))", a=STEPS),
    "loop of a slice": rule("loop(lambda h: C.tanh(h + C.sequence.slice({a}, {range})))", a=STEPS, range=number("0, 2", "-2, 0", "0, -1")),
    "loop of a gather": rule("loop(lambda h: C.tanh(h * 0.5 + C.sequence.gather({a}, C.sequence.is_{end}({a}))))", a=STEPS, end=number("first", "last")),
    "loop initial per sequence": rule("loop(lambda h: C.tanh(h) + {a}, lambda h: C.sequence.{d}(h, C.sequence.{e}({a})))", 2, a=STEPS,
                                      d=number("past_value", "future_value"), e=number("first", "last")),
    "RecurrenceFrom last": rule("C.layers.RecurrenceFrom(C.layers.GRU(2))(C.sequence.last({b}), {a})", a=_VECTORS, b=_VECTORS),
    "UnfoldFrom in a loop": rule("C.layers.Fold(C.plus)(C.layers.UnfoldFrom(lambda s: C.tanh(s + {w}))({b}, {a}))", a=STEPS, b=_PER_SEQUENCE,
                                 w=weights("b", lambda draft, shape: shape)),
    # Clones, files, user functions
    "clone of the input": rule("C.combine([C.sin({a})]).clone('{how}', {{{i}: {b}}})", 2, a=ANY, i=input_below("a"), b=like("i", False), how=_HOW),
    "reload of the input": rule("reload(C.combine([C.sin({a})])).clone('{how}')", a=VECTOR, how=_HOW),
    "user function": rule("C.user_function(Square({a}))", 2, a=operand(axes=True)),
    "user function in a loop": rule("loop(lambda h: C.tanh(h + C.user_function(Square({a}))))", 0.5, a=STEPS),
    "to_sequence of unpacked": rule("C.to_sequence(C.sequence.unpack({a}, 0, no_mask_output=True))", a=STEPS),
    "unpack reduced": rule("C.reduce_sum(C.sequence.unpack({a}, 0, no_mask_output=True), 0)", a=STEPS),
    "unpack product": rule("C.times(C.sequence.unpack({a}, 0, no_mask_output=True), {b})", a=_VECTORS, b=weights("a", lambda draft, shape: (*shape, 2))),
    "gather of a gather": rule("C.sequence.gather(C.sequence.gather({a}, C.sequence.is_first({a})), C.sequence.is_last(C.sequence.gather({a}, C.sequence.is_first({a}))))", a=STEPS),
    "scatter of the ends": rule("C.sequence.scatter(C.sequence.gather({b}, C.sequence.is_last({a})), C.sequence.is_last({a}))", a=STEPS, b=same_step("a")),
    "broadcast of an end": rule("C.sequence.broadcast_as(C.sequence.{e}({a}), {b})", 2, a=STEPS, b=STEPS, e=number("first", "last")),
    "results of a Function": rule("C.Function(lambda x, y: (C.tanh(y) - x, y, x * 0.5))({a}, {b}).outputs[{i}] * 1", a=ANY, b=like("a"), i=integer(0, 2)),
    "results that come twice": rule("(lambda z: z.outputs[0] - z.outputs[1] * 0.5)(C.Function(lambda x: (lambda y: (y, y))(C.sin(x)))({a}))", 0.5, a=ANY),
    "clone in the middle": rule("(lambda h: C.tanh(h * 0.5).clone('{how}', {{h: {b}}}))(C.sin({a}))", a=ANY, b=like("a", False), how=_HOW),
    "clone of a part by name": rule("(lambda f: C.combine([f.find_by_name('part')]).clone('{how}') * f)(C.exp(C.alias(C.softsign({a}), 'part')))", a=ANY, how=_HOW),
    "reload of a combination": rule("reload(C.combine([C.tanh({a}), {b}])).outputs[0] * 2", 0.5, a=ANY, b=like("a", False)),
    "block of two results": rule("C.BlockFunction('op', 'name')(lambda x, y: (C.sin(y) + x, C.tanh(x)))({a}, {b}).outputs[{i}] * 1", a=ANY, b=like("a"), i=integer(0, 1)),
    "block in a block": rule("(lambda p: C.as_block(C.as_block(C.tanh(p), [(p, C.sin({a}))], 'inner') + {a}, [], 'outer'))(C.placeholder())", a=ANY),
}
