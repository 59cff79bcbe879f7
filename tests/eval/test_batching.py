"""Requests that come within a short time are computed together, each with its own answer."""

import queue
import threading
from concurrent.futures import Future

import pytest

from cntkjax.eval._batching import Request, RequestQueue


class Doubling:
    """Doubles numbers, when it may; `batches` are what it was asked for at once."""

    def __init__(self):
        self.batches, self.may_run = [], threading.Event()

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        assert self.may_run.wait(60)
        if None in numbers:
            raise ValueError("no number")
        return [2 * n for n in numbers]


@pytest.fixture
def doubling():
    return Doubling()


@pytest.fixture
def requests(doubling):
    """A queue of batches of at most 3, of which at most 6 requests wait. It waits for more until there are 3."""
    joined = RequestQueue(doubling, max_batch=3, max_delay=60, max_queue=6)
    yield joined
    doubling.may_run.set()
    joined.close()


def put(requests, *contents, kind="a", size=1):
    futures = [Future() for _ in contents]
    for content, future in zip(contents, futures, strict=True):
        requests.put(Request(content, size, kind, future))
    return futures


def test_requests_are_joined_up_to_the_size_of_a_batch(requests, doubling):
    doubling.may_run.set()
    futures = put(requests, 1, 2, 3, 4, 5, 6)
    assert [f.result(60) for f in futures] == [2, 4, 6, 8, 10, 12]
    assert doubling.batches == [[1, 2, 3], [4, 5, 6]]


def test_a_request_that_does_not_fit_begins_the_next_batch(requests, doubling):
    doubling.may_run.set()
    put(requests, 1)
    put(requests, 2, size=3)
    put(requests, 3, 4, 5)[-1].result(60)
    assert doubling.batches == [[1], [2], [3, 4, 5]]


def test_requests_of_other_kinds_are_not_joined(requests, doubling):
    doubling.may_run.set()
    futures = [*put(requests, 1), *put(requests, 2, kind="b"), *put(requests, 3, 4, 5)]
    assert [f.result(60) for f in futures] == [2, 4, 6, 8, 10]
    assert doubling.batches == [[1], [2], [3, 4, 5]]


def test_a_request_at_fault_fails_alone(requests, doubling):
    doubling.may_run.set()
    good, bad, other = put(requests, 1, None, 3)
    assert (good.result(60), other.result(60)) == (2, 6)
    with pytest.raises(ValueError, match="no number"):
        bad.result(60)


def test_a_request_that_was_cancelled_is_not_computed(requests, doubling):
    cancelled, *others = put(requests, 1, 2)
    assert cancelled.cancel()
    others += put(requests, 3)
    doubling.may_run.set()
    assert [f.result(60) for f in others] == [4, 6]
    assert doubling.batches == [[2, 3]]


def test_what_was_put_before_the_end_is_computed_and_nothing_after_it(requests, doubling):
    futures = put(requests, 1, 2)
    requests.close()
    doubling.may_run.set()
    assert [f.result(60) for f in futures] == [2, 4]
    with pytest.raises(RuntimeError, match="has been closed"):
        put(requests, 3)


def test_more_requests_than_may_wait_are_refused(requests, doubling):
    first = put(requests, 0, 0, 0)
    while not doubling.batches:  # the first batch is being computed; the next ones wait
        threading.Event().wait(0.001)
    waiting = put(requests, *range(6))
    with pytest.raises(queue.Full, match="6 requests wait already"):
        put(requests, 7)
    doubling.may_run.set()
    assert [f.result(60) for f in (*first, *waiting)] == [0, 0, 0, 0, 2, 4, 6, 8, 10]
