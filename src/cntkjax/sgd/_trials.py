"""Short trainings with some rate and size, all from the same state and on the same data."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

from ..device import DeviceDescriptor
from ..eval.evaluator import Evaluator, EvaluatorCore
from ..graph.proxy import unwrap
from ..io import MinibatchData
from ..parallel import workers
from ..train._sources import Inputs, SessionSource, next_minibatch, read
from ..train.trainer import Trainer
from ._meter import Meter, Tally
from ._observer import Observer
from ._session import Session
from ._workers import broadcast

NO_RATE = 1e-30  # per sample: a step is taken, but changes nothing
JOINED = 3  # minibatches that are evaluated at once, which takes the time and memory of a training step on one


class Replay:
    """A reader that repeats the minibatches of another one, each of which is read once."""

    def __init__(self, source: SessionSource) -> None:
        self._source = source
        self._minibatches: list[Mapping[Any, MinibatchData]] = []
        self._next = 0

    def next_minibatch(
        self, samples: int, device: DeviceDescriptor | None = None, num_data_partitions: int = 1,
        partition_index: int = 0,
    ) -> Mapping[Any, MinibatchData]:
        """The next minibatch. All passes have to ask for the same sizes."""
        if self._next == len(self._minibatches):
            self._minibatches.append(read(self._source, samples, device, (partition_index, num_data_partitions)))
        self._next += 1
        return self._minibatches[self._next - 1]

    def move_to(self, index: int) -> None:
        """Go on with the minibatch of this number; those before it have been read."""
        self._next = index

    def is_infinite(self) -> bool:
        """Whether the data never end."""
        return self._source.is_infinite()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The position in the source."""
        return self._source.get_checkpoint_state()

    def restore_from_checkpoint(self, checkpoint: Mapping[str, Any], /) -> None:
        """Move to a position in the source."""
        self._source.restore_from_checkpoint(checkpoint)


class Trials:
    """A scope in which trials are run: at its end, model, learners and source are as they were at its beginning.

    `loss`: what an evaluator computes of a minibatch. `set_rate`: sets the trainer's rate per sample.
    `epoch`: the number of the epoch before which they are, from 1; `data`: the scope in which the data end with it.
    `of_all`: sums numbers over workers that train on their own. `observer`: gets what happens. `spent`: the time of all
    trials, in minibatches of training.
    """

    def __init__(
        self, trainer: Trainer, loss: Evaluator, source: SessionSource, inputs: Inputs, meter: Meter,
        set_rate: Callable[[float], object], observer: Observer, epoch: int,
        data: Callable[[], AbstractContextManager[Any]], of_all: Callable[[str, list[float]], list[float]],
    ) -> None:
        self._set_rate, self._data, self._of_all = set_rate, data, of_all
        self._observer, self._epoch = observer, epoch
        self._trainer, self._source, self._inputs, self._meter = trainer, source, inputs, meter
        self._loss: EvaluatorCore = unwrap(loss)
        self._replays: dict[int, Replay] = {}  # by size
        self._others: Replay | None = None
        self.spent = 0.0

    def __enter__(self) -> Self:
        folder = tempfile.mkdtemp(prefix="cntkjax") if workers.rank() == 0 else ""
        self._folder = broadcast("a folder", folder)
        self._position = self._source.get_checkpoint_state()
        self._trainer.save_checkpoint(f"{self._folder}/start")
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()
        self._source.restore_from_checkpoint(self._position)
        workers.barrier("the end of a search")
        if workers.rank() == 0:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _restore(self) -> None:
        self._trainer.restore_from_checkpoint(f"{self._folder}/start")

    def losses(
        self, rates: Sequence[float], size: int, go_on: Callable[[list[float]], bool] = lambda losses: True
    ) -> list[float]:
        """The average loss of each minibatch of a training, before the update with it; `rates` has one for each.

        `go_on` gets those so far; the trial ends if it returns False. All workers get the losses of worker 0.
        """
        self._restore()
        replay = self._replays.get(size)
        if replay is None:
            self._source.restore_from_checkpoint(self._position)
            replay = self._replays[size] = Replay(self._source)
        replay.move_to(0)
        losses: list[float] = []
        base = "Base" if rates[0] == NO_RATE else ""
        with self._trial(f"{base}AdaptiveLearnRateSearch", rates[0], size) as tally:

            def on_end() -> bool:
                if tally.minibatches == len(losses):  # the data have ended
                    return False
                losses.append(broadcast("a trial", tally.last_loss()))
                if len(losses) < len(rates) and rates[len(losses)] != rates[len(losses) - 1]:
                    self._set_rate(rates[len(losses)])
                return go_on(losses)

            Session(
                self._trainer, replay, size, self._inputs, max_minibatches=len(rates), on_end=on_end
            ).train()
        self.spent += len(losses)
        return losses

    def mini_epoch(self, title: str, rate: float, size: int, samples: int) -> float:
        """The average loss of the beginning of the epoch, each minibatch before the update with it.

        It ends, as CNTK's logs show, after the minibatch with which it has more than so many samples.
        """
        self._restore()
        self._source.restore_from_checkpoint(self._position)
        with self._data() as limits, self._trial(title, rate, size) as tally:

            def on_end() -> bool:
                return self._of_all("a trial", [tally.samples])[0] <= samples

            Session(self._trainer, self._source, size, self._inputs, on_end=on_end, **limits).train()
        self.spent += tally.minibatches
        count, loss, *_ = self._of_all("a trial", [tally.samples, float(tally.loss)])
        return loss / count if count and math.isfinite(loss) else math.inf

    @contextmanager
    def _trial(self, title: str, rate: float, size: int) -> Iterator[Tally]:
        """A scope in which the trainer runs a trial, which the observer is told of."""
        self._set_rate(rate)
        shown = 0.0 if rate == NO_RATE else rate
        self._observer.tries(self._epoch, title, shown, size)
        with self._meter.silence() as tally:
            yield tally
        self._observer.tried(self._epoch, shown, size)

    def loss_of(self, size: int, minibatches: int) -> float:
        """The average loss, after a trial, of the first minibatches."""
        self._replays[size].move_to(0)
        self.spent += minibatches / JOINED
        return self._average(self._replays[size], size, minibatches)

    def loss_of_others(self, size: int, minibatches: int) -> float:
        """The average loss, after a trial, of minibatches that follow all those read so far, `JOINED` at a time.

        They are the same for all trials of a search.
        """
        self._others = self._others or Replay(self._source)
        self._others.move_to(0)
        self.spent += minibatches / JOINED
        return self._average(self._others, JOINED * size, minibatches // JOINED)

    def _average(self, replay: Replay, size: int, minibatches: int) -> float:
        total, samples = 0.0, 0
        with self._meter.silence():
            for _ in range(minibatches):
                if minibatch := next_minibatch(replay, size, self._inputs):
                    loss, more = self._loss.test_sum(minibatch)
                    total, samples = total + loss, samples + more
        return broadcast("a trial", total / samples if samples else math.inf)

    def begin_again(self) -> None:
        """Let the next trials read the data from the beginning."""
        self._replays, self._others = {}, None
