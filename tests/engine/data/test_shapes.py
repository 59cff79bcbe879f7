"""Shapes of minibatches: what fits, what is chosen for a new program, and how many there are for real minibatches."""

from dataclasses import dataclass

import numpy as np
import pytest

from cntkjax.engine.data.packing import GridShape, pack
from cntkjax.engine.data.shape_policy import ShapePolicy
from cntkjax.engine.data.shapes import AxisTraits, Lengths, MinibatchShape, MinibatchSpace, Need

BATCHES = MinibatchSpace()
SEQUENCES = MinibatchSpace((AxisTraits(has_loop=True),))
PAIRS = MinibatchSpace((AxisTraits(has_loop=True),) * 2)


def need(*lengths):
    return Need(len(lengths), (Lengths(int(max(lengths)), int(sum(lengths))),))


@dataclass
class FixedPrices:
    compilation_seconds: float = 2.0
    seconds_per_work: float = 1e-5


def shapes_of(space, needs, prices=None):
    """The policy after these minibatches, and the shape of each."""
    policy = ShapePolicy(space, prices or FixedPrices())
    shapes = []
    for each in needs:
        fitting = policy.fitting(each)
        if not fitting:
            fitting = [space.with_room(each, policy.seen)]
            policy.add(fitting[0])
        policy.record(each)
        shapes.append(fitting[0])
        wanted = policy.wanted()
        if wanted is not None:
            policy.add(wanted)
    return policy, shapes


def test_batches_of_one_size_run_in_one_program_without_masks():
    policy, _ = shapes_of(BATCHES, [Need(64)] * 100)
    assert policy.ready == [MinibatchShape(64, True)]


def test_the_last_minibatch_of_a_sweep_runs_in_a_program_of_the_same_size_with_masks():
    policy, shapes = shapes_of(BATCHES, [*[Need(250)] * 10, Need(240), Need(130), Need(30)])
    assert policy.ready == [MinibatchShape(250, True), MinibatchShape(250, False)]
    assert shapes[:10] == [MinibatchShape(250, True)] * 10


def test_a_single_sample_has_a_program_of_its_own():
    policy, _ = shapes_of(BATCHES, [Need(512), Need(1)])
    assert policy.ready == [MinibatchShape(512, True), MinibatchShape(1, True)]


def test_many_single_samples_after_training_in_large_batches_get_a_program_of_their_own():
    prices = FixedPrices(compilation_seconds=0.5, seconds_per_work=1e-5)
    policy, shapes = shapes_of(BATCHES, [Need(512), Need(500), *[Need(1)] * 10_000], prices)
    assert policy.ready == [MinibatchShape(512, True), MinibatchShape(512, False), MinibatchShape(1, True)]
    waste = 1e-5 * sum(BATCHES.work(s) - BATCHES.work(MinibatchShape(1, True)) for s in shapes[2:])
    assert waste <= 0.5 * 1.1


def test_number_of_programs_grows_with_the_logarithm_of_the_size():
    policy, shapes = shapes_of(BATCHES, [Need(n) for n in range(1, 5001)], FixedPrices(seconds_per_work=0.0))
    assert all(n <= s.batch <= max(1.25 * n, n + 1) for n, s in enumerate(shapes, 1))
    assert len(policy.ready) <= 5 * np.log2(5000)


def test_sequences_of_equal_lengths_get_a_program_without_padding():
    policy, _ = shapes_of(SEQUENCES, [need(*[20] * 32)] * 10)
    assert policy.ready == [MinibatchShape(32, True, (GridShape(20, 32, True),))]


def test_the_first_of_varied_lengths_leaves_room():
    policy, _ = shapes_of(SEQUENCES, [need(20, 17, 4), need(19, 18, 6), need(24, 12, 3), need(10, 9, 9, 8)])
    assert len(policy.ready) == 1


@pytest.mark.parametrize(("size", "share"), [(70, 0.84), (100, 0.94), (500, 0.98)])
def test_the_first_program_fits_most_minibatches_of_as_many_words(size, share):
    fits = []
    for seed in range(20):
        first, *others = [need(*m) for m in minibatches(queries(), size, 1, seed)]
        shape = SEQUENCES.with_room(first, [])
        fits.append(np.mean([SEQUENCES.cost(shape, n) < np.inf for n in others]))
    assert np.mean(fits) > share


def test_a_new_shape_has_rows_for_sequences_of_which_no_two_share_one():
    (grid,) = SEQUENCES.with_room(need(7, 7, 6, 5, 5, 4), []).grids
    assert 7 < grid.time < 14
    assert pack(np.array([7, 7, 7, 6, 6, 6]), 6, grid) is not None


@pytest.mark.parametrize("samples", [50, 200])
def test_pairs_of_sequences_of_about_the_same_length_run_in_few_programs(samples):
    """As the questions and answers of CNTK's DSSM tutorial, of 5 to 10 and 4 to 7 words. Before: 2.3 and 3.6."""
    numbers = []
    for seed in range(20):
        random, policy = np.random.default_rng(seed), ShapePolicy(PAIRS, FixedPrices(seconds_per_work=0.0))
        for _ in range(50):
            questions, answers = (random.integers(*ends, samples // 8) for ends in ((5, 11), (4, 8)))
            number = int(np.searchsorted(questions.cumsum(), samples, "right"))
            packed = [n[:number] for n in (questions, answers)]
            each = Need(number, tuple(Lengths(int(n.max()), int(n.sum())) for n in packed))
            if not any(fits(shape, packed) for shape in policy.fitting(each)):
                policy.add(PAIRS.with_room(each, policy.seen))
            policy.record(each)
        numbers.append(len(policy.ready))
    assert np.mean(numbers) <= 2


def fits(shape, lengths):
    return all(pack(n, shape.batch, grid) is not None for n, grid in zip(lengths, shape.grids, strict=True))


def test_there_is_no_more_room_than_pays():
    long = need(1000, *[10] * 9)
    shape = SEQUENCES.with_room(long, [])
    assert 1250 <= shape.grids[0].time < 2000
    assert SEQUENCES.work(shape) <= 1.8 * SEQUENCES.work(SEQUENCES.tightest(long))


def test_a_row_for_each_sequence_leaves_no_rows_empty():
    space = MinibatchSpace((AxisTraits(has_loop=False, one_per_row=True),))
    assert space.with_room(need(20, 17, 4), []) == MinibatchShape(3, False, (GridShape(28, 3, True),))


def test_a_test_pass_begins_with_the_sizes_of_training():
    seen = [need(20, 10, 5), need(30, 8), need(12, 12, 12, 9)]
    shape = SEQUENCES.with_room(need(21, 3, 12), seen)
    assert all(SEQUENCES.cost(shape, n) < np.inf for n in seen)
    assert BATCHES.with_room(Need(64), [Need(64), Need(40)]) == MinibatchShape(64, True)


def minibatches(sequences, size, sweeps, seed):
    """Lengths of minibatches of as many samples, in another order in each sweep."""
    rng = np.random.default_rng(seed)
    for _ in range(sweeps):
        minibatch = []
        for n in rng.permutation(sequences):
            if minibatch and sum(minibatch) + n > size:
                yield np.array(minibatch, np.int32)
                minibatch = []
            minibatch.append(n)
        yield np.array(minibatch, np.int32)


def queries(n=2000):
    """Lengths like those of the ATIS corpus: 13 words on average, 48 at most."""
    return np.clip(np.random.default_rng(0).gamma(7, 1.9, n), 2, 48).astype(np.int32)


@pytest.mark.parametrize("size", [100, 500, 2000])
def test_minibatches_of_as_many_words_run_in_few_programs(size):
    policy, _ = shapes_of(SEQUENCES, [need(*m) for m in minibatches(queries(), size, 5, 1)])
    assert len(policy.ready) <= 4


def test_minibatches_of_pairs_of_sequences_run_in_few_programs():
    """Words and their pronunciations: a row for each, in minibatches of as many letters."""
    space = MinibatchSpace((AxisTraits(has_loop=False, one_per_row=True), AxisTraits(has_loop=True, one_per_row=True)))
    words = np.random.default_rng(0).gamma(9, 0.95, 2000).clip(2, 18).astype(np.int32)
    pairs = [
        [Need(len(word), tuple(Lengths(int(n.max()), int(n.sum())) for n in (word, word + 1))) for word in sweep]
        for sweep in (minibatches(words, 72, 1, seed) for seed in range(20))
    ]
    counts = [len(shapes_of(space, needs, FixedPrices(compilation_seconds=1e9))[0].ready) for needs in pairs]
    assert np.mean(counts) < 2.7


def test_in_the_long_run_little_is_wasted():
    needs = [need(*m) for m in minibatches(queries(), 500, 60, 1)]
    policy, shapes = shapes_of(SEQUENCES, needs)
    assert len(policy.ready) <= 8
    late = slice(len(needs) * 2 // 3, None)
    ideal = sum(SEQUENCES.work(SEQUENCES.tightest(n)) for n in needs[late])
    assert sum(map(SEQUENCES.work, shapes[late])) <= 1.15 * ideal


def test_what_is_said_to_fit_can_be_packed():
    lengths = list(minibatches(queries(), 500, 3, 2))
    shape = SEQUENCES.with_room(need(*lengths[0]), [need(*m) for m in lengths])
    fits = [SEQUENCES.cost(shape, need(*m)) < np.inf for m in lengths]
    packed = [pack(m, shape.batch, shape.grids[0]) is not None for m in lengths]
    assert np.mean(fits) > 0.9 and fits == packed


def test_axes_whose_padding_shows_are_not_padded():
    space = MinibatchSpace((AxisTraits(has_loop=False, one_per_row=True, exact=True),))
    shape = space.with_room(need(5, 3), [])
    assert shape.grids == (GridShape(5, 2, True),)
    assert space.cost(shape, need(5, 1)) < np.inf == space.cost(shape, need(4, 4))


@pytest.mark.parametrize("later", [(2, 2), (2,), (2, 1), (3, 2, 2)])
def test_axes_whose_padding_shows_are_not_padded_after_longer_minibatches(later):
    space = MinibatchSpace((AxisTraits(has_loop=True, one_per_row=True, exact=True),))
    _, shapes = shapes_of(space, [need(3, 3, 3), need(5, 5, 5), need(*later)])
    assert shapes[-1].grids[0].time == max(later)


def test_batches_that_must_not_be_padded_are_not():
    space = MinibatchSpace(exact_batch=True)
    _, shapes = shapes_of(space, [Need(n) for n in (8, 7, 8, 6)])
    assert [s.batch for s in shapes] == [8, 7, 8, 6]
