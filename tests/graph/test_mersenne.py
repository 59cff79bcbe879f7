"""CNTK's random numbers: a stream is the same however it is divided, and normal numbers are normal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.graph import mersenne
from cntkjax.graph.jump import jumped
from cntkjax.graph.mersenne import MersenneTwister64


def test_the_first_number_of_the_default_seed_is_that_of_the_paper():
    assert MersenneTwister64(5489).raw(1).tolist() == [14514284786278117030]


def test_numbers_are_the_same_without_the_library(monkeypatch):
    by_library = MersenneTwister64(9)
    monkeypatch.setattr(mersenne, "_library", lambda: None)
    without = MersenneTwister64(9)
    for n in (0, 1, 311, 5, 1000):
        assert by_library.raw(n).tolist() == without.raw(n).tolist()


def test_seeds_are_taken_modulo_2_to_the_64():
    assert MersenneTwister64(2**64 + 3).raw(5).tolist() == MersenneTwister64(3).raw(5).tolist()


@settings(max_examples=20)
@given(st.lists(st.integers(0, 40), max_size=5))
def test_numbers_do_not_depend_on_how_many_are_drawn_at_once(counts):
    at_once, pieces = MersenneTwister64(7), MersenneTwister64(7)
    assert [x for n in counts for x in pieces.raw(n).tolist()] == at_once.raw(sum(counts)).tolist()
    at_once, pieces = MersenneTwister64(7), MersenneTwister64(7)
    assert [x for n in counts for x in pieces.normal(n).tolist()] == at_once.normal(sum(counts)).tolist()


def test_what_is_skipped_is_drawn_and_thrown_away(monkeypatch):
    monkeypatch.setattr(mersenne, "PIECE", 100)
    drawing = MersenneTwister64(1)
    drawing.raw(350)
    assert MersenneTwister64(1, 350).raw(3).tolist() == drawing.raw(3).tolist()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 50_000))
def test_a_jump_ends_where_drawing_does(seed, offset):
    drawing = MersenneTwister64(seed)
    drawing.raw(offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mersenne, "_FAR", 0)
        assert MersenneTwister64(seed, offset).raw(400).tolist() == drawing.raw(400).tolist()


def test_a_jump_over_two_numbers_of_numbers_is_one_over_their_sum():
    """Farther than can be drawn: 2^40 numbers take an hour."""
    state = np.arange(312, dtype=np.uint64)
    there = jumped(jumped(state, 2**40), 12345)
    np.testing.assert_array_equal(jumped(state, 2**40 + 12345)[1:], there[1:])


def test_uniform_numbers_lie_in_their_range():
    numbers = MersenneTwister64(2).uniform(10_000, -3, 5)
    assert numbers.min() >= -3 and numbers.max() < 5
    np.testing.assert_allclose([numbers.mean(), numbers.std()], [1, 8 / np.sqrt(12)], atol=0.05)


def test_normal_numbers_have_the_tails_of_the_distribution():
    numbers = MersenneTwister64(3).normal(400_000)
    np.testing.assert_allclose([numbers.mean(), numbers.std()], [0, 1], atol=0.005)
    assert (np.abs(numbers) > 3.4426).mean() == pytest.approx(5.76e-4, rel=0.2)  # beyond the strips
    assert (np.abs(numbers) > 2).mean() == pytest.approx(0.0455, rel=0.03)


def test_numbers_beyond_a_limit_are_left_out_and_the_others_stay_in_order():
    limited = MersenneTwister64(4).normal(1000, 1.5)
    unlimited = MersenneTwister64(4).normal(2000)
    assert limited.tolist() == unlimited[np.abs(unlimited) <= 1.5][:1000].tolist()
