"""Random programs that several workers train, each with its share of every minibatch, end as those of one worker.

    mpiexec -n 2 python -m tests.random_graphs.two_workers FIRST_SEED NUMBER

One start of the workers trains all programs.
"""

from __future__ import annotations

import sys
from typing import Any

import cntk as C

from .compare import TOLERANCE, UNKNOWN, problem
from .executing import chosen, executed
from .generator import write
from .program import Program
from .training_forms import steps_of, training_of

SHARED = "C.data_parallel_distributed_learner({})"


def disagreement(program: Program, rank: int, workers: int) -> str | None:
    """How the parameters differ from those that one worker learns; None if nothing is."""
    if any(n in (UNKNOWN, C.InferredDimension) for s in program.statements for n in s.type.shape):
        return None
    names, minibatches = executed(program)
    training = training_of(program, names)
    if training is None:
        return None
    fed = {s.name for s in program.statements if s.is_input and s.type.axes}
    shares = [
        share(m, fed, range(rank, data.size, workers)) for m, data in zip(minibatches, program.minibatches, strict=True)
    ]
    try:
        alone = training.uninterrupted(program.learner, steps_of(minibatches))
    except (RuntimeError, ValueError):  # a program that is refused, by each worker
        return None
    together = training.uninterrupted(SHARED.format(program.learner), steps_of(shares))
    return problem(alone, together, TOLERANCE[program.dtype]).replace("CNTK", "one worker")


def share(minibatch: dict[str, Any], fed: set[str], order: range) -> dict[str, Any]:
    """Some of the sequences; no data at all if there are none."""
    return chosen(minibatch, fed, order) if order else {}


def main(first: int, number: int) -> None:
    """Print the programs that differ, and how many were trained."""
    rank, workers, trained = C.Communicator.rank(), C.Communicator.num_workers(), 0
    for seed in range(first, first + number):
        program, _ = write(seed)
        found = disagreement(program, rank, workers) if program.roots else None
        trained += found is not None
        if found:
            print(f"rank {rank}: seed {seed}: {found}", flush=True)
    if rank == 0:
        print(f"{workers} workers trained {trained} of the programs {first} to {first + number - 1}", flush=True)
    C.Communicator.finalize()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
