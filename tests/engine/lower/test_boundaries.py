"""What XLA makes of chains of operations grows linearly with their length."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntk as C
from cntkjax.engine.lower.boundaries import EXPENSIVE, boundaries, bounded
from cntkjax.engine.lower.inlining import Inlined
from cntkjax.engine.xla.compiler import loop_barrier_options, quick_options
from cntkjax.primitives.elementwise import ELEMENTWISE

X, W = np.linspace(0.1, 0.9, 30, dtype=np.float32).reshape(3, 10), np.full(10, 0.5, np.float32)
TERNARY = {"Clip": lambda h, w: (h, w, w + 1), "Select": lambda h, w: (h - w, h, w)}
BINARY = {
    "Plus", "Minus", "ElementTimes", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogPlus",
    "Pow",
}


def apply(name, h, w):
    operands = TERNARY[name](h, w) if name in TERNARY else (h, w) if name in BINARY else (h,)
    return ELEMENTWISE[name].lower({}, *operands)


FORMS = {
    "alone": lambda f, h, w: f(h * w + 0.1, w),
    "gated": lambda f, h, w: jax.nn.sigmoid(h) * h + f(h, w) * w,
    "residual": lambda f, h, w: h + f(h * w, w),
    "product": lambda f, h, w: f(h @ jnp.diag(w), w),
    "reduction": lambda f, h, w: f(h - jnp.mean(h, -1, keepdims=True), w),
}


def gradient_of_chain(names, form):
    """The gradients of a chain of operations with a weight each, whose number is that of the weights."""

    def total(x, weights):
        h = x
        for name, w in zip(itertools.cycle(names), weights, strict=False):
            h = FORMS[form](lambda *operands, name=name: apply(name, *operands), h, w)
        return jnp.sum(h)

    return jax.grad(total, (0, 1))


def compiled(function, *arguments):
    """As programs of this package are compiled, but quickly."""
    function = bounded(jax.jit(function).trace(*arguments)) or function
    return jax.jit(function, compiler_options=quick_options() | loop_barrier_options()).lower(*arguments).compile()


def instructions(function, depth):
    return compiled(function, X, [W] * depth).as_text().count(" = ")


def check(names, form, depth):
    """What is quadratic grows by four. A little more than two is right: short chains are repeated as a whole."""
    gradient = gradient_of_chain(names, form)
    short, long = instructions(gradient, depth), instructions(gradient, 2 * depth)
    assert long <= 2.5 * short, f"{names}, {form}: {short} instructions for {depth} links, {long} for {2 * depth}"


@pytest.mark.parametrize("form", FORMS)
def test_chains_of_tanh_of_every_form_grow_linearly(form):
    check(["Tanh"], form, depth=10)


def mixtures(stride, length=4):
    """All operations in groups; other strides make other neighbours."""
    names = list(ELEMENTWISE)
    order = [names[stride * i % len(names)] for i in range(len(names))]
    return [order[i : i + length] for i in range(0, len(order), length)]


@pytest.mark.parametrize("names", [*mixtures(1), *mixtures(7)], ids="-".join)
def test_chains_of_all_operations_grow_linearly(names):
    check(names, "gated", depth=12)


def test_a_chain_that_is_only_evaluated_has_kernels_of_bounded_size():
    def evaluate(x, weights):
        for w in weights:
            x = apply("Tanh", x * w + 0.1, w)
        return x

    trace = Inlined(jax.jit(evaluate).trace(X, [W] * 60).jaxpr)
    assert 3 <= len(boundaries(trace)) <= 12


@pytest.mark.parametrize("operation, shape, length", [
    (lambda h, w: h * w, (3, 1), 60),  # w is repeated in each row
    (lambda h, w: jnp.sum((h * w)[:, None], 1), (3, 10), 40),  # a sum over an axis of size 1 is a view, and no kernel
], ids=["repeated operand", "sum over one"])
def test_what_xla_makes_of_an_operation_is_counted(operation, shape, length):
    def evaluate(x, weights):
        return list(itertools.accumulate(weights, operation, initial=x))

    ones = [np.ones(shape, np.float32)] * length
    assert boundaries(Inlined(jax.jit(evaluate).trace(X, ones).jaxpr))


def test_slices_of_what_a_loop_has_stacked_are_counted_in_each_kernel():
    def evaluate(x, weights):
        return list(itertools.accumulate(weights, lambda h, w: h * w, initial=x))

    trace = Inlined(jax.jit(evaluate).trace(X, [X] * 40).jaxpr)
    assert not boundaries(trace)
    assert boundaries(trace, sliced=range(1, 41))


def doubled(value, times):
    """Twice the value, so often, and a sum of each."""
    chain = list(itertools.accumulate(range(times), lambda h, _: h + h, initial=value))
    return [jnp.sum(h, 0) for h in chain]


@pytest.mark.parametrize("links, number", [(40, 0), (80, 1), (160, 2)])
def test_cheap_links_that_many_kernels_repeat_have_boundaries_before_the_chain_is_long(links, number):
    trace = Inlined(jax.jit(lambda x: doubled(x, links)).trace(X).jaxpr)
    assert len(boundaries(trace)) == number


def test_what_follows_from_literals_alone_is_left_to_xla():
    trace = Inlined(jax.jit(lambda: doubled(jnp.ones((3, 10)), 200)).trace().jaxpr)
    assert not boundaries(trace)


def in_a_loop(function):
    """The function computed in each step of a loop."""
    return lambda x, *arguments: jax.lax.map(lambda x: function(x, *arguments), jnp.stack([x, 2 * x]))


@pytest.mark.parametrize("where", [lambda function: function, in_a_loop], ids=["program", "loop"])
def test_values_are_the_same_with_boundaries(where):
    gradient = where(gradient_of_chain(["Tanh"], "alone"))
    assert bounded(jax.jit(gradient).trace(X, [W] * 6))
    (dx, dw), (dx_plain, dw_plain) = compiled(gradient, X, [W] * 6)(X, [W] * 6), jax.jit(gradient)(X, [W] * 6)
    np.testing.assert_allclose(dx, dx_plain, rtol=1e-6)
    np.testing.assert_allclose(dw, dw_plain, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(EXPENSIVE))
def test_an_expensive_operation_is_computed_once_for_several_kernels(name):
    def operation(x):
        function = getattr(jax.lax, name)
        return function(x, x + 1) if name in ("div", "pow", "rem") else function(x)

    def kernels(x):
        return jnp.sum(x * 2, 0), x[::-1] + 1, jnp.sum(x, 1)

    def cost(function):
        counts = compiled(function, X).cost_analysis()
        return counts.get("flops", 0) + counts.get("transcendentals", 0)

    assert cost(lambda x: kernels(operation(x))) - cost(kernels) < 2 * cost(operation)


def test_what_meets_again_soon_and_what_is_cheap_is_not_stored():
    def twice(x):
        return jnp.sum(apply("Tanh", x, x))

    def cheap(x):
        y = x * 2 + 1
        return jnp.sum(y), y @ W

    for function in (twice, cheap, gradient_of_chain(["Plus"], "alone")):
        arguments = (X, [W]) if function not in (twice, cheap) else (X,)
        assert bounded(jax.jit(function).trace(*arguments)) is None


def test_a_deep_network_trains_to_the_same_numbers_as_numpy():
    n, rate = 14, 0.01
    x, w = C.input_variable(10), C.parameter(10, init=0.5)
    h = x
    for _ in range(n):
        h = C.tanh(h * w + 0.1)
    trainer = C.Trainer(h, (C.reduce_sum(h), None), [C.sgd([w], C.learning_parameter_schedule_per_sample(rate))])
    trainer.train_minibatch({x: X})
    values, slope = [X.astype(float)], np.ones((3, 10))
    for _ in range(n):
        values.append(np.tanh(values[-1] * 0.5 + 0.1))
    expected = np.zeros(10)
    for before, after in zip(values[-2::-1], values[:0:-1], strict=True):
        slope = slope * (1 - after**2)
        expected += (slope * before).sum(0)
        slope = slope * 0.5
    np.testing.assert_allclose(w.value, 0.5 - rate * expected, rtol=1e-6)
