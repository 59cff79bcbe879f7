"""CNTK 2.7's lines, recorded from it with the same losses and metrics."""
import os
import time
from types import SimpleNamespace

import pytest

from cntkjax.logging import ProgressPrinter, TrainingSummaryProgressCallback, _progress_writer, log_number_of_parameters


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test advances it."""
    now = [1000.0]
    monkeypatch.setattr(_progress_writer.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def run(clock, epochs=2, minibatches=9, **options):
    """What a trainer does: epochs of `minibatches` with losses 1, 4, 9, … of two samples each, and a test."""
    printer = ProgressPrinter(**options)
    printer.write("Learning rate per minibatch", 0.0)
    for _ in range(epochs):
        for i in range(1, minibatches + 1):
            printer.update_training(2, 2 * i * i, 0.02 * i * i)
        clock[0] += 0.025
        printer.write_training_summary()
    for i in range(1, minibatches + 1):
        printer.update_test(3, 0.03 * i * i)
    printer.write_test_summary()
    printer.write_test_summary()
    printer.end_progress_print()


EPOCH = """\
 Minibatch[   1-   3]: loss = 4.666667 * 6, metric = 4.67% * 6;
 Minibatch[   4-   6]: loss = 25.666667 * 6, metric = 25.67% * 6;
 Minibatch[   7-   9]: loss = 64.666667 * 6, metric = 64.67% * 6;
"""
TEST = """\
Finished Evaluation [1]: Minibatch[1-9]: metric = 31.67% * 27;
Finished Evaluation [2]: Minibatch[1-0]: metric = 0.00% * 0;
CNTKCommandTrainEnd: train
"""
blanks = " " * 14
TABLE = f"""\
 average      since    average      since      examples
    loss       last     metric       last{blanks}
 ------------------------------------------------------
"""
ROWS = """\
        1          1       0.01       0.01             2
     4.67        6.5     0.0467      0.065             6
       20       31.5        0.2      0.315            14
"""


def finished(epoch, tag="", metric="31.67%"):
    return f"Finished Epoch[{epoch}]: {tag}loss = 31.666667 * 18, metric = {metric} * 18 0.025s (720.0 samples/s);\n"


def test_a_line_every_few_minibatches_and_at_the_end_of_epoch_and_test(clock, capsys):
    run(clock, freq=3)
    expected = "Learning rate per minibatch: 0.0\n" + EPOCH + finished(1) + EPOCH + finished(2) + TEST
    assert capsys.readouterr().out == expected


def test_first_lines_tag_and_number_of_epochs(clock, capsys):
    run(clock, epochs=1, freq=3, first=2, num_epochs=3, tag="Tag")
    first = """\
 Minibatch[   1-   1]: loss = 1.000000 * 2, metric = 1.00% * 2;
 Minibatch[   2-   2]: loss = 4.000000 * 2, metric = 4.00% * 2;
 Minibatch[   3-   3]: loss = 9.000000 * 2, metric = 9.00% * 2;
"""
    after = EPOCH.splitlines(keepends=True)[1:]
    expected = ["Learning rate per minibatch: 0.0\n", first, *after, finished("1 of 3", "[Tag] "), TEST]
    assert capsys.readouterr().out == "".join(expected)


def test_a_tag_may_be_a_number(clock, capsys):
    run(clock, epochs=1, tag=5)
    assert finished(1, "[5] ") in capsys.readouterr().out


def test_a_table_at_doubling_intervals(clock, capsys):
    run(clock, freq=0)
    assert capsys.readouterr().out == TABLE + "Learning rate per minibatch: 0.0\n" + ROWS + ROWS + TEST


def test_without_a_frequency_only_epochs(clock, capsys):
    run(clock, epochs=1)
    assert capsys.readouterr().out == "Learning rate per minibatch: 0.0\n" + finished(1) + TEST


def test_a_metric_that_is_no_percentage_and_lines_of_tests(clock, capsys):
    run(clock, epochs=1, freq=100, metric_is_pct=False, test_freq=2, test_first=1)
    assert capsys.readouterr().out == "Learning rate per minibatch: 0.0\n" + finished(1, metric="0.316667") + """\
 Evaluation Minibatch[   1-   1]: metric = 0.010000 * 3;
 Evaluation Minibatch[   2-   2]: metric = 0.040000 * 3;
 Evaluation Minibatch[   3-   4]: metric = 0.125000 * 6;
 Evaluation Minibatch[   5-   6]: metric = 0.305000 * 6;
 Evaluation Minibatch[   7-   8]: metric = 0.565000 * 6;
Finished Evaluation [1]: Minibatch[1-9]: metric = 0.316667 * 27;
Finished Evaluation [2]: Minibatch[1-0]: metric = 0.000000 * 0;
CNTKCommandTrainEnd: train
"""


def test_a_table_of_tests(clock, capsys):
    run(clock, epochs=0, freq=100, test_freq=0)
    assert capsys.readouterr().out == """\
Learning rate per minibatch: 0.0
                           0.01       0.01             3
                         0.0467      0.065             9
                            0.2      0.315            21
""" + TEST


@pytest.mark.parametrize(("rank", "suffix"), [(None, ""), (0, "rank0"), (1, "rank1")])
def test_lines_are_written_to_a_log_file(clock, capsys, tmp_path, rank, suffix):
    name = os.fspath(tmp_path / "log")
    run(clock, epochs=1, freq=3, log_to_file=name, rank=rank)
    assert capsys.readouterr().out == f"Redirecting log to file {name}{suffix}\n"
    head = f"{name}{suffix}\nCNTKCommandTrainInfo: train : 300\nCNTKCommandTrainInfo: CNTKNoMoreCommands_Total : 300\n"
    body = "CNTKCommandTrainBegin: train\nLearning rate per minibatch: 0.0\n" + EPOCH + finished(1) + TEST
    assert (tmp_path / f"log{suffix}").read_text() == head + body


def test_a_log_file_has_the_number_of_epochs_and_the_last_message(capsys, tmp_path):
    printer = ProgressPrinter(num_epochs=4, log_to_file=os.fspath(tmp_path / "log"))
    printer.end_progress_print("done")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[1:3] == ["CNTKCommandTrainInfo: train : 4", "CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : 4"]
    assert lines[-2:] == ["CNTKCommandTrainEnd: train", "done"]


def test_the_number_of_epochs_may_be_a_quotient(clock, capsys):
    run(clock, epochs=1, freq=3, num_epochs=5 / 2)
    assert "Finished Epoch[1 of 2.5]: " in capsys.readouterr().out


def test_the_last_message_is_only_written_to_a_file(capsys):
    ProgressPrinter().end_progress_print("done")
    assert capsys.readouterr().out == "CNTKCommandTrainEnd: train\n"


def test_unusual_numbers_are_printed(capsys):
    printer = ProgressPrinter(freq=1)
    printer.on_write_training_update((0, 10), (0, 1), (0, 1e-9), (0, 1e5))
    printer.on_write_training_update((0, 10), (0, 1), (0, 1e9), (0, float("nan")))
    printer.on_write_training_update((10, 10), (0, 1), (0, 1e9), (0, float("nan")))
    printer.on_write_training_update((10, 1000000), (9998, 12345), (0, 1e9), (0, float("inf")))
    printer.on_write_training_summary(0, 0, 1, 0.0, 0.0, 0)
    printer.on_write_training_summary(10, 2, 1, 3.0, 4.0, 1500)
    printer.on_write_distributed_sync_update((0, 10), (3, 5), (1.0, 2.0))
    assert capsys.readouterr().out == """\
 Minibatch[   1-   1]: loss = 0.000000 * 10, metric = 1000000.00% * 10;
 Minibatch[   1-   1]: loss = 100000000.000000 * 10, metric = nan% * 10;
 Minibatch[   1-   1]: loss = 0.000000 * 0, metric = 0.00% * 0;
 Minibatch[9999-12345]: loss = 1000.010000 * 999990, metric = inf% * 999990;
Finished Epoch[1]: loss = 0.000000 * 0, metric = 0.00% * 0 0.000s (  0.0 samples/s);
Finished Epoch[1]: loss = 0.300000 * 10, metric = 40.00% * 10 1.500s (  6.7 samples/s);
Distributed training: #Syncs elapsed = 2, #Samples elapsed = 10
"""


def by_hand(clock, epochs=2, minibatches=10, metric=True, **options):
    printer = ProgressPrinter(**options)
    for epoch in range(epochs):
        for i in range(minibatches):
            printer.update(2 / (1 + i) + 0.001 * epoch, 7, 0.5 / (1 + i) if metric else None)
        clock[0] += 0.1
        yield printer.epoch_summary(with_metric=metric)


def test_manual_updates(clock, capsys):
    """An incomplete line at the end of an epoch continues in the next one, as in CNTK."""
    first, second = by_hand(clock, freq=3)
    assert capsys.readouterr().out == """\
 Minibatch[   1-   3]: loss = 1.222222 * 21, metric = 30.56% * 21;
 Minibatch[   4-   6]: loss = 0.411111 * 21, metric = 10.28% * 21;
 Minibatch[   7-   9]: loss = 0.252646 * 21, metric = 6.32% * 21;
Finished Epoch[1]: loss = 0.585794 * 70, metric = 14.64% * 70 0.100s (700.0 samples/s);
 Minibatch[   1-   3]: loss = 0.967417 * 28, metric = 24.17% * 28;
 Minibatch[   4-   6]: loss = 0.412111 * 21, metric = 10.28% * 21;
 Minibatch[   7-   9]: loss = 0.253646 * 21, metric = 6.32% * 21;
Finished Epoch[2]: loss = 0.586794 * 70, metric = 14.64% * 70 0.100s (700.0 samples/s);
"""
    assert first == pytest.approx((0.5857936507936508, 0.1464484126984127, 70))
    assert second == pytest.approx((0.5867936507936508, 0.1464484126984127, 70))


def test_manual_updates_without_a_metric(clock, capsys):
    assert next(by_hand(clock, epochs=1, metric=False, freq=6)) == pytest.approx((0.5857936507936508, 0, 70))
    assert capsys.readouterr().out == """\
 Minibatch[   1-   6]: loss = 0.816667 * 42;
Finished Epoch[1]: loss = 0.585794 * 70 0.100s (700.0 samples/s);
"""


def test_the_first_manual_updates(clock, capsys):
    list(by_hand(clock, epochs=1, freq=3, first=2, tag="T"))
    assert [line[:23] for line in capsys.readouterr().out.splitlines()] == [
        " Minibatch[   1-   1]: ", " Minibatch[   2-   2]: ", " Minibatch[   3-   3]: ", " Minibatch[   4-   6]: ",
        " Minibatch[   7-   9]: ", "Finished Epoch[1]: [T] "]


def test_a_table_of_manual_updates_continues_over_epochs(clock, capsys):
    assert list(by_hand(clock, minibatches=20, freq=0)) == [None, None]
    assert capsys.readouterr().out == TABLE + """\
        2          2        0.5        0.5             7
     1.22      0.833      0.306      0.208            21
    0.741       0.38      0.185     0.0949            49
    0.442      0.181      0.111     0.0453           105
    0.427      0.413      0.107      0.103           217
"""


def test_a_table_of_manual_updates_without_a_metric(capsys):
    printer = ProgressPrinter(freq=0)
    for i in range(3):
        printer.update(2 / (1 + i), 7)
    assert capsys.readouterr().out == TABLE + """\
        2          2                                   7
     1.22      0.833                                  21
"""


def test_averages_of_manual_updates(capsys):
    printer = ProgressPrinter(freq=4)
    assert (printer.avg_loss_since_last(), printer.avg_metric_since_start()) == (0, 0)
    for loss in (1.0, 2.0):
        printer.update(loss, 3, 0.25)
    assert (printer.avg_loss_since_last(), printer.avg_loss_since_start()) == (1.5, 1.5)
    assert (printer.avg_metric_since_last(), printer.avg_metric_since_start()) == (0.25, 0.25)
    assert printer.reset_last() == (1.5, 0.25, 6)
    assert (printer.avg_loss_since_last(), printer.avg_loss_since_start()) == (0, 1.5)
    assert printer.reset_start() == (1.5, 0.25, 6)
    assert printer.avg_loss_since_start() == 0


def test_totals_of_manual_updates_may_be_set(capsys):
    """As programs do to begin again; the lines are CNTK's."""
    printer = ProgressPrinter(freq=2)
    printer.update(1.0, 10, 0.5)
    printer.samples_since_start = printer.loss_since_start = printer.metric_since_start = 0
    printer.update(3.0, 10, 0.25)
    assert "loss = 2.000000 * 20, metric = 37.50% * 20" in capsys.readouterr().out
    printer.loss_since_last, printer.samples_since_last = 5.0, 2
    assert printer.avg_loss_since_last() == 2.5
    assert printer.epoch_summary(with_metric=True) == (3, 0.25, 10)


def test_updates_from_a_trainer(capsys):
    printer = ProgressPrinter(freq=1)
    trainer = SimpleNamespace(previous_minibatch_loss_average=3.0, previous_minibatch_sample_count=4,
                              previous_minibatch_evaluation_average=0.5)
    printer.update_with_trainer(trainer)
    printer.update_with_trainer(trainer, with_metric=True)
    trainer.previous_minibatch_sample_count = 0
    printer.update_with_trainer(trainer, with_metric=True)
    assert capsys.readouterr().out == """\
 Minibatch[   1-   1]: loss = 3.000000 * 4;
 Minibatch[   2-   2]: loss = 3.000000 * 4, metric = 50.00% * 4;
"""


def test_a_heartbeat_every_ten_seconds(clock, capsys):
    printer = ProgressPrinter(gen_heartbeat=True, num_epochs=4)
    beats = []
    for _ in range(25):
        printer.on_training_update_end()
        beats.append(capsys.readouterr().out)
        clock[0] += 1
    assert beats == ["PROGRESS: 0.00%\n" if second % 10 == 0 else "" for second in range(25)]
    printer.on_write_training_summary(10, 2, 1, 3.0, 4.0, 1500)
    clock[0] += 20
    printer.on_training_update_end()
    assert capsys.readouterr().out.endswith("PROGRESS: 25.00%\n")


def test_messages_of_the_script(capsys):
    printer = ProgressPrinter()
    printer.log("hello")
    printer.write("key", 3.5)
    assert capsys.readouterr().out == "hello\nkey: 3.5\n"


@pytest.mark.parametrize(("freq", "error"), [(-1, OverflowError), ("a", TypeError), (2.5, TypeError)])
def test_invalid_frequencies_are_refused(freq, error):
    with pytest.raises(error):
        ProgressPrinter(freq)


def test_a_callback_gets_the_totals_of_each_epoch():
    epochs = []
    callback = TrainingSummaryProgressCallback(10, lambda *totals: epochs.append(totals))
    for _ in range(2):
        callback.update_training(10, 110.0, 1.5)
        callback.update_test(10, 1.0)
        callback.write_training_summary()
        callback.write_test_summary()
    assert epochs == [(0, 110.0, 1.5, 10), (1, 110.0, 1.5, 10)]


@pytest.mark.parametrize(("shapes", "trace_level", "expected"), [
    ([(2, 3), (3,)], 0, "Training 9 parameters in 2 parameter tensors.\n"),
    ([(2, 3), (3,), ()], 1, "Training 10 parameters in 3 parameter tensors.\n\n\t(2, 3)\n\t(3,)\n\t()\n"),
    ([(-1, 3), (3,)], 1,
     "Training so far unspecified number of parameters in 2 parameter tensors.\n\n\t(-1, 3)\n\t(3,)\n"),
    ([], 0, "Training 0 parameters in 0 parameter tensors.\n"),
])
def test_the_number_of_parameters(capsys, shapes, trace_level, expected):
    model = SimpleNamespace(parameters=[SimpleNamespace(shape=shape) for shape in shapes])
    log_number_of_parameters(model, trace_level)
    assert capsys.readouterr().out == expected


def test_sums_of_manual_updates_can_be_read(capsys):
    """Programs print their own lines from them; the numbers are CNTK's."""
    printer = ProgressPrinter(2)

    def sums():
        since_start = printer.loss_since_start, printer.metric_since_start, printer.samples_since_start
        since_last = printer.loss_since_last, printer.metric_since_last, printer.samples_since_last
        return since_start, since_last, printer.updates_since_start, printer.total_updates

    assert sums() == ((0, 0, 0), (0, 0, 0), 0, 0)
    printer.update(2.0, 5, 0.5)
    assert sums() == ((10, 2.5, 5), (10, 2.5, 5), 1, 1)
    printer.update(3.0, 5, 0.25)
    assert sums() == ((25, 3.75, 10), (0, 0, 0), 2, 2)
    printer.update(4.0, 10, 0.25)
    printer.epoch_summary(with_metric=True)
    assert sums() == ((0, 0, 0), (40, 2.5, 10), 0, 3)
    assert (printer.metric_multiplier, ProgressPrinter(metric_is_pct=False).metric_multiplier) == (100, 1)
    assert printer.log_to_file is None
