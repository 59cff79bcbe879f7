"""python -m benchmarks gaps: how long the device has nothing to do between the steps of training sessions.

Tagging of ATIS from a text file, a convolutional network on image files, another on what a user's source returns, and a
network for frames of speech from HTK files. Each trains in a session; when its programs are compiled, XLA's trace says
when each program was handed over to it, and when it ran. The queue is empty when nothing runs and the next step has not
been handed over, because the host still reads, packs or sends its minibatch: that is a gap. On a CPU, host and device
share the cores: what the host does beside a step makes the step longer, and is no gap; nor is the time until the system
lets XLA's thread run, which is part of "nothing ran".
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

import cntk as C
from benchmarks import data
from benchmarks.reading import write_htk
from benchmarks.resources import machine, parse_with_paths

L = C.layers
_FRAME_BATCH, _FRAME_CONTEXT, _FRAME_STATES = 256, 5, 512
_SIDE, _IMAGES = 32, 4096


# ---- sessions
@dataclass(frozen=True)
class Workload:
    """What a session trains: a network's input and output, the labels, and where they come from."""

    features: Any
    network: Any
    labels: Any
    source: Any
    minibatch_size: int
    warm: int
    """Minibatches before the recording begins, of all sizes that there are."""


def atis(folder: Path, files: Path) -> Workload:
    """Slot tagging from a text file, 500 words a minibatch."""
    words, slots = (
        C.sequence.input_variable(n, is_sparse=True) for n in (data.ATIS_WORDS, data.ATIS_LABELS)
    )
    x, y = (
        C.io.StreamDef(field, width, is_sparse=True)
        for field, width in (("S0", data.ATIS_WORDS), ("S2", data.ATIS_LABELS))
    )
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(folder / "atis.train.ctf"), C.io.StreamDefs(x=x, y=y)))
    model = L.Sequential([L.Embedding(150), L.Recurrence(L.LSTM(300)), L.Dense(data.ATIS_LABELS)])
    return Workload(words, model(words), slots, source, data.ATIS_MINIBATCH, 2 * data.ATIS_PASS)


def _alexnet() -> Any:
    stages = [
        layer for filters in (32, 32, 64)
        for layer in (L.Convolution2D((5, 5), filters, activation=C.relu, pad=True), L.MaxPooling((3, 3), strides=2))
    ]
    return L.Sequential([*stages, L.Dense(data.CLASSES)])


def image_files(folder: Path, files: Path) -> Workload:
    """AlexNet for images like CIFAR's, 256 a minibatch, from JPEG files with random crops."""
    from PIL import Image

    random = np.random.default_rng(0)
    with open(files / "small.txt", "w") as listing:
        for i in range(_IMAGES):
            small = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
            small.resize((40, 40), Image.Resampling.BICUBIC).save(files / f"{i}.jpg", quality=90)
            listing.write(f"{files / f'{i}.jpg'}\t{i % data.CLASSES}\n")
    steps = [
        C.io.transforms.crop("randomside", side_ratio=(0.8, 1.0), jitter_type="uniratio"),
        C.io.transforms.scale(_SIDE, _SIDE, 3),
    ]
    streams = C.io.StreamDefs(x=C.io.StreamDef("image", transforms=steps), y=C.io.StreamDef("label", data.CLASSES))
    source = C.io.MinibatchSource(C.io.ImageDeserializer(str(files / "small.txt"), streams))
    return _images(source, is_sparse=True)


class _Images(C.io.UserMinibatchSource):
    """Random images of whole numbers, mirrored, cropped and scaled in NumPy, as a user would write it."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._images = random.integers(0, 256, (_IMAGES, 3, _SIDE + 8, _SIDE + 8), np.uint8)
        self._labels = np.eye(data.CLASSES, dtype=np.float32)[random.integers(0, data.CLASSES, _IMAGES)]
        self._random, self._at = random, 0
        super().__init__()

    def stream_infos(self) -> list[Any]:
        return [
            C.io.StreamInformation("x", 0, "dense", np.float32, (3, _SIDE, _SIDE)),
            C.io.StreamInformation("y", 1, "dense", np.float32, (data.CLASSES,)),
        ]

    def next_minibatch(
        self, num_samples: int, number_of_workers: int = 1, worker_rank: int = 0, device: Any = None
    ) -> Any:
        rows = np.arange(self._at, self._at + num_samples) % _IMAGES
        self._at += num_samples
        top, left = self._random.integers(0, 9, 2)
        x = self._images[rows, :, top : top + _SIDE, left : left + _SIDE] / np.float32(256)
        values = {"x": x, "y": self._labels[rows]}
        return {
            info: C.io.MinibatchData(C.Value(values[info.name]), num_samples, num_samples, False)
            for info in self.stream_infos()
        }

    def is_infinite(self) -> bool:
        return True


def user_images(folder: Path, files: Path) -> Workload:
    """AlexNet as above, from a UserMinibatchSource."""
    return _images(_Images(), is_sparse=False)


def _images(source: Any, is_sparse: bool) -> Workload:
    x, y = C.input_variable((3, _SIDE, _SIDE)), C.input_variable(data.CLASSES, is_sparse=is_sparse)
    return Workload(x, _alexnet()(x), y, source, data.ALEXNET_BATCH, 10)


def speech(folder: Path, files: Path) -> Workload:
    """Frames of speech with their neighbors, 256 a minibatch, from HTK files."""
    write_htk(files, 20 * 2**20)
    context = C.io.StreamDef(shape=40, scp=str(files / "htk.scp"), context=(_FRAME_CONTEXT, _FRAME_CONTEXT))
    labels = C.io.StreamDef(shape=data.CLASSES, mlf=str(files / "htk.mlf"))
    source = C.io.MinibatchSource(
        [
            C.io.HTKFeatureDeserializer(C.io.StreamDefs(x=context)),
            C.io.HTKMLFDeserializer(str(files / "htk.list"), C.io.StreamDefs(y=labels)),
        ], frame_mode=True,
    )
    x, y = C.input_variable(40 * (2 * _FRAME_CONTEXT + 1)), C.input_variable(data.CLASSES, is_sparse=True)
    hidden = [L.Dense(_FRAME_STATES, activation=C.sigmoid) for _ in range(3)]
    return Workload(x, L.Sequential([*hidden, L.Dense(data.CLASSES)])(x), y, source, _FRAME_BATCH, 20)


WORKLOADS: dict[str, Callable[[Path, Path], Workload]] = {
    "atis": atis, "images": image_files, "user images": user_images, "speech": speech,
}


class _Recorded(C.train.TrainingSession):
    """A session that records the programs of some steps and then ends. Its trainer is ready when the recording ends."""

    def record(self, trainer: Any, warm: int, steps: int, folder: Path) -> None:
        self._ready = lambda: trainer.previous_minibatch_loss_average
        self._first, self._last, self._folder, self._number = warm, warm + steps, folder, 0
        self.train()

    def on_minibatch_end(self) -> bool:
        self._number += 1
        if self._number == self._first:
            self._ready()
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # it would slow the host down
            jax.profiler.start_trace(str(self._folder), profiler_options=options)
        if self._number == self._last:
            self._ready()
            jax.profiler.stop_trace()
        return self._number < self._last


def record(work: Workload, steps: int, folder: Path) -> None:
    """Train, and record some steps."""
    criteria = (C.cross_entropy_with_softmax(work.network, work.labels),
                C.classification_error(work.network, work.labels))
    rate = C.learning_parameter_schedule_per_sample([1e-4, 1e-5], epoch_size=10**6)
    learner = C.momentum_sgd(work.network.parameters, rate, C.momentum_schedule(0.9))
    # Who prints the loss of a step waits for that step; so nothing is printed meanwhile.
    printer = C.logging.ProgressPrinter(freq=10**6, log_to_file=str(folder / "progress.txt"))
    trainer = C.Trainer(work.network, criteria, learner, printer)
    streams = work.source.streams
    inputs = {work.features: streams.x, work.labels: streams.y}
    session = _Recorded(trainer, work.source, work.minibatch_size, inputs, 10**9, None, None, None, None)
    session.record(trainer, work.warm, steps, folder)


# ---- gaps
@dataclass
class Recording:
    """When programs were handed over to XLA, and when it ran them. Units: milliseconds.

    `running`: all time spans in which anything ran, which may overlap; `ended`, `handed_over`: a time for each program.
    """

    running: list[tuple[float, float]]
    ended: list[float]
    handed_over: list[float]

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """What `jax.profiler` wrote of XLA's CPU client."""
        (path,) = folder.glob("**/*.xplane.pb")
        recording = cls([], [], [])
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for event in (event for line in plane.lines for event in line.events):
                begin, end = event.start_ns / 1e6, event.end_ns / 1e6
                if event.name.startswith("ThunkExecutor::Execute"):
                    recording.running.append((begin, end))
                if event.name == "ThunkExecutor::Execute (wait for completion)":  # once in each program, last
                    recording.ended.append(end)
                if event.name.endswith("::ExecuteHelperOnSingleDevice"):
                    recording.handed_over.append(end)
        for times in (recording.running, recording.ended, recording.handed_over):
            times.sort()
        return recording

    @property
    def duration(self) -> float:
        """From the begin of the first program to the end of the last one."""
        return max(end for _, end in self.running) - self.running[0][0]

    def idle(self) -> Iterator[tuple[float, float]]:
        """The time spans in which nothing ran."""
        end = self.running[0][1]
        for begin, until in self.running:
            if begin > end:
                yield end, begin
            end = max(end, until)

    def empty(self) -> list[float]:
        """How long, in each time span in which nothing ran, the next program was not handed over."""
        durations = []
        for begin, end in self.idle():
            number = bisect_right(self.ended, begin)  # of the next one
            handed_over = self.handed_over[number] if number < len(self.handed_over) else end
            durations.append(max(min(handed_over, end) - begin, 0.0))
        return durations

    def ahead(self) -> float:
        """How many programs wait when one ends, in the middle."""
        return median(bisect_right(self.handed_over, end) - i - 1 for i, end in enumerate(self.ended))

    def row(self, name: str, steps: int) -> str:
        """A row of the table."""
        step, empty, idle = self.duration / steps, self.empty(), [end - begin for begin, end in self.idle()]
        longest, late = max(empty, default=0.0), sum(duration > 0.05 * step for duration in empty)
        return (
            f"| {name} | {step:.1f} ms | {max(self.ahead(), 0):.0f} | {sum(empty) / self.duration:.2%} | "
            f"{longest:.2f} ms, {longest / step:.1%} | {late} | {sum(idle) / self.duration:.2%} | "
            f"{max(idle, default=0.0) / step:.1%} |"
        )


def main(arguments: list[str] | None = None) -> None:
    """Train the networks and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gaps", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), help="default: all")
    parser.add_argument("--steps", type=int, default=100, help="steps that are recorded")
    options = parse_with_paths(parser, arguments)
    print(f"{machine()}. {options.steps} steps of each network.\n")
    print("| network | step | steps ahead | queue empty | longest, of a step | above 5% | nothing ran | longest |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.networks:
        if name == "atis" and not options.atis:
            print("ATIS is skipped: pass its folder with --atis", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            record(WORKLOADS[name](options.atis, Path(scratch)), options.steps, Path(scratch))
            print(Recording.read(Path(scratch)).row(name, options.steps), flush=True)


if __name__ == "__main__":
    main()
