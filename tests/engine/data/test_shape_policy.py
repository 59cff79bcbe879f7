"""The policy of compilations: what it costs in total, against the best choice in hindsight, on random streams."""

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from math import inf, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cntkjax.engine.data.shape_policy import ShapePolicy
from cntkjax.engine.data.shapes import AxisTraits, Lengths, MinibatchSpace, Need

ROOM = 1.5


class Sizes:
    """Minibatches of one size, which cost as much as the size of the program in which they run."""

    def cost(self, shape, need):
        return shape if need <= shape else inf

    def tightest(self, need):
        return need

    def rounded(self, need):
        return need

    def union(self, a, b):
        return max(a, b)

    def with_room(self, need, seen):
        return ROOM * need if seen else need

    def candidates(self, needs):
        return needs


@dataclass
class FixedPrices:
    compilation_seconds: float
    seconds_per_work: float = 1.0


@dataclass
class Costs:
    """Of running a stream; of running it only in programs that were needed at once; and the numbers of programs."""

    run: float
    run_without_purchases: float
    needed_at_once: int
    bought: int

    def total(self, compilation):
        return self.run + (self.needed_at_once + self.bought) * compilation


def simulated(stream, compilation, space=Sizes()):
    policy = ShapePolicy(space, FixedPrices(compilation))
    costs, at_once = Costs(0.0, 0.0, 0, 0), []
    for need in stream:
        fitting = policy.fitting(need)
        if not fitting:
            fitting = [space.with_room(need, policy.seen)]
            policy.add(fitting[0])
            at_once.append(fitting[0])
        policy.record(need)
        costs.run += space.cost(fitting[0], need)
        costs.run_without_purchases += min(space.cost(shape, need) for shape in at_once)
        wanted = policy.wanted()
        if wanted is not None:
            policy.add(wanted)
            costs.bought += 1
    costs.needed_at_once = len(at_once)
    return costs


def best_in_hindsight(stream, compilation):
    """The least cost of any set of programs that all minibatches fit, and that are compiled before the first one."""
    sizes, counts = np.unique(stream, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = [0.0]  # for the minibatches up to a size
    for j, size in enumerate(sizes, 1):
        best.append(min(best[i] + compilation + size * (before[j] - before[i]) for i in range(j)))
    return best[-1]


def run_in_hindsight(stream, programs):
    """The least cost of running all minibatches in so many programs."""
    sizes, counts = np.unique(stream, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = [0.0] + [inf] * len(sizes)  # for the minibatches up to a size
    for _ in range(programs):
        best = [0.0, *(
            min(best[i] + size * (before[j] - before[i]) for i in range(j)) for j, size in enumerate(sizes, 1)
        )]
    return best[-1]


@st.composite
def streams(draw, spread=st.floats(1.0, 200.0)):
    """Sizes drawn from a random distribution, in random or in sorted order; and what a compilation costs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(spread)
    different = np.exp(rng.uniform(0, log(largest), draw(st.integers(1, 12))))
    weights = rng.dirichlet(np.full(len(different), draw(st.sampled_from([0.3, 1.0, 5.0]))))
    stream = rng.choice(different, draw(st.integers(1, 400)), p=weights)
    order = draw(st.sampled_from(["random", "ascending", "descending"]))
    if order != "random":
        stream = np.sort(stream)[:: 1 if order == "ascending" else -1]
    return stream.tolist(), largest * draw(st.floats(1.0, 1000.0))


@given(streams(st.floats(1.0, ROOM)))
@settings(max_examples=300, deadline=None)
def test_the_total_is_at_most_twice_the_best_in_hindsight_plus_one_compilation(case):
    stream, compilation = case
    assert simulated(stream, compilation).total(compilation) <= 2 * best_in_hindsight(stream, compilation) + compilation


@given(streams())
@example(([54.4, 1.4, 1.4, 8.1], 60.0))  # the smallest one is bought when it has saved more, and fits no later one
@settings(max_examples=300, deadline=None)
def test_where_sizes_differ_much_compilations_that_cannot_be_put_off_come_on_top(case):
    stream, compilation = case
    costs, best = simulated(stream, compilation), best_in_hindsight(stream, compilation)
    assert costs.needed_at_once <= 2 + log(max(stream) / min(stream)) / log(ROOM)
    assert costs.run + costs.bought * compilation <= 2 * (best - compilation) * (1 + 1e-9) + max(stream)
    assert costs.total(compilation) <= 2 * best + max(1, costs.needed_at_once - 2) * compilation


@st.composite
def minibatches(draw, space):
    """Minibatches of up to six sizes, with the axes of a space; and what a compilation costs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread, different = draw(st.floats(1.0, 100.0)), []
    for size in np.exp(rng.uniform(0, log(spread), draw(st.integers(1, 6)))):
        number = int(rng.integers(2, 40))
        lengths = np.maximum(1, rng.uniform(1, 8, number) * size).astype(int)
        axes = [Lengths(int(lengths.max()), int(lengths.sum()))] * len(space.axes)
        different.append(Need(number if axes else int(20 * size), tuple(axes)))
    weights = rng.dirichlet(np.full(len(different), draw(st.sampled_from([0.3, 1.0, 5.0]))))
    stream = [different[i] for i in rng.choice(len(different), draw(st.integers(1, 300)), p=weights)]
    work = max(space.work(space.tightest(need)) for need in different)
    return stream, work * draw(st.floats(1.0, 1000.0))


def best_shapes_in_hindsight(space, stream, compilation):
    """The least cost of any programs, each in the tightest shape for those minibatches that run there."""
    counts = Counter(stream)
    needs = list(counts)

    def alone(group):
        largest = reduce(Need.union, group)
        shapes = [space.tightest(largest), space.tightest(largest)._replace(full=False), *map(space.tightest, group)]
        return compilation + min(sum(counts[n] * space.cost(s, n) for n in group) for s in shapes)

    best = [0.0]  # for the needs in a set of bits
    for bits in range(1, 1 << len(needs)):
        parts = (part for part in range(1, bits + 1) if part & bits == part and part & bits & -bits)
        best.append(min(
            alone([n for i, n in enumerate(needs) if part >> i & 1]) + best[bits ^ part] for part in parts
        ))
    return best[-1]


@pytest.mark.parametrize("space", [
    MinibatchSpace(), MinibatchSpace((AxisTraits(has_loop=True),)), MinibatchSpace((AxisTraits(has_loop=False),)),
    MinibatchSpace((AxisTraits(has_loop=True, one_per_row=True),)),
], ids=["samples", "loops", "sequences", "rows"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_same_holds_for_the_shapes_of_minibatches(space, data):
    stream, compilation = data.draw(minibatches(space))
    costs, best = simulated(stream, compilation, space), best_shapes_in_hindsight(space, stream, compilation)
    assert costs.run + costs.bought * compilation <= 2 * best - compilation
    assert costs.total(compilation) <= 2 * best + max(1, costs.needed_at_once - 1) * compilation


@given(streams(), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_against_any_number_of_programs_in_hindsight(case, programs):
    stream, compilation = case
    costs = simulated(stream, compilation)
    allowed = (programs + 2 * costs.bought) * (1.05 * compilation + max(stream))  # a step late, and a twentieth of C
    assert costs.run + costs.bought * compilation <= run_in_hindsight(stream, programs) + allowed


@given(streams())
@settings(max_examples=200, deadline=None)
def test_purchases_at_most_double_the_cost_of_doing_without(case):
    stream, compilation = case
    costs = simulated(stream, compilation)
    assert costs.run + costs.bought * compilation <= 2 * costs.run_without_purchases * (1 + 1e-9)


@pytest.mark.parametrize("small", [1.0, 40.0])
def test_a_better_program_is_bought_when_the_waste_has_paid_for_it(small):
    costs = simulated([50.0] + [small] * 1000, compilation=200.0)
    steps = int(np.ceil(200 / (50 - small)))
    assert costs == Costs(50.0 + steps * 50 + (1000 - steps) * small, 50.0 * 1001, 1, 1)


def test_a_program_is_chosen_for_the_history_and_not_for_the_last_minibatch():
    policy = ShapePolicy(Sizes(), FixedPrices(1000.0))
    policy.add(100.0)
    wanted = None
    while wanted is None:
        for need in (60.0, 60.0, 60.0, 2.0):
            policy.record(need)
            wanted = wanted or policy.wanted()
    assert wanted == 60.0


def test_while_a_program_is_being_compiled_minibatches_run_in_others_and_none_is_wanted():
    policy = ShapePolicy(Sizes(), FixedPrices(10.0))
    policy.add(100.0)
    policy.record(1.0)
    assert policy.wanted() == 1.0
    policy.add(1.0, pending=True)
    assert policy.fitting(1.0) == [100.0, 1.0]
    for _ in range(100):
        policy.record(2.0)
        assert policy.wanted() is None
    policy.add(1.0)
    assert policy.fitting(1.0) == [1.0, 100.0]
    assert policy.wanted() == 2.0


def test_a_program_that_could_not_be_compiled_is_not_wanted_again():
    policy = ShapePolicy(Sizes(), FixedPrices(10.0))
    policy.add(100.0)
    policy.record(1.0)
    policy.add(1.0, pending=True)
    policy.reject(1.0)
    for _ in range(100):
        policy.record(1.0)
    assert policy.fitting(1.0) == [100.0] and policy.wanted() is None


def test_nothing_is_wanted_before_a_run_was_timed():
    policy = ShapePolicy(Sizes(), FixedPrices(0.0, seconds_per_work=0.0))
    policy.add(100.0)
    policy.record(1.0)
    assert policy.wanted() is None
