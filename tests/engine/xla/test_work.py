"""The size of a traced computation."""

import jax
import jax.numpy as jnp
from jax import lax

from cntkjax.engine.xla.work import elements, largest_sum, lost_time, operations, stores_in_loops


def count(f, *arguments):
    return elements(jax.make_jaxpr(f)(*arguments).jaxpr)


def test_every_operation_counts_the_elements_of_its_result():
    assert count(lambda x: lax.add(lax.sin(x), x), jnp.ones((3, 4))) == 24
    assert count(lambda x: lax.reduce_max(x, (1,)), jnp.ones((3, 4))) == 3
    assert count(lambda x: x, jnp.ones(3)) == 0


def test_products_count_in_convolutions_that_no_library_computes():
    with jax.enable_x64(True):
        for dtype, products in (("float32", 1), ("float64", 2 * 3 * 3)):
            x, w = jnp.ones((1, 2, 8, 8), dtype), jnp.ones((4, 2, 3, 3), dtype)
            assert count(lambda x, w: lax.conv(x, w, (1, 1), "VALID"), x, w) == 4 * 6 * 6 * products
    x, w = jnp.ones((1, 2, 2, 2)), jnp.ones((4, 2, 3, 3))  # XLA exchanges what has fewer cells than the filters
    assert count(lambda x, w: lax.conv(x, w, (1, 1), "SAME"), x, w) == 4 * 2 * 2 * (2 * 3 * 3)


def lost(f, *arguments):
    return lost_time(jax.make_jaxpr(f)(*arguments).jaxpr)


def test_an_operation_loses_time_where_llvm_compiles_it():
    x = jnp.ones((40, 40))
    assert lost(lax.dot, x, x) == lost(lambda x: lax.reduce_sum(x, (1,)), x) == 0
    assert 0 < lost(lax.add, x, x) < lost(lax.max, x, x) < lost(lax.tanh, x)


def test_time_is_lost_for_each_element_of_windows_and_each_step_of_loops():
    def windows(size):
        return lambda x: lax.reduce_window(x, 0.0, lax.add, (size, size), (size, size), "VALID")

    assert lost(windows(2), jnp.ones((8, 8))) == lost(windows(4), jnp.ones((8, 8))) > 0
    steps = {n: lambda x, n=n: lax.scan(lambda c, _: (lax.tanh(c), None), x, length=n) for n in (1, 7)}
    assert lost(steps[7], jnp.ones(4)) == 7 * lost(steps[1], jnp.ones(4)) > 0


def test_functions_inside_are_counted():
    assert count(lambda x: jax.jit(lax.sin)(lax.cos(x)), jnp.ones(5)) == 10


def test_a_loop_counts_once_for_each_step():
    def scan(x):
        return lax.scan(lambda c, y: (lax.add(c, y), c), x[0], x)

    assert count(scan, jnp.ones((7, 4))) - count(lambda x: x[0], jnp.ones((7, 4))) == 28


def test_a_loop_of_unknown_length_is_taken_to_fill_an_array():
    def fill(x):
        def step(state):
            t, values = state
            return lax.add(t, 1), lax.dynamic_update_slice(values, lax.sin(values[:1]), (t,))

        return lax.while_loop(lambda state: state[0] < 9, step, (0, x))

    assert count(fill, jnp.ones(100)) >= 100 * 100


def test_operations_of_loops_count_once():
    def scan(x):
        return lax.scan(lambda c, y: (lax.add(c, y), lax.sin(c)), x[0], x)

    short, long = (operations(jax.make_jaxpr(scan)(jnp.ones((steps, 4))).jaxpr) for steps in (2, 7))
    assert short == long == operations(jax.make_jaxpr(lambda x: x[0])(jnp.ones((7, 4))).jaxpr) + 3


def test_the_largest_sum_is_found_in_loops_too():
    def sums(x):
        return lax.scan(lambda c, y: (c, jnp.sum(y, 1)), 0, x)[1], jnp.sum(x), jnp.max(x, 0)

    assert largest_sum(jax.make_jaxpr(sums)(jnp.ones((7, 4, 3))).jaxpr) == 4
    assert largest_sum(jax.make_jaxpr(lax.sin)(jnp.ones(3)).jaxpr) == 0


def test_barriers_count_in_steps_of_loops_only():
    def step(c, y):
        return jax.jit(lax.optimization_barrier)(c + y), c

    def scan(x):
        return lax.scan(step, x[0], x)

    assert stores_in_loops(jax.make_jaxpr(scan)(jnp.ones((7, 4))).jaxpr)
    assert not stores_in_loops(jax.make_jaxpr(step)(1.0, 2.0).jaxpr)
