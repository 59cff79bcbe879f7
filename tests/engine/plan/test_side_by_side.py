"""Which loops run side by side, and in which order parts are computed then."""

import pytest

import cntk as C
from cntkjax.engine.plan.parts import Loop, all_outputs_of, inputs_of
from cntkjax.engine.plan.plan import Plan

L = C.layers


def recurrence(cell=None, **options):
    return L.Recurrence(cell or L.LSTM(3), **options)


def groups(network):
    """The groups of a network's plan, after a check that each is computed after what it reads."""
    plan = Plan(network(C.sequence.input_variable(4)).outputs)
    computed = {*plan.leaves, *plan.arguments}
    for group in plan.groups:
        for part in group:
            assert computed.issuperset(set(inputs_of(part)) - all_outputs_of(part))
        computed.update(*map(all_outputs_of, group))
    assert sorted(map(id, plan.parts)) == sorted(id(part) for group in plan.groups for part in group)
    return [len(group) for group in plan.groups if isinstance(group[0], Loop)]


def test_directions_of_a_layer_run_side_by_side_and_layers_one_after_the_other():
    def both():
        return (recurrence(), recurrence(go_backwards=True)), C.splice

    assert groups(L.Sequential([*both(), *both()])) == [2, 2]
    assert groups(L.Sequential([recurrence(), recurrence()])) == [1, 1]


def test_a_loop_waits_for_the_last_one_of_its_group():
    def network(x):
        first = recurrence()(x)
        return C.splice(recurrence(L.GRU(5))(first * 2), recurrence(go_backwards=True)(x))

    assert groups(network) == [2, 1]


@pytest.mark.parametrize("other", [
    lambda: recurrence(L.GRU(3)), lambda: recurrence(L.LSTM(5)), lambda: recurrence(L.LSTM(3, use_peepholes=True)),
    lambda: recurrence(L.LSTM(3, activation=C.relu)), lambda: recurrence(initial_state=C.parameter(3)),
], ids=["cell", "size", "peepholes", "activation", "initial state"])
def test_loops_that_differ_run_by_themselves(other):
    assert groups(lambda x: C.splice(recurrence()(x), other()(x))) == [1, 1]


def test_loops_with_random_numbers_run_by_themselves():
    def noisy(x):
        @C.Function
        def step(state, x):
            return C.dropout(C.tanh(state + x), 0.5)

        return L.Recurrence(step)(x)

    assert groups(lambda x: C.splice(noisy(x), noisy(x))) == [1, 1]
