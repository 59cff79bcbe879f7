"""What becomes of the gradients of a step: the ways by which learners get them, on one worker or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..._typing import Array, PyTree
from ...graph.cells import Changes
from ..data.shape_policy import Prices
from ..run.executables import DonatingFunction
from ..run.handover import Captures
from ..run.program import Program
from ..run.shape_choice import Agreed, Sizes
from .learner import StepLearner
from .step_body import StepOutputs
from .update import Gradients, Hyperparameters, TrainedState, update_key, updated


class Counts(NamedTuple):
    """Samples of a step: those of the criteria that are reported, and those that each learner learns from."""

    reported: int
    learned: Sequence[int]


class Agreement(NamedTuple):
    """What the workers know of a step.

    `samples`: of all workers. `ends_sweep`: whether a sweep ends on any; None if they have not told each other.
    `joins`: whether all workers compute their gradients and learn from them in one program. `changes`: what is known
    of such steps when this one is taken.
    """

    samples: int
    ends_sweep: bool | None = None
    joins: bool = True
    changes: Changes = {}


class Way(Protocol):
    """What all ways have in common. `agreement`: what the workers have agreed on."""

    agreement: Agreement

    def counts(self, samples: int) -> Counts:
        """What is reported, and what learners learn from, if this worker contributes gradients of this many samples."""

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """The scalars of the learners' steps; None for one that makes no update."""


class InOneProgram(Way, Protocol):
    """Learners use the gradients in the program that computes them."""

    def program(self, gradients: Program) -> Program:
        """That program, for the one that computes gradients and could update with them."""

    def donated(self, state: TrainedState) -> PyTree:
        """What is donated to it."""

    def received(self, outputs: PyTree) -> tuple[StepOutputs, Changes]:
        """Its outputs, with the state after the update and sums over all workers, and what changes besides."""


class Separate(Way, Protocol):
    """Learners use the gradients in a second program."""

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Run it: donate the state, and capture the outputs; see `handover.py`. No gradients: a worker without data."""

    def updated(self, outputs: PyTree) -> tuple[TrainedState, list[Array], Changes]:
        """The state after the update, the sums over all workers, and what changes besides."""


class Exchange(Protocol):
    """How workers, or several devices of one, agree on a step and on the way that its gradients take.

    `shares`: the number of this worker's devices.
    """

    shares: int

    def agree_on_sizes(self, sizes: Sequence[Sizes], prices: Prices) -> Agreed | None:
        """The sizes of all workers' minibatches, so that all choose the same shape; None where there is no need."""

    def agree(self, samples: int, shapes: Callable[[], str] | None = None) -> Agreement:
        """Tell the other workers about this one's minibatch, and hear about theirs.

        `shapes`: returns a text that is equal for minibatches which run the same program; None where learners cannot
        use the gradients in the program that computes them.
        """

    def in_one_program(self, agreement: Agreement) -> InOneProgram:
        """The way of a step for which `agreement.joins`."""

    def separate(self, agreement: Agreement, gradients: Gradients | None) -> Separate:
        """The way of other steps. `gradients`: of this worker, which may still be computed; None if it has no data."""


class Local:
    """Both ways of a worker that trains by itself, on one device."""

    def __init__(self, learners: Sequence[StepLearner], run: DonatingFunction, samples: int) -> None:
        self.agreement = Agreement(samples)
        self._learners, self._run = learners, run
        self._sums: list[Array] = []

    def counts(self, samples: int) -> Counts:
        """Its own samples."""
        return Counts(self.agreement.samples, [samples] * len(self._learners))

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """Those of each learner."""
        return [learner.hyper(n) for learner, n in zip(self._learners, counts.learned, strict=True)]

    def program(self, gradients: Program) -> Program:
        """The same one, which updates too."""
        return gradients

    def donated(self, state: TrainedState) -> PyTree:
        """The state."""
        return state

    def received(self, outputs: StepOutputs) -> tuple[StepOutputs, Changes]:
        """The outputs as they are."""
        return outputs, {}

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Learn from its own gradients."""
        assert gradients is not None
        self._sums = sums
        self._run(outputs, update_key(gradients, hypers), state, gradients, hypers)

    def updated(self, outputs: TrainedState) -> tuple[TrainedState, list[Array], Changes]:
        """The state after the update, and its own sums."""
        return outputs, self._sums, {}


class LocalExchange:
    """The `Exchange` of a worker that trains by itself, on one device."""

    shares = 1

    def __init__(self, learners: Sequence[StepLearner]) -> None:
        transforms = [learner.transform for learner in learners]
        self._learners = learners
        self._run = DonatingFunction(
            lambda state, gradients, hypers: updated(transforms, state, gradients, hypers),
            description=lambda: (updated, transforms),
        )

    def agree_on_sizes(self, sizes: Sequence[Sizes], prices: Prices) -> Agreed | None:
        """There is no need."""
        return None

    def agree(self, samples: int, shapes: Callable[[], str] | None = None) -> Agreement:
        """Its own samples."""
        return Agreement(samples, joins=shapes is not None)

    def in_one_program(self, agreement: Agreement) -> Local:
        """As `separate`."""
        return Local(self._learners, self._run, agreement.samples)

    def separate(self, agreement: Agreement, gradients: Gradients | None) -> Local:
        """Learn from its own gradients."""
        return Local(self._learners, self._run, agreement.samples)


__all__ = ["Agreement", "Counts", "Exchange", "InOneProgram", "Local", "LocalExchange", "Separate", "Way"]
