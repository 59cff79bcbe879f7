"""Forms of training that end with the same parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .compare import TOLERANCE, problem
from .executing import chosen, in_order, is_mixing
from .program import BATCH, Program
from .serve import plain

STEPS = 5
SAVED_AFTER = 2
ROUNDING = 1e-3  # of the tolerance; the second training of a process knows shapes that the first one had yet to see
Minibatches = Sequence[dict[str, Any]]


def disagreements(program: Program, names: dict[str, Any], minibatches: Minibatches) -> Iterator[str]:
    """What a program learns otherwise with gradients summed over pieces of a minibatch, or with a checkpoint."""
    training = training_of(program, names)
    if training is None:
        return
    size = program.minibatches[0].size
    fed = {s.name for s in program.statements if s.is_input and s.type.axes}
    pieces = [chosen(minibatches[0], fed, [0]), chosen(minibatches[0], fed, range(1, size))]
    if size > 1 and (p := problem(training.summed(minibatches[:1]), training.summed(pieces), TOLERANCE[program.dtype])):
        yield f"accumulate: {p.replace('CNTK', 'one minibatch')}"
    steps = steps_of(minibatches)

    def difference() -> str:
        whole, resumed = training.uninterrupted(program.learner, steps), training.resumed(program.learner, steps)
        return problem(whole, resumed, ROUNDING * TOLERANCE[program.dtype])

    # While the first ones run better programs may be compiled, whose rounding a normalization enlarges.
    if difference() and (p := difference()):
        yield f"checkpoint: {p.replace('CNTK', 'one training')}"


def steps_of(minibatches: Minibatches) -> Minibatches:
    """The minibatches of the steps."""
    return [minibatches[i % len(minibatches)] for i in range(STEPS)]


def training_of(program: Program, names: dict[str, Any]) -> Training | None:
    """The training of a program whose samples do not depend on each other."""
    if is_mixing(program) or not program.loss or any(BATCH not in program[r].type.axes for r in program.roots):
        return None
    exec(program.loss[0], names)
    parameters = in_order(names["loss"].parameters)
    is_known = all(n >= 0 for p in parameters for n in p.shape)  # others have no value yet
    return Training(names, parameters) if parameters and is_known else None


class Training:
    """The loss of a program, trained from the same parameters each time."""

    def __init__(self, names: dict[str, Any], parameters: Sequence[Any]):
        self.names, self.parameters = names, parameters
        self.initial = [p.value for p in parameters]

    def summed(self, pieces: Minibatches) -> Any:
        """The parameters after a step on the sum of the gradients of some pieces."""
        self._set(self.initial)
        rate = "C.sgd(parameters, C.learning_parameter_schedule_per_sample(0.05))"
        self._train(self._trainer(rate, accumulate=len(pieces)), pieces)
        return self._values()

    def uninterrupted(self, learner: str, steps: Minibatches) -> Any:
        self._set(self.initial)
        self._train(self._trainer(learner), steps)
        return self._values()

    def resumed(self, learner: str, steps: Minibatches) -> Any:
        """The same with a checkpoint, from which a new trainer goes on."""
        self._set(self.initial)
        first, then = self._trainer(learner), self._trainer(learner)
        with tempfile.TemporaryDirectory() as folder:
            self._train(first, steps[:SAVED_AFTER])
            first.save_checkpoint(str(Path(folder, "checkpoint")))
            self._set([np.zeros_like(v) for v in self.initial])
            then.restore_from_checkpoint(str(Path(folder, "checkpoint")))
        self._train(then, steps[SAVED_AFTER:])
        return self._values()

    def _trainer(self, learner: str, **options: int) -> Any:
        make = eval(f"lambda parameters: {learner}", self.names)
        loss = self.names["loss"]
        return self.names["C"].Trainer(None, (loss, None), [make(loss.parameters)], **options)

    def _train(self, trainer: Any, minibatches: Minibatches) -> None:
        for minibatch in minibatches:
            trainer.train_minibatch(self.names["feed"](self.names["loss"], minibatch))

    def _set(self, values: Sequence[np.ndarray]) -> None:
        for p, value in zip(self.parameters, values, strict=True):
            p.value = value

    def _values(self) -> Any:
        return plain([p.value for p in self.parameters])
