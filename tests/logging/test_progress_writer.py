"""Counting, adding up and deciding when to write (call by call as CNTK 2.7's trainer calls a writer)."""
import sys

import pytest

import cntkjax as C
from cntkjax.graph.proxy import unwrap
from cntkjax.logging import ProgressWriter, _progress_writer


class Recorder(ProgressWriter):
    def __init__(self, *args):
        super().__init__(*args)
        self.calls = []
        assert self.__disown__() is self

    def on_write_training_update(self, samples, updates, aggregate_loss, aggregate_metric):
        self.calls.append(("train", samples, updates, aggregate_loss, aggregate_metric))

    def on_write_test_update(self, samples, updates, aggregate_metric):
        self.calls.append(("test", samples, updates, aggregate_metric))

    def on_write_training_summary(self, samples, updates, summaries, aggregate_loss, aggregate_metric, milliseconds):
        self.calls.append(("epoch", samples, updates, summaries, aggregate_loss, aggregate_metric, milliseconds))

    def on_write_test_summary(self, samples, updates, summaries, aggregate_metric, milliseconds):
        self.calls.append(("tested", samples, updates, summaries, aggregate_metric))

    def on_write_distributed_sync_update(self, samples, updates, aggregate_metric):
        self.calls.append(("sync", samples, updates, aggregate_metric))

    def on_training_update_end(self):
        self.calls.append(("end",))


def train(writer, epochs=1):
    for _ in range(epochs):
        for i in range(1, 10):
            writer.update_training(2, 2 * i * i, 2 * i)
        writer.write_training_summary()
    return [call for call in writer.calls if call != ("end",)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_totals_are_written_every_few_updates_and_restart_each_epoch(epoch):
    calls = train(Recorder(2), epochs=2)[5 * epoch:5 * epoch + 5]
    assert calls[:4] == [("train", (0, 4), (0, 2), (0, 10), (0, 6)), ("train", (4, 8), (2, 4), (10, 60), (6, 20)),
                         ("train", (8, 12), (4, 6), (60, 182), (20, 42)),
                         ("train", (12, 16), (6, 8), (182, 408), (42, 72))]
    assert calls[4][:6] == ("epoch", 18, 9, epoch + 1, 570, 90)
    assert isinstance(calls[4][6], int)


@pytest.mark.parametrize(("freq", "first", "due"), [
    (0, 0, [1, 3, 7]), (0, 2, [1, 3, 7]), (3, 2, [1, 2, 3, 6, 9]), (5, 7, [1, 2, 3, 4, 5, 6, 7]),
    (sys.maxsize, 2, [1, 2]), (1, 0, list(range(1, 10))), (sys.maxsize, 0, []),
])
def test_a_line_is_written_when_due(freq, first, due):
    assert [call[2][1] for call in train(Recorder(freq, first)) if call[0] == "train"] == due


def test_an_update_ends_after_it_was_written():
    writer = Recorder(2)
    train(writer)
    assert [call[0] for call in writer.calls[:4]] == ["end", "train", "end", "end"]


def test_tests_are_counted_separately():
    writer = Recorder(2, 0, 3)
    for _ in range(2):
        for i in range(1, 5):
            writer.update_test(3, 3 * i)
        writer.write_test_summary()
    once = [("test", (0, 9), (0, 3), (0, 18))]
    assert writer.calls == [*once, ("tested", 12, 4, 1, 30), *once, ("tested", 12, 4, 2, 30)]
    assert (writer.total_test_updates(), writer.total_training_updates()) == (8, 0)


def test_an_empty_summary_is_written():
    writer = Recorder()
    writer.write_test_summary()
    writer.write_training_summary()
    assert writer.calls[0] == ("tested", 0, 0, 1, 0)
    assert writer.calls[1][:6] == ("epoch", 0, 0, 1, 0, 0)


def test_synchronizations_are_counted_separately():
    writer = Recorder(1, 0, 1, 0, 2, 0)
    for _ in range(4):
        writer.update_distributed_sync(10, 1)
    assert writer.calls == [("sync", (0, 20), (0, 2), (0, 2)), ("sync", (20, 40), (2, 4), (2, 4))]


def test_summaries_do_not_reset_the_number_of_updates():
    writer = Recorder(2)
    train(writer, epochs=2)
    assert writer.total_training_updates() == 18


def test_elapsed_time_counts_from_the_previous_summary(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_progress_writer.time, "perf_counter", lambda: now[0])
    writer = Recorder()
    for seconds in (1.5, 0.25):
        now[0] += seconds
        writer.write_training_summary()
    assert [call[-1] for call in writer.calls] == [1500, 250]


class Unread:
    """A loss that is still being computed: reading it too early is an error."""

    def __init__(self, value):
        self.value, self.ready = value, False

    def __float__(self):
        assert self.ready, "read before anybody needed it"
        return float(self.value)


def test_losses_are_read_only_when_a_line_is_written():
    writer = Recorder(3)
    losses = [Unread(i) for i in range(3)]
    for loss in losses[:2]:
        writer.update_training(1, loss, 0)
    for loss in losses:
        loss.ready = True
    writer.update_training(1, losses[2], 0)
    assert ("train", (0, 3), (0, 3), (0, 3), (0, 0)) in writer.calls


def test_unread_losses_do_not_accumulate():
    writer = Recorder()
    for _ in range(1000):
        loss = Unread(1)
        loss.ready = True
        writer.update_training(1, loss, 0)
    assert len(unwrap(writer)._training.sums[0]._pending) == _progress_writer._PENDING
    writer.write_training_summary()
    assert writer.calls[-1][4] == 1000


@pytest.mark.parametrize(("freq", "error"), [(-1, OverflowError), ("a", TypeError), (2.5, TypeError)])
def test_invalid_frequencies_are_refused(freq, error):
    with pytest.raises(error):
        ProgressWriter(freq)


def test_a_writer_without_methods_does_nothing():
    writer = ProgressWriter(1, 0, 1, 0, 1, 0)
    writer.update_training(1, 1, 1)
    writer.update_test(1, 1)
    writer.update_distributed_sync(1, 1)
    writer.write_training_summary()
    writer.write_test_summary()
    writer.write("rate", 1)
    assert writer.total_training_updates() == 1


@pytest.mark.parametrize("where", ["object", "class"])
def test_subclasses_may_use_any_attribute_name(where):
    inside = {name for o in (Recorder(), unwrap(Recorder())) for name in (*dir(o), *vars(o))}
    names = {name for name in inside if not name.startswith(("__", "on_"))} - {"calls", "write"}
    assert {"_training", "update_training", "write_training_summary", "update_test"} < names

    class Keeping(Recorder):
        def __init__(self, *args):
            super().__init__(*args)
            for name in names if where == "object" else ():
                setattr(self, name, "mine")

    for name in names if where == "class" else ():
        setattr(Keeping, name, "mine")
    x = C.input_variable(1)
    w = C.parameter(1, init=1)
    loss = C.reduce_sum(x * w)
    writer = Keeping(1, 0, 1)
    trainer = C.Trainer(loss, (loss, loss), C.sgd([w], 0.25), [writer])
    trainer.train_minibatch({x: [[2]]})
    trainer.summarize_training_progress()
    trainer.test_minibatch({x: [[2]]})
    trainer.summarize_test_progress()
    assert [call[0] for call in writer.calls] == ["train", "end", "epoch", "test", "tested"]
