"""How users compose what the other rules have one of: shared layers, substitutions, operators, signatures; see `rules`."""

from __future__ import annotations

from .choosers import ANY, FLAG, Chooser, Chosen, input_below, integer, like, number, operand, weights
from .draft import Draft
from .program import BATCH
from .rules import RANKED, STEPS, VECTOR, Rule, rule

_VECTORS = operand(rank=1, sequence=True)
_PER_SEQUENCE = operand(rank=1, sequence=False, axes=True)
_HOW = number("share", "clone", "freeze")
_CELL = number("C.layers.LSTM(2)", "C.layers.GRU(2)", "C.layers.RNNStep(2)")
_KIND = "C.layers.typing.Tensor[{shape}]"


def shape_of(other: str) -> Chooser:
    return lambda draft, chosen: str(draft.type_of(chosen[other]).shape)


def several_axes(other: str) -> Chooser:
    """Static axes, each once, from the front or the back, among them perhaps the dynamic ones."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        t = draft.type_of(chosen[other])
        some = draft.random.sample(range(t.rank), min(t.rank, draft.random.randint(1, 3)))
        axes = [str(draft.random.choice([i, i - t.rank])) for i in some]
        if BATCH in t.axes and draft.random.random() < 0.3:
            axes.append("C.Axis.default_batch_axis()")
        return f"[{', '.join(axes)}]"

    return choose


COMPOSED: dict[str, Rule] = {
    # One layer, several times
    "composed: layer twice": rule("(lambda f: f({a}) - f({b}))({layer})", 2, a=RANKED, b=like("a", False),
                                  layer=number("C.layers.Dense(2, C.tanh)", "C.layers.LayerNormalization()", "C.layers.Stabilizer()", "C.layers.Dense((1, 2), input_rank=1)",
                                               "C.layers.Sequential([C.layers.Dense(3), C.relu, C.layers.Dense(2)])")),
    "composed: layer of itself": rule("(lambda f: f(C.sin(f({a}))))(C.layers.Dense({n}))", a=VECTOR, n=integer(1, 3)),
    "composed: loops of one layer": rule("(lambda r: C.sequence.{e}(r({a})) + C.sequence.last(r({b})))(C.layers.Recurrence({cell}))", 2, a=_VECTORS, b=like("a", False), cell=_CELL,
                                         e=number("first", "last")),
    "composed: fold of one cell": rule("(lambda c: C.layers.Fold(c)({a}) - C.layers.Fold(c, go_backwards=True)({a}))({cell})", a=_VECTORS, cell=_CELL),
    "composed: Embedding of both": rule("(lambda e: e({a}) - e({b}))(C.layers.Embedding({n}))", a=operand(rank=1, sparse=True), b=like("a", False), n=integer(1, 3)),
    "composed: tied weights": rule("C.times(C.tanh(C.times({a}, {w})), C.transpose({w}, (1, 0)))", 2, a=operand(rank=1, sparse=None), w=weights("a", lambda draft, shape: (*shape, 2))),
    "composed: one layer in a loop and out of it": rule("(lambda f: loop(lambda h: C.tanh(f(h) + {a})) * f({a}))(C.layers.Dense({a}.shape))", a=_VECTORS),
    # States
    "composed: states of several kinds": rule("C.layers.Recurrence(C.layers.LSTM(2), initial_state=({r}, {s}), go_backwards={g}, return_full_state=True)({a}).outputs[{i}] * 1",
                                              a=_VECTORS, r=number("C.constant(0.25, dtype=T)", "C.parameter(init=data(1, 2))"), s=number(0.5, "C.constant([0.5, 1], dtype=T)", "C.parameter(init=data(2, 2))"), g=FLAG, i=integer(0, 1)),
    "composed: two cells in a step": rule("(lambda c, d: C.layers.Recurrence(lambda h, g, x: (lambda y: (y, d(g, y)))(c(h, x)), go_backwards={g}, return_full_state=True)({a}).outputs[{i}] * 1)"
                                          "(C.layers.GRU(2), C.layers.{d}(3))", 2, a=_VECTORS, d=number("GRU", "RNNStep"), g=FLAG, i=integer(0, 1)),
    "composed: Fold of a lambda": rule("C.layers.Fold(lambda h, x: {f}, initial_state={i}, go_backwards={g})({a})", 2, a=STEPS, i=number(0, 0.5), g=FLAG,
                                       f=number("C.element_max(h, x)", "h * 0.5 + x", "C.element_select(C.greater(x, 0), x, h)", "C.log_add_exp(h, x)")),
    "composed: Fold of a pair": rule("C.layers.Fold(lambda h, n, x: (C.tanh(h + x), C.sin(n - h)), return_full_state=True)({a}).outputs[{i}] * 1", a=STEPS, i=integer(0, 1)),
    "composed: Recurrence of layers": rule("C.layers.Recurrence((lambda f: C.Function(lambda h, x: C.tanh(f(C.splice(h, x)))))"
                                           "(C.layers.Sequential([C.layers.Dense(3, C.tanh), C.layers.Dense(2)])), go_backwards={g})({a})", a=_VECTORS, g=FLAG),
    "composed: RecurrenceFrom states": rule("(lambda e: C.layers.RecurrenceFrom(C.layers.LSTM(2), go_backwards={g})(*[C.sequence.last(o) for o in e({b}).outputs], {a}))"
                                            "(C.layers.Recurrence(C.layers.LSTM(2), return_full_state=True))", 2, a=_VECTORS, b=_VECTORS, g=FLAG),
    "composed: window of attention": rule("(lambda w: C.reduce_sum(w.outputs[0]) * C.reduce_sum(w.outputs[1]))(C.layers.PastValueWindow({n}, {axis}, go_backwards={g})({a}))",
                                          a=_VECTORS, n=integer(1, 3), axis=number(-2, 0), g=FLAG),
    "composed: attention twice": rule("(lambda m: m({a}, {b}) * m({a}, C.sin({b})))(C.layers.AttentionModel(2))", a=_VECTORS, b=operand(rank=1, axes=True)),
    "composed: stacked residual steps": rule("C.layers.For(range(2), lambda i: C.layers.ResNetBlock(C.layers.Sequential([C.layers.Recurrence(C.layers.GRU({a}.shape)), C.layers.Stabilizer()])))({a})",
                                             a=_VECTORS),
    # Substitutions, names, blocks
    "composed: placeholders swapped": rule("(lambda p, q: (C.sin(p) - q * 0.5).replace_placeholders({{p: {b}, q: {a}}}))(C.placeholder(), C.placeholder())", a=ANY, b=like("a")),
    "composed: placeholder replaced twice": rule("(lambda p, q: C.combine([C.tanh(p) - {b}]).replace_placeholder(q - {b}).replace_placeholder({a}))(C.placeholder(), C.placeholder())", a=ANY, b=like("a")),
    "composed: clone of two parts": rule("(lambda g, h: (C.tanh(g) * h).clone('{how}', {{g: {c}, h: {a}}}))(C.sin({a}), C.cos({b}))", a=ANY, b=like("a", False), c=like("a", False), how=_HOW),
    "composed: clone of a loop": rule("C.layers.Recurrence({cell})(C.tanh({a})).clone('{how}', {{{i}: {b}}})", a=operand(rank=1, sequence=True, axes=True), cell=_CELL, i=input_below("a"),
                                      b=like("i", False), how=_HOW),
    "composed: clone of a clone": rule("C.layers.Dense(2)(C.sin({a})).clone('{how}').clone('{how2}') * 2", a=RANKED, how=_HOW, how2=_HOW),
    "composed: find_all_with_name": rule("(lambda f: C.combine([f.find_all_with_name('d')[{i}]]) * 1 + C.reduce_sum(f))"
                                         "(C.layers.Sequential([C.layers.Dense(2, name='d'), C.tanh, C.layers.Dense(3, name='d')])({a}))", a=RANKED, i=number(0, 1)),
    "composed: parameter by name": rule("(lambda f: f * C.reduce_sum(f.{name}))(C.layers.Dense(2)({a}))", a=RANKED, name=number("W", "b", "parameters[0]", "inputs[0]")),
    "composed: root of a block": rule("(lambda f: C.combine([f.root_function.block_root]).clone('{how}', dict(f.root_function.block_arguments_mapping)))(C.layers.{layer}({a}))", a=RANKED, how=_HOW,
                                      layer=number("Dense(2)", "LayerNormalization()", "Stabilizer()")),
    "composed: renamed": rule("(lambda f: [setattr(f, 'name', 'new'), f][1])(C.{f}({a}))", 0.5, a=ANY, f=number("sin", "alias", "reduce_sum")),
    "composed: combination of combinations": rule("C.combine([C.combine([C.sin({a}), {b}]), C.combine([C.tanh({a})])]).outputs[{i}] * 1", a=ANY, b=like("a"), i=integer(0, 2)),
    "composed: arguments by name": rule("C.Function(lambda x, y: C.tanh(x) - y * 0.5)(y={a}, x={b})", a=ANY, b=like("a")),
    "composed: Function of Functions": rule("(lambda f: C.Function(lambda x, y: f(f(x, y), x))({a}, {b}))(C.Function(lambda x, y: C.sin(x) - y))", a=ANY, b=like("a")),
    "composed: signature": rule("(lambda f: [f.update_signature(" + _KIND + "), f({a})][1])({layer})", a=operand(at_least=1, closed=True), shape=shape_of("a"),
                                layer=number("C.layers.Dense(2)", "C.layers.LayerNormalization()", "C.layers.Sequential([C.layers.Dense(2), C.tanh])")),
    "composed: signature of steps": rule("(lambda f: [f.update_signature(C.layers.typing.Sequence[" + _KIND + "]), f({a})][1])(C.layers.{f})",
                                         a=operand(rank=1, sequence=True, closed=True), shape=shape_of("a"), f=number("Recurrence(C.layers.GRU(2))", "Fold(C.layers.LSTM(2))")),
    "composed: typed Function": rule("C.Function(C.layers.Signature(" + _KIND + ")(lambda x: C.sin(x) * 2))({a})", a=operand(at_least=1, closed=True), shape=shape_of("a")),
    # Operators of Python; those that compare are no operations
    "composed: operator": rule("({a} {op} {b})", 2, a=ANY, b=like("a"), op=number("+", "-", "*", "/")),
    "composed: operator of a number": rule("(2 {op} ({a} * 1))", a=ANY, op=number("+", "-", "*", "/")),
    "composed: number behind": rule("(({a} * 1) {op} 2)", a=ANY, op=number("+", "-", "*", "/")),
    "composed: operator @": rule("({a} @ {w})", a=operand(at_least=1, closed=True), w=weights("a", lambda draft, shape: (shape[-1], 2))),
    "composed: sign and size": rule("{f}(C.sin({a}))", 0.5, a=ANY, f=number("abs", "-", "+")),
    "composed: index": rule("C.sin({a})[{i}]", 3, a=operand(at_least=1, closed=True), i=number("0", "-1", "0:1", "-1:", "..., 0", "..., 0:1", ":, 0", "0, 0", "::1", "0:2:1", "[0]", "[0, 0]", "0:1, ..., 0", "1:")),
    "composed: iterated": rule("C.splice(*[x * i for i, x in enumerate(C.combine([C.sin({a}), C.tanh({a})]).outputs)])", 0.5, a=RANKED),
    # Axes, leaves, files
    "composed: reduction of axes": rule("C.reduce_{op}({a}, axis={x}, keepdims={k})", 3, a=RANKED, op=number("sum", "mean", "max", "min", "prod", "log_sum_exp", "l1", "l2", "sum_square"),
                                        x=several_axes("a"), k=FLAG),
    "composed: view of an array": rule("{a} * C.reduce_sum(C.constant(C.NDArrayView.from_dense(data(3, 4, 3)){s}))", a=ANY, s=number("", ".slice_view((1, 0), (2, 3), True)", ".slice_view([0, 1], [2])")),
    "composed: parameter of a value": rule("{a} * C.{leaf}{i}, dtype=T)", a=ANY, leaf=number("parameter(init=", "constant("), i=number("0.5", "[0.25]")),
    "composed: inferred parameter": rule("C.times({a}, C.parameter((C.InferredDimension, {n}), init=C.initializer.{i}, dtype=T))", a=operand(at_least=1, sparse=None, closed=True), n=integer(1, 3),
                                         i=number("uniform(1, seed=3)", "glorot_normal(seed=4)", "he_uniform(seed=2)", "xavier(seed=5)")),
    "composed: reload and clone": rule("reload(C.layers.Sequential([C.layers.Dense(2), C.layers.Recurrence({cell})])({a})).clone('{how}') * 2", a=_VECTORS, cell=_CELL, how=_HOW),
    "composed: user function of two": rule("(lambda f: f.outputs[{i}] * f.outputs[{j}])(C.user_function(Pair({a}, {a} * C.cos({b}))))", 2, a=operand(axes=True), b=like("a", False), i=number(0, 1), j=number(0, 1)),
    "composed: user function of a table": rule("C.user_function(Square(C.alias(C.one_hot(C.round(C.abs({a})), 3, True)))) * {w}", 0.3, a=operand(rank=0, axes=True), w=weights("a", lambda draft, shape: (3,))),
    "composed: user functions in a row": rule("C.user_function(Square(C.user_function(Square({a})) - {b})) * C.user_function(Square({b}))", a=operand(axes=True), b=like("a", False)),
    "composed: hardmax of an Embedding": rule("C.layers.Embedding(2)(C.hardmax(C.layers.Dense(3)({a})))", a=RANKED),
    "composed: assigned on the way": rule("C.assign({w}, C.reduce_sum({b}) * C.ones_like({w})) + {a}", 0.5, a=operand(axes=False), w=weights("a", lambda draft, shape: shape), b=operand(axes=False)),
    "composed: normalized convolutions": rule("C.layers.For(range(2), lambda: C.layers.Sequential([C.layers.Convolution2D((2, 2), 2, pad=True, bias=False), C.layers.BatchNormalization(map_rank=1), C.relu]))({a})",
                                              a=operand(rank=3, closed=True, sequence=False, axes=True)),
    "composed: layers of several axes": rule("C.layers.Dense({n}, map_rank={m})({a})", a=operand(at_least=3, closed=True), n=number(2, "(1, 2)"), m=number(1, 2)),
    "composed: sequences of two axes": rule("C.sequence.reduce_sum({a} * C.sequence.broadcast_as(C.sequence.{e}({b}), {a}))", a=STEPS, b=like("a"), e=number("first", "last", "reduce_max")),
}
