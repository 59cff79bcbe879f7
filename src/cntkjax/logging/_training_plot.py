"""Plots of training: loss, metric and learning rate of one or more runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..graph.arguments import public

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Averages(Protocol):
    """Averages over some samples, as ``Function.train`` returns them."""

    samples: int
    loss: float
    metric: float


class Trained(Protocol):
    """What ``Function.train`` returns."""

    updates: Iterable[Averages]


Run: TypeAlias = "str | os.PathLike[str] | Trained | Iterable[Averages]"

_NUMBER = r"([-+.\deEinfa]+)"
_MINIBATCHES = re.compile(
    rf"^\s*Minibatch\[.*?\]: loss = {_NUMBER} \* (\d+)(?:, metric = {_NUMBER}(%?) \* \d+)?;", re.IGNORECASE
)
_ROW = re.compile(rf"^\s+{_NUMBER}\s+{_NUMBER}\s+(?:{_NUMBER}\s+{_NUMBER}\s+)?(\d+)\s*$")
_RATE = re.compile(rf"^Learning rate per .*?: {_NUMBER}$")


@dataclass
class Curves:
    """Figures of a run. Units: `samples` seen so far at each average; `rates`: (samples seen before, rate)."""

    samples: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    metrics: list[float | None] = field(default_factory=list)
    rates: list[tuple[int, float]] = field(default_factory=list)
    in_percent: bool = False

    def add(self, samples: int, loss: float, metric: float | None) -> None:
        """Add averages over a number of samples."""
        self.samples.append(samples + (self.samples[-1] if self.samples else 0))
        self.losses.append(loss)
        self.metrics.append(metric)


def curves_of(run: Run) -> Curves:
    """The figures of a run. Errors: OSError for a log that cannot be read; ValueError if there are no figures in it."""
    curves = Curves()
    if isinstance(run, str | os.PathLike):
        _read(Path(run).read_text("utf-8", "replace").splitlines(), curves)
        if not curves.samples:
            raise ValueError(f"{run} has no lines that a ProgressPrinter writes for minibatches; set its freq=")
        return curves
    updates: Any = getattr(run, "updates", run)
    for averages in updates:
        curves.add(averages.samples, averages.loss, averages.metric)
    if not curves.samples:
        raise ValueError("there are no averages to plot: train with a ProgressPrinter, and set its freq=")
    return curves


def _read(lines: Iterable[str], curves: Curves) -> None:
    """Read the log of a ProgressPrinter: lines for every few minibatches, or its table (``freq=0``)."""
    before = 0  # samples in the table since its epoch began
    for line in lines:
        if match := _MINIBATCHES.match(line):
            loss, samples, metric, percent = match.groups()
            curves.in_percent |= percent == "%"
            curves.add(int(samples), float(loss), None if metric is None else float(metric))
        elif match := _ROW.match(line):
            _, loss, _, metric, seen = match.groups()
            samples = int(seen) - before if int(seen) > before else int(seen)
            before = int(seen)
            curves.add(samples, float(loss), None if metric is None else float(metric))
        elif match := _RATE.match(line):
            curves.rates.append((curves.samples[-1] if curves.samples else 0, float(match[1])))


@public
def plot_training(runs: Run | Mapping[str, Run], filename: str | os.PathLike[str] | None = None) -> Figure:
    """Draw loss, metric and learning rate over the samples seen, of one run or of several by name.

    CNTK has no such function.

    Args:
        runs: the log file of a `ProgressPrinter`, or what `Function.train` returned; or a dict of these by name
        filename: where to write the picture; the extension selects the format (.png, .svg, .pdf)

    Errors: ValueError for a run without figures; OSError for a log that cannot be read; ImportError without matplotlib
        (``pip install 'cntkjax[plot]'``).

    >>> import cntkjax as C
    >>> figure = C.logging.plot_training({'small rate': 'a.log', 'large rate': 'b.log'})  # doctest: +SKIP
    """
    named: Mapping[str, Any] = runs if isinstance(runs, Mapping) else {"": runs}
    curves = {name: curves_of(run) for name, run in named.items()}
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot_training needs matplotlib: pip install 'cntkjax[plot]'") from error
    panels = list(_panels(curves.values()))
    figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, run in curves.items():
            x, y = values(run)
            axes.plot(x, y, label=name, drawstyle="steps-post" if title == "learning rate" else "default")
        axes.set(xlabel="samples", title=title)
        if title == "learning rate":
            axes.set_yscale("log")
        if len(curves) > 1:
            axes.legend()
    if filename is not None:
        figure.savefig(filename)
    return figure


def _panels(runs: Iterable[Curves]) -> Iterator[tuple[str, Any]]:
    """Title of each panel, and what gives its points."""
    runs = list(runs)
    yield "loss", lambda run: (run.samples, run.losses)
    if any(metric is not None for run in runs for metric in run.metrics):
        unit = " [%]" if any(run.in_percent for run in runs) else ""
        yield f"metric{unit}", lambda run: (run.samples, run.metrics)
    if any(run.rates for run in runs):
        yield "learning rate", _rate_steps


def _rate_steps(run: Curves) -> tuple[list[int], list[float]]:
    last = run.samples[-1] if run.samples else 0
    steps = [*run.rates, (last, run.rates[-1][1])] if run.rates else []
    return [samples for samples, _ in steps], [rate for _, rate in steps]


__all__ = ["plot_training"]
