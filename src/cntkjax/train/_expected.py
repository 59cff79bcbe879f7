"""Programs that a trainer, or another one, is expected to need soon: they are compiled beside what is computed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from .._best_effort import BestEffort
from .._threads import cores
from ..engine.train.step import Step
from ..engine.xla.platform import platform
from ..eval.evaluator import feeds
from ..graph.settings import Settings
from ._progress import Progress

_TEST_EXPECTED_AT = 20  # the minibatch from which on the program of a test is compiled beside the training
_EXPECTING_TEST = BestEffort("compile the program of a test beside the training", "the first test compiles it")
_EXPECTING_TRAINERS = BestEffort(
    "compile the first step of another trainer beside that of this one", "its first step compiles it"
)


class _Trainer(Protocol):
    """What is needed of a trainer."""

    metric: Any

    @property
    def progress(self) -> Progress:
        """How far training has come."""

    @property
    def test_step(self) -> Step:
        """The computation of the metric."""

    def _step(self, outputs: Sequence[Any]) -> Step:
        """The step that also computes these outputs."""


_untrained: WeakKeyDictionary[_Trainer, None] = WeakKeyDictionary()


def add(trainer: _Trainer) -> None:
    """Expect that a trainer takes steps: one by itself, whose learners run no code of users."""
    _untrained[trainer] = None


def before_step(trainer: _Trainer, minibatch: Mapping[Any, Any]) -> None:
    """At a trainer's first step begin to compile those of others, like the networks of a GAN, whose data it has too."""
    if trainer in _untrained:
        _untrained.pop(trainer, None)
        if cores() > 1 and platform() == "cpu" and not Settings.deterministic:
            for other in list(_untrained):
                _EXPECTING_TRAINERS.attempt(_expect, other, minibatch)


def _expect(trainer: _Trainer, minibatch: Mapping[Any, Any]) -> None:
    """Begin to compile a first step that can be foretold: all of its data are samples in the minibatch."""
    step = trainer._step(())
    if all(v in minibatch and v.sequence_axis is None for v in step.plan.arguments):
        step.expect(feeds(step, minibatch), trainer.progress.minibatches + 1)


def after_step(trainer: _Trainer, number: int, step: Step, minibatch: Mapping[Any, Any]) -> None:
    """Begin to compile the test, if compiling the step took long. `number`: of the minibatch.

    Not for sequences: a test hardly ever has as many of them, and of the same lengths.
    """
    if number != _TEST_EXPECTED_AT or not minibatch or trainer.metric is None:
        return
    if step.is_slow_to_compile and all(v.sequence_axis is None for v in step.plan.arguments):
        _EXPECTING_TEST.attempt(lambda: trainer.test_step.compile_in_background(feeds(trainer.test_step, minibatch)))


__all__ = ["add", "after_step", "before_step"]
