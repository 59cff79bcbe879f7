"""Automatic seeds count upwards, or are all equal once fixed (recorded from CNTK 2.7)."""
import pytest

from cntkjax.graph import seed


@pytest.fixture(autouse=True)
def _fresh_seeds():
    seed.reset_random_seed()
    yield
    seed.reset_random_seed()


def test_automatic_seeds_count_from_zero():
    assert [seed.next_seed() for _ in range(3)] == [0, 1, 2]
    assert seed.get_random_seed() == 3
    assert not seed.is_random_seed_fixed()


def test_a_fixed_seed_applies_to_all():
    seed.set_fixed_random_seed(2**40)
    assert [seed.next_seed() for _ in range(3)] == [2**40] * 3
    assert seed.is_random_seed_fixed()


def test_reset_ends_fixing_and_counts_from_its_argument():
    seed.set_fixed_random_seed(1)
    seed.reset_random_seed(7)
    assert [seed.next_seed() for _ in range(2)] == [7, 8]
    assert not seed.is_random_seed_fixed()


def test_only_an_automatic_seed_advances_the_counter():
    assert [seed.resolve_seed(s) for s in (5, seed.AUTO_SEED, 0, seed.AUTO_SEED)] == [5, 0, 0, 1]


def test_the_counter_wraps_at_64_bits():
    seed.reset_random_seed(2**64 - 1)
    assert [seed.next_seed() for _ in range(2)] == [2**64 - 1, 0]


@pytest.mark.parametrize("function", [seed.set_fixed_random_seed, seed.reset_random_seed])
@pytest.mark.parametrize(("value", "error"), [(-1, OverflowError), (2**64, OverflowError), ("a", TypeError),
                                              (1.5, TypeError)])
def test_a_bad_seed_is_refused_and_changes_nothing(function, value, error):
    seed.set_fixed_random_seed(4)
    with pytest.raises(error):
        function(value)
    assert seed.next_seed() == 4
