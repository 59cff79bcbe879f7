"""Gradients, exchange and update are one program where all workers have minibatches of the same shapes."""

import json
import os
import sys

import numpy as np
import pytest

from .launching import outputs, start

STEP = "the training step for minibatches of up to 4"
LARGER_STEP = "the training step for minibatches of up to 5"


@pytest.fixture(scope="module")
def runs():
    workers = start("in_one_program.py")
    printed = outputs(workers)
    assert not any(worker.returncode for worker in workers), "\n".join(printed)
    return [json.loads(text.splitlines()[-1]) for text in printed]


def test_minibatches_of_the_same_shapes_take_one_program(runs):
    for equal, *_ in runs:
        assert equal[0] == [STEP]


def test_minibatches_of_other_sizes_are_padded_to_the_largest_and_take_one_program(runs):
    for _, _, padded, *_ in runs:
        assert padded[0] == [LARGER_STEP]


def test_a_worker_without_data_takes_part_in_an_exchange_of_its_own(runs):
    first, second = (unequal[0] for _, unequal, *_ in runs)
    assert first == [STEP, "an update"]
    assert second == [STEP, STEP, "an update"]


def test_all_workers_learn_the_same(runs):
    for first, second in zip(*(run[:3] for run in runs), strict=True):
        assert first[1:3] == second[1:3]


def test_a_parameter_that_the_loss_assigns_is_updated_from_there(runs):
    """The numbers are CNTK's. The first step exchanges in a program of its own."""
    for run in runs:
        np.testing.assert_allclose(run[4], [[0.8, 1.8], [0.8, 1.6], [0.8, 1.4], [0.8, 1.2]], rtol=1e-6)


def test_no_parameter_or_gradient_crosses_to_the_host(runs):
    for run in runs:
        assert [part[3] for part in run[:3]] == [[], [], []]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such way to schedule threads")
def test_threads_that_wait_for_messages_do_not_interrupt_those_that_ask_for_them(runs):
    for run in runs:
        assert run[3] == [[os.SCHED_OTHER], [os.SCHED_BATCH]]
