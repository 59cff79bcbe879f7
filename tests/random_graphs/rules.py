"""What each operation, loss, metric and layer takes: a template, and how its gaps are filled, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from .choosers import (
    ANY,
    FLAG,
    Chooser,
    axis,
    factor,
    first_size,
    integer,
    interval,
    last_index,
    like,
    number,
    operand,
    padding,
    per_axis,
    permutation,
    reduced_axes,
    reshaped,
    same_step,
    weights,
)


@dataclass(frozen=True)
class Rule:
    """`template` has a gap for each of `choosers`; `weight` is how often it is used."""

    template: str
    choosers: dict[str, Chooser]
    weight: float = 1.0


def rule(template: str, weight: float = 1.0, **choosers: Chooser) -> Rule:
    return Rule(template, choosers, weight)


RANKED = operand(at_least=1)
VECTOR = operand(rank=1)
MATRIX = operand(rank=2)
IMAGE = operand(rank=3, closed=True, axes=True)  # CNTK pools others wrongly: docs/compatibility.md
STEPS = operand(sequence=True)
CONDITION = operand(rank=0, sequence=True)
CLOSED = operand(closed=True)

_UNARY = (
    "abs acos asin asinh atan atanh ceil cos cosh element_not elu exp floor leaky_relu log negate "
    "reciprocal relu round selu sigmoid sin sinh softplus softsign sqrt square tanh zeros_like ones_like alias "
    "stop_gradient"
)
_BINARY = (
    "element_divide element_max element_min element_times equal greater greater_equal less less_equal log_add_exp minus "
    "not_equal plus element_and element_or element_xor"
)
_REDUCTIONS = (
    "reduce_l1 reduce_l2 reduce_log_sum_exp reduce_max reduce_mean reduce_min reduce_prod reduce_sum reduce_sum_square"
)

RULES: dict[str, Rule] = {
    **{n: rule(f"C.{n}({{a}})", 0.4, a=ANY) for n in _UNARY.split()},
    **{n: rule(f"C.{n}({{a}}, {{b}})", a=ANY, b=like("a")) for n in _BINARY.split()},
    **{n: rule(f"C.{n}({{a}}, {{axis}})", a=ANY, axis=reduced_axes("a")) for n in _REDUCTIONS.split()},
    "hard_sigmoid": rule("C.hard_sigmoid({a}, 0.3, 0.5)", 0.4, a=ANY),
    "pow": rule("C.pow({a}, {b})", a=ANY, b=number(2, 1, 3, 0)),
    "sum": rule("C.sum([{a}, {b}, {c}])", a=ANY, b=like("a", False), c=like("a")),
    "mean": rule("C.mean([{a}, {b}])", a=ANY, b=like("a", False)),
    "clip": rule("C.clip({a}, {low}, {high})", a=ANY, low=number(-0.5, 0, "C.constant(-0.25, dtype=T)"), high=number(0.5, 0.75)),
    "element_select": rule("C.element_select({a}, {b}, {c})", a=ANY, b=like("a"), c=like("a")),
    "param_relu": rule("C.param_relu({b}, {a})", a=ANY, b=weights("a", lambda d, s: s)),
    "softmax": rule("C.softmax({a}, {axis})", a=RANKED, axis=axis("a")),
    "log_softmax": rule("C.log_softmax({a}, {axis})", a=RANKED, axis=axis("a")),
    "hardmax": rule("C.hardmax({a})", a=ANY),
    "of all elements": rule("C.{f}({a})", 0.5, a=ANY, f=number("argmax", "argmin", "softmax")),
    "argmax": rule("C.argmax({a}, {axis})", a=RANKED, axis=axis("a")),
    "argmin": rule("C.argmin({a}, {axis})", a=RANKED, axis=axis("a")),
    "top_k of numbers": rule("C.top_k({a}, 1).outputs[{i}]", 0.3, a=operand(rank=0), i=number(0, 1)),
    "top_k": rule("C.top_k({a}, 1, {axis}).outputs[{i}]", a=RANKED, axis=axis("a"), i=number(0, 1)),
    "times": rule("C.times({a}, {b})", 4, a=operand(at_least=1, sparse=None), b=factor("a")),
    "times output_rank": rule("C.times({a}, {b}, output_rank={n})", 2, a=RANKED, b=factor("a"), n=integer(0, 2)),
    "times_transpose": rule("C.times_transpose({a}, {b})", a=VECTOR, b=weights("a", lambda d, s: (d.random.randint(1, 4), *s))),
    "reshape": rule("C.reshape({a}, {shape})", a=CLOSED, shape=reshaped("a")),
    "reshape axes": rule("C.reshape({a}, ({n}, -1), {i}, {i} + 1)", a=operand(at_least=2), n=number(1, 1, 2), i=integer(0, 1)),
    "flatten": rule("C.flatten({a}, {i})", a=RANKED, i=axis("a")),
    "squeeze": rule("C.squeeze({a})", a=ANY),
    "expand_dims": rule("C.expand_dims({a}, {axis})", a=ANY, axis=axis("a", new=True)),
    "transpose": rule("C.transpose({a}, {order})", a=RANKED, order=permutation("a")),
    "swapaxes": rule("C.swapaxes({a}, {i}, {j})", a=RANKED, i=axis("a"), j=axis("a")),
    "slice": rule("C.slice({a}, {axis}, {range})", a=operand(at_least=1, closed=True), axis=axis("a"), range=interval("a", "axis")),
    "slice strides": rule("C.slice({a}, {axis}, {range}, {stride})", a=operand(at_least=1, closed=True), axis=axis("a"),
                          range=interval("a", "axis"), stride=number(-1, -1, -1, 2)),
    "splice": rule("C.splice({a}, {b}, axis={axis})", 2, a=RANKED, b=like("a"), axis=axis("a", new=True)),
    "pad": rule("C.pad({a}, {pattern}, mode=C.ops.{mode}, constant_value={value})", a=operand(at_least=1, closed=True),
                pattern=padding("a"), mode=number("CONSTANT_PAD", "CONSTANT_PAD", "REFLECT_PAD", "SYMMETRIC_PAD"), value=number(0, 1.5)),
    "one_hot": rule("C.one_hot(C.floor(C.abs({a})), 3, {sparse}, {axis})", a=ANY, sparse=FLAG, axis=axis("a", new=True)),
    "gather": rule("C.gather({b}, C.element_min(C.floor(C.abs({a})), C.constant({last}, dtype=T)), {axis})", a=ANY,
                   b=operand(at_least=1, axes=False, closed=True), axis=axis("b"), last=last_index("b", "axis")),
    "cast": rule("C.cast({a}, {type})", 0.5, a=ANY, type=number("np.float32", "np.float64")),
    "eye_like": rule("C.eye_like({a}, {sparse})", a=MATRIX, sparse=FLAG),
    "reconcile_dynamic_axes": rule("C.reconcile_dynamic_axes({a}, {b})", a=operand(axes=False), b=operand(axes=True)),
    "unpack_batch": rule("C.unpack_batch({a})", 0.5, a=operand(axes=True, sequence=False)),
    "to_batch": rule("C.to_batch({a})", 0.5, a=operand(at_least=1, axes=False)),
    "unpack_batch to_batch": rule("C.to_batch(C.tanh(C.unpack_batch({a})))", 0.5, a=operand(axes=True, sequence=False)),
    "to_sequence": rule("C.to_sequence({a})", a=operand(at_least=2, axes=True, sequence=False)),
    "to_sequence lengths": rule("C.to_sequence({a}, C.ones_like(C.reduce_sum({a})) * C.constant({n}, dtype=T))", a=operand(at_least=2, axes=True, sequence=False, closed=True), n=first_size("a")),
    "to_sequence_like": rule("C.to_sequence_like(C.sequence.unpack({a}, 0, no_mask_output=True), {b})", a=STEPS, b=same_step("a")),
    "unpack": rule("C.sequence.unpack({a}, {padding}, no_mask_output=True)", 2, a=STEPS, padding=number(0, -1)),
    "unpack mask": rule("C.sequence.unpack({a}, 0).outputs[1]", a=STEPS),
    "past_value": rule("C.sequence.past_value({a}, {initial}, {t})", 2, a=STEPS, initial=number("0", "1.5", "None"), t=number(1, 1, 2)),
    "past_value variable": rule("C.sequence.past_value({a}, {b})", a=STEPS, b=weights("a", lambda d, s: s)),
    "future_value": rule("C.sequence.future_value({a}, {initial}, {t})", 2, a=STEPS, initial=number("0", "1.5", "None"), t=number(1, 1, 2)),
    "delay": rule("C.sequence.delay({a}, None, {t})", a=STEPS, t=number(-2, -1, 0, 1, 2)),
    "first": rule("C.sequence.first({a})", a=STEPS),
    "last": rule("C.sequence.last({a})", 2, a=STEPS),
    "is_first": rule("C.sequence.is_first({a})", a=STEPS),
    "is_last": rule("C.sequence.is_last({a})", a=STEPS),
    "sequence slice": rule("C.sequence.slice({a}, {range})", 2, a=STEPS, range=number("0, 1", "1, 0", "0, -1", "-2, 0", "1, 2", "-1, 0", "0, 2")),
    "sequence reduce_sum": rule("C.sequence.reduce_sum({a})", 2, a=STEPS),
    "sequence reduce_max": rule("C.sequence.reduce_max({a})", a=STEPS),
    "sequence softmax": rule("C.sequence.softmax({a})", a=STEPS),
    "broadcast_as": rule("C.sequence.broadcast_as({b}, {a})", 2, a=STEPS, b=operand(sequence=False)),
    "where": rule("C.sequence.where(C.greater({a}, -0.25))", a=CONDITION),
    "sequence gather": rule("C.sequence.gather({b}, C.greater({a}, -0.25))", 2, a=CONDITION, b=same_step("a")),
    "scatter": rule("C.sequence.scatter(C.sequence.gather({b}, C.greater({a}, -0.5)), C.greater({a}, -0.5))", a=CONDITION, b=same_step("a")),
    # Losses and metrics
    "cross_entropy_with_softmax": rule("C.cross_entropy_with_softmax({a}, {b})", a=VECTOR, b=like("a", False)),
    "cross_entropy axis": rule("C.cross_entropy_with_softmax({a}, {b}, {axis})", a=MATRIX, b=like("a", False), axis=axis("a")),
    "squared_error": rule("C.squared_error({a}, {b})", a=ANY, b=like("a", False)),
    "binary_cross_entropy": rule("C.binary_cross_entropy(C.sigmoid({a}), C.sigmoid({b}))", a=ANY, b=like("a", False)),
    "weighted_binary_cross_entropy": rule("C.weighted_binary_cross_entropy(C.sigmoid({a}), C.sigmoid({b}), C.ones_like({a}))",
                                          a=VECTOR, b=like("a", False)),
    "cosine_distance": rule("C.cosine_distance({a}, {b})", a=VECTOR, b=same_step("a")),
    "cosine_distance same": rule("C.cosine_distance({a}, {b})", a=VECTOR, b=like("a", False)),
    "cosine_distance_with_negative_samples": rule("C.cosine_distance_with_negative_samples({a}, {b}, 1, {n})", a=operand(rank=1, sequence=False),
                                                  b=like("a", False), n=integer(1, 2)),
    "lambda_rank": rule("C.lambda_rank(C.reduce_sum({a}), C.reduce_l1({b}), C.zeros_like(C.reduce_sum({a})))", 0.1, a=operand(rank=1), b=like("a", False)),
    "ndcg_at_1": rule("C.ndcg_at_1(C.reduce_sum({a}), C.reduce_l1({b}), C.zeros_like(C.reduce_sum({a})))", 0.1, a=operand(rank=1), b=like("a", False)),
    "fmeasure": rule("C.losses.fmeasure({a}, {b})", 0.5, a=VECTOR, b=like("a", False)),
    "classification_error": rule("C.classification_error({a}, {b}, topN={n})", a=VECTOR, b=like("a", False), n=number(1, 1, 2)),
    "classification_error axis": rule("C.classification_error({a}, {b}, {axis})", a=MATRIX, b=like("a", False), axis=axis("a")),
    "edit_distance_error": rule("C.edit_distance_error({a}, {b})", a=operand(rank=1, sequence=True), b=like("a", False)),
    # Images
    "convolution": rule("C.convolution({k}, {a}, strides={s}, auto_padding=[False, {p}, {p}])", a=IMAGE,
                        k=weights("a", lambda d, s: (d.random.randint(1, 3), s[0], *(d.random.randint(1, n) for n in s[1:]))),
                        s=number("(1,)", "(1, 2, 1)", "(1, 2, 2)"), p=FLAG),
    "convolution groups": rule("C.convolution({k}, C.splice({a}, {a} * 0.5, axis=0), strides=({c}, {s}, 1), auto_padding={p}, groups=2)", 0.5, a=IMAGE,
                               k=weights("a", lambda d, s: (2 * d.random.randint(1, 2), s[0], *(d.random.choice([1, 3]) if n > 2 else 1 for n in s[1:]))),
                               c=number(1, 8, 8), s=number(1, 2), p=number("[False, False, False]", "[False, True, True]", "[True]")),
    "convolution_transpose": rule("C.convolution_transpose({k}, {a}, strides=(1, {s}, {s}), auto_padding=[False, {p}, {p}])", a=IMAGE,
                                  k=weights("a", lambda d, s: (s[0], d.random.randint(1, 2), 2, 2)), s=number(1, 2), p=FLAG),
    "pooling": rule("C.pooling({a}, C.{kind}_POOLING, {window}, {strides}, auto_padding=[{p}], ceil_out_dim={c}, include_pad={i})", 2,
                    a=IMAGE, kind=number("MAX", "AVG"), window=per_axis("a", 1, 2, 3), strides=per_axis("a", 1, 2), p=FLAG, c=FLAG, i=FLAG),
    "unpooling": rule("C.unpooling(C.stop_gradient(C.pooling({a}, C.MAX_POOLING, (1, 2), (1, 2))), {a}, C.MAX_UNPOOLING, (1, 2), (1, 2))", a=IMAGE),
    "depth_to_space": rule("C.depth_to_space(C.splice({a}, {a}, {a}, {a}, axis=0), 2)", 0.5, a=IMAGE),
    "space_to_depth": rule("C.space_to_depth({a}, {n})", 0.5, a=IMAGE, n=number(1, 2)),
    "local_response_normalization": rule("C.local_response_normalization({a}, 1, 1.0, 0.5, 0.75)", 0.5, a=IMAGE),
    "mean_variance_normalization": rule("C.mean_variance_normalization({a}, use_stats_across_channels={f}, do_variance_scaling={g})", 0.5,
                                        a=IMAGE, f=FLAG, g=FLAG),
    "image_scaler": rule("C.image_scaler({a}, 0.5, [0.25] * {n})", 0.5, a=IMAGE, n=integer(1, 4)),
    "crop_manual": rule("C.crop_manual({a}, {b}, {i}, {j})", 0.5, a=IMAGE, b=like("a", False), i=number(0, 0, 0, 1), j=number(0, 0, 0, 1)),
    "roipooling": rule("C.roipooling({a}, {b}, C.MAX_POOLING, (2, 2), 1.0)", 0.3, a=operand(rank=3, closed=True, axes=True, sequence=False),
                       b=weights("a", lambda d, s: (2, 4))),
    "per_dim_mean_variance_normalize": rule("C.per_dim_mean_variance_normalize({a}, {b}, {c})", 0.5, a=CLOSED,
                                            b=weights("a", lambda d, s: s), c=weights("a", lambda d, s: s)),
    "straight_through_impl": rule("C.straight_through_impl({a})", 0.3, a=ANY),
    # Random numbers, which are CNTK's where the shape is given
    "uniform": rule("C.random.uniform({shape}, T, -1, 1, seed={seed})", 0.3, shape=number((2, 3), (4,), (1, 2)), seed=integer(1, 9)),
    "normal": rule("C.random.normal({shape}, T, seed={seed})", 0.3, shape=number((2, 3), (4,), (1, 2)), seed=integer(1, 9)),
    "bernoulli": rule("C.random.bernoulli({shape}, T, 0.5, seed={seed})", 0.3, shape=number((2, 3), (4,)), seed=integer(1, 9)),
    "gumbel": rule("C.random.gumbel({shape}, T, seed={seed})", 0.3, shape=number((2, 3), (4,)), seed=integer(1, 9)),
    # Structure
    "assign": rule("C.assign({b}, {a})", 0.3, a=operand(axes=False), b=weights("a", lambda d, s: s)),
    "block": rule("(lambda p: C.as_block(C.tanh(p) + {b}, [(p, {a})], 'block'))(C.placeholder())", a=ANY, b=weights("a", lambda d, s: s)),
    "Function": rule("C.Function(lambda x, y: C.tanh(x) - y)({a}, {b})", a=ANY, b=like("a")),
    "BlockFunction": rule("C.BlockFunction('op', 'name')(lambda x: C.sigmoid(x) * {b})({a})", a=ANY, b=like("a")),
    "clone": rule("C.combine([C.tanh({a})]).clone('{how}')", a=ANY, how=number("share", "clone", "freeze")),
    "clone substituted": rule("(lambda p: (C.sin(p) * {b}).clone('{how}', {{p: {a}}}))(C.placeholder())", a=ANY, b=like("a"),
                              how=number("share", "clone", "freeze")),
    "replace_placeholders": rule("(lambda p: (C.sin(p) * {b}).replace_placeholders({{p: {a}}}))(C.placeholder())", a=ANY, b=like("a")),
    "reload": rule("reload(C.combine([C.tanh({a})]))", a=ANY),
    # Recurrences
    "loop": rule("loop(lambda h: C.tanh(h * C.constant(0.5, dtype=T) + {a}))", 2, a=STEPS),
    "loop backwards": rule("loop(lambda h: C.sigmoid({a} - h), C.sequence.future_value)", a=STEPS),
    "loop product": rule("loop(lambda h: C.tanh(C.times(h, {w}) + {a}))", 2, a=operand(rank=1, sequence=True), w=weights("a", lambda d, s: (*s, *s))),
    "loop broadcast": rule("loop(lambda h: C.relu(h) + {b})", a=STEPS, b=like("a")),
    "loop mutual": rule("loop(lambda h: C.tanh(loop(lambda g: C.sin(g + h)) + {a}))", a=STEPS),
    "loop both ways": rule("loop(lambda h: C.softsign(h) + {a}) + loop(lambda h: C.sin(h + {a}), C.sequence.future_value)", a=STEPS),
    "loop two delays": rule("loop(lambda h: C.tanh(h + {a}), lambda h: C.sequence.past_value(h) - C.sequence.past_value(h, time_step=2))", a=STEPS),
    "loop reduced": rule("loop(lambda h: C.softsign({a} + C.reduce_sum(h)))", a=STEPS),
    "loop gated": rule("loop(lambda h: C.element_select(C.greater({a}, 0), h, {b}))", a=STEPS, b=like("a", False)),
    "loop initial": rule("loop(lambda h: C.tanh(h) + {a}, lambda h: C.sequence.past_value(h, {b}))", a=STEPS, b=weights("a", lambda d, s: s)),
}
