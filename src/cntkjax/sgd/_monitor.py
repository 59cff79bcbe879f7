"""What a block says to watch during an epoch: a profile, and the speed of all workers."""

from __future__ import annotations

import time
from typing import Self

from ..debugging import profiler
from ..parallel import workers
from ._meter import Meter
from .settings import BlockSettings


class Monitor:
    """Records a profile of the first minibatches (numMBsToCUDAProfile), and prints the speed (syncPerfStats)."""

    def __init__(self, settings: BlockSettings, meter: Meter, is_first: bool) -> None:
        self._profiled = settings["numMBsToCUDAProfile"] if is_first and workers.rank() == 0 else 0
        self._folder = f"{settings['modelPath'] or 'sgd'}.profile"
        self._frequency = settings["syncPerfStats"] if settings["parallelizationMethod"] != "none" else 0
        self._meter, self._minibatches, self._samples = meter, 0, 0
        self._since = time.perf_counter()

    def __enter__(self) -> Self:
        if self._profiled:
            profiler.start_profiler(self._folder)
        return self

    def __exit__(self, *error: object) -> None:
        if self._profiled:
            profiler.stop_profiler()

    def on_start(self) -> None:
        """Called before each minibatch."""
        if self._profiled:
            profiler.enable_profiler()

    def on_end(self) -> bool:
        """Called after each minibatch; training goes on."""
        self._minibatches += 1
        if self._profiled and self._minibatches == self._profiled:
            profiler.stop_profiler()
            self._profiled = 0
        if self._frequency and self._minibatches % self._frequency == 0:
            self._print_speed()
        return True

    def _print_speed(self) -> None:
        tally = self._meter.tally
        tally.last_loss()  # waits for the device
        now, samples = time.perf_counter(), tally.samples - self._samples
        self._samples, seconds, self._since = tally.samples, now - self._since, now
        if workers.rank() == 0:
            print(f"Performance: {samples / max(seconds, 1e-9):.0f} samples/s of {workers.size()} workers, "
                  f"{1000 * seconds / self._frequency:.1f} ms per minibatch")
