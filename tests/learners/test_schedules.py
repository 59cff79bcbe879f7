"""Schedules: values against CNTK 2.7."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cntkjax import Parameter
from cntkjax import learners as L
from cntkjax.io import FULL_DATA_SWEEP

schedule = L.learning_parameter_schedule


@pytest.mark.parametrize(
    "make, values, minibatch_size, explicit",
    [
        (lambda: schedule(0.1), {0: 0.1, 25: 0.1}, 0, False),
        (lambda: schedule(1), {0: 1.0}, 0, False),
        (lambda: schedule(0.1, 0), {0: 0.1}, 0, True),
        (lambda: schedule([0.1, 0.2]), {0: 0.1, 1: 0.2, 25: 0.2}, 0, False),
        (lambda: schedule([0.1, 0.2], epoch_size=0), {0: 0.1, 1: 0.2}, 0, False),
        (lambda: schedule([(2, 0.1), 0.2, (3, 0.4)], 4, 5), {9: 0.1, 10: 0.2, 14: 0.2, 15: 0.4, 9**9: 0.4}, 4, True),
        (lambda: schedule([[2, 0.1], [0, 0.3]]), {0: 0.1, 1: 0.1, 2: 0.3}, 0, False),
        (lambda: schedule([(0, 0.1)]), {0: 0.1, 9: 0.1}, 0, False),
        (lambda: L.learning_parameter_schedule_per_sample(0.1), {0: 0.1}, 1, True),
        (lambda: L.training_parameter_schedule([0.1, 2], L.UnitType.minibatch, 7), {6: 0.1, 7: 2.0}, 0, True),
        (lambda: L.training_parameter_schedule(0.1, L.UnitType.sample), {0: 0.1}, 1, True),
        (lambda: L.training_parameter_schedule(0.1, "sample"), {0: 0.1}, 0, True),
        (lambda: L.momentum_schedule([0.1, (2, 0.3)], 3), {2: 0.1, 3: 0.3}, 0, False),
        (lambda: L.momentum_schedule(0.9, minibatch_size=5), {0: 0.9}, 5, True),
        (lambda: L.momentum_schedule_per_sample(0.99), {0: 0.99}, 1, True),
        (lambda: L.momentum_as_time_constant_schedule(1100), {0: 0.9990913221888589}, 1, True),
        (lambda: L.momentum_as_time_constant_schedule(0), {0: 0.0}, 1, True),
        (
            lambda: L.momentum_as_time_constant_schedule([(1, 10), (2, 30)], 5),
            {4: 0.9048374180359595, 5: 0.9672161004820059},
            1,
            True,
        ),
    ],
)
def test_values_match_cntk(make, values, minibatch_size, explicit):
    s = make()
    assert {count: s[count] for count in values} == pytest.approx(values, rel=1e-15)
    assert s.minibatch_size == minibatch_size
    assert s.is_minibatch_size_explicitly_specified is explicit


@pytest.mark.parametrize("epoch_size", [7, 2.5, L.UnitType.sample])
def test_a_number_takes_any_epoch_size_which_is_ignored(epoch_size):
    with pytest.warns(RuntimeWarning, match="a single number never changes, so epoch_size is ignored"):
        rate, momentum = schedule(0.1, 5, epoch_size), L.momentum_schedule(0.9, epoch_size)
    assert (rate[0], rate.minibatch_size, rate.epoch_size) == (0.1, 5, 0)
    assert (momentum[0], momentum.minibatch_size, momentum.epoch_size) == (0.9, 0, 0)


def test_schedules_are_returned_unchanged():
    s = L.momentum_schedule(0.3)
    assert schedule(s, minibatch_size=3, epoch_size=3) is s
    assert L.momentum_as_time_constant_schedule(s) is s


def test_the_size_that_readers_call_a_sweep_is_a_sweep_in_schedules():
    rate = schedule([1, 2], epoch_size=FULL_DATA_SWEEP)
    assert rate.is_sweep_based() and (rate[0], rate[1]) == (1, 2)


def test_schedules_count_samples_or_sweeps():
    by_sweep, by_sample = schedule([1, 2]), schedule([1, 2], epoch_size=10)
    assert by_sweep.is_sweep_based() and not by_sample.is_sweep_based()
    assert by_sweep.at(samples=1000, sweeps=0) == 1 and by_sweep.at(samples=0, sweeps=1) == 2
    assert by_sample.at(samples=9, sweeps=7) == 1 and by_sample.at(samples=10, sweeps=0) == 2


def test_equal_schedules_are_equal():
    assert schedule([1, 2], epoch_size=3) == schedule([1, 2], epoch_size=3)
    assert schedule([1, 2], epoch_size=3) != schedule([1, 2], epoch_size=4)


@pytest.mark.parametrize(
    "arguments, error, says",
    [
        (("a",), ValueError, "schedule must be a number or a list, not 'a' of type str"),
        ((None,), ValueError, "number or a list"),
        (((0.1, 0.2),), ValueError, "of type tuple"),
        ((np.array([0.1]),), ValueError, "of type ndarray"),
        (([],), RuntimeError, "empty list"),
        (([(1, 0.1, 2)],), ValueError, "pair"),
        ((["x"],), ValueError, "pair"),
        (([(0, 0.1), (1, 0.2)],), RuntimeError, "only the last value may be for 0 epochs"),
        (([(-1, 0.1)],), ValueError, "number of epochs must not be negative"),
        (([(1.5, 0.1)],), TypeError, "whole number"),
        ((0.1, -1), ValueError, "minibatch_size must not be negative, but is -1"),
        ((0.1, 2.5), TypeError, "minibatch_size must be a whole number, not 2.5"),
        (([0.1, 0.2], None, -1), ValueError, "epoch_size"),
        (([0.1, 0.2], None, 2.5), TypeError, "epoch_size must be a whole number, not 2.5"),
        (([0.1, 0.2], None, L.UnitType.sample), TypeError, "epoch_size must be a whole number, not <UnitType.sample"),
    ],
)
def test_invalid_schedules_are_errors(arguments, error, says):
    with pytest.raises(error, match=says):
        schedule(*arguments)


def test_an_unknown_unit_is_an_error():
    with pytest.raises(ValueError, match="unit = 3 .* UnitType.sample or UnitType.minibatch"):
        L.training_parameter_schedule(0.1, 3)


def test_errors_name_the_momentum():
    with pytest.raises(ValueError, match="momentum must be a number"):
        L.momentum_as_time_constant_schedule("x")


@pytest.mark.parametrize("count, error", [(-1, OverflowError), (1.5, TypeError), ("a", TypeError)])
def test_invalid_counts_are_errors(count, error):
    with pytest.raises(error):
        schedule([1, 2])[count]


def test_an_epoch_size_without_epochs_warns():
    with pytest.warns(RuntimeWarning, match="epoch_size is ignored"):
        schedule(0.1, epoch_size=5)


@pytest.mark.filterwarnings("error")
def test_the_epoch_size_of_a_learner_may_be_meant_for_its_rates_alone():
    learner = L.adam([Parameter(2)], [0.1, 0.01], momentum=0.9, epoch_size=10)
    assert learner.learning_rate() == 0.1


@pytest.mark.filterwarnings("ignore:learning_rate_schedule is deprecated")
@pytest.mark.parametrize(
    "convert",
    [
        lambda schedule: L.training_parameter_schedule(schedule, "foo"),
        lambda schedule: L.learning_rate_schedule(schedule, None),
        L.momentum_as_time_constant_schedule,
    ],
)
def test_a_schedule_passed_where_one_is_made_keeps_its_minibatch_size(convert):
    schedule = L.learning_parameter_schedule(0.1)
    assert convert(schedule) is schedule
    assert (schedule.minibatch_size, schedule.is_minibatch_size_explicitly_specified) == (0, True)


def test_learning_rate_schedule_names_its_replacement():
    with pytest.warns(DeprecationWarning, match="learning_parameter_schedule_per_sample"):
        assert L.learning_rate_schedule(0.1, L.UnitType.sample) == L.learning_parameter_schedule_per_sample(0.1)


@pytest.mark.parametrize(
    "arguments, rate, minibatch_size",
    [
        ((None, None, 0.1), schedule(0.1), None),
        ((None, 4, 0.1), schedule(0.1, 4), 4),
        ((None, 4, schedule(0.1, 8)), schedule(0.1, 8), 4),
        ((None, 4, schedule(0.1)), schedule(0.1, 4), 4),
        ((True, None, schedule(0.1, 8)), schedule(0.1, 8), 0),
        ((True, None, schedule(0.1, 1)), schedule(0.1, 0), 0),
        ((True, 3, schedule(0.1, 1)), schedule(0.1, 0), 3),
        ((False, None, 0.1), schedule(0.1), None),
    ],
)
def test_rate_and_minibatch_size_are_inferred_as_in_cntk(arguments, rate, minibatch_size):
    assert L._infer_learning_rate_schedule_and_ref_minibatch_size(*arguments, None) == (rate, minibatch_size)


def test_inference_sets_the_minibatch_size_of_the_schedule_but_not_of_what_it_returned_before():
    mine = schedule(0.1)
    earlier, _ = L._infer_learning_rate_schedule_and_ref_minibatch_size(None, None, mine, None)
    L._infer_learning_rate_schedule_and_ref_minibatch_size(None, 4, mine, None)
    assert (mine.minibatch_size, earlier.minibatch_size) == (4, 0)


@pytest.mark.parametrize("verify", [L._verify_momentum_type, L._verify_learning_rate_type])
def test_verification_takes_schedules_only(verify):
    verify(L.momentum_schedule(0.1))
    with pytest.raises(ValueError, match="must be a schedule, not float"):
        verify(0.1)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1)), min_size=1, max_size=6),
    st.integers(1, 20),
    st.integers(0, 1000),
)
def test_values_equal_those_of_expanded_epochs(entries, epoch_size, count):
    epochs = [value for number, value in entries for _ in range(number)]
    expected = epochs[min(count // epoch_size, len(epochs) - 1)]
    assert schedule(entries, epoch_size=epoch_size)[count] == expected
