"""Write random programs: the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from .composed_rules import COMPOSED
from .draft import Draft, Refused
from .layer_rules import LAYERS, LEARNERS, SCHEDULES
from .option_rules import LEARNER_OPTIONS, OPTIONS
from .program import SEQUENCE, Minibatch, Program, Statement
from .repeated_rules import REPEATED
from .rules import RULES
from .structure_rules import STRUCTURE

TABLE = RULES | LAYERS | STRUCTURE | REPEATED | OPTIONS | COMPOSED
LARGEST = 600  # elements of a sample
FEW, MANY = (1, 3), (2, 8)  # statements
LONG_ONES = 8  # of so many pairs of seeds one has many
SELDOM = 0.2  # many copies of a step take ten times as long to compile as other statements
# One of so many programs begins with a rule whose statements take ways through the engine that others do not, in turn:
# some 300 programs in a row take all of these, forward, backward and where sequences are cut.
TURN = 7
IN_TURN = [*REPEATED, *2 * [name for name in REPEATED if "alike" in name]]
SHOWN_IN_TURN = {"values", "gradients", "pieces"}
# What CNTK may stop in its midst, where it leaves other statistics or parameters than one that goes on
LAST = {
    "gradients": 1, "given gradients": 1, "other parameters": 2,
    "interrupted training": 3, "evaluated training": 3,
    "training": 3, "observed training": 3, "long training": 3, "training session": 3,
}
OBSERVED = {
    "values": 4, "other values": 1.2, "gradients": 3, "loaded": 0.7, "training": 0.7, "pieces": 0.7,
    "given gradients": 0.8, "fed otherwise": 1, "fed oddly": 1, "structure": 1, "values on the way": 0.7,
    "other parameters": 0.7, "observed training": 0.5, "training session": 0.2, "long training": 0.1,
    "values again": 0.5, "as values": 0.7,
    "interrupted training": 0.5, "evaluated training": 0.4,
}
FAR = 7_919_000  # between the seeds of attempts, so that those of different pairs are different
FOR_A_GPU = 0.05  # of the programs: what they are compiled to runs on a CPU as well, which takes long to compile it


def write(seed: int, form: str = "") -> tuple[Program, list[Program]]:
    """A program, and those that end in a statement that was refused on the way.

    Most have few statements, which meet one another as often for what they cost as those of a longer program, whose
    roots are mostly independent. `form`: it has a statement by a rule whose name contains this.
    """
    draft = Draft(seed, "float64" if seed % 2 else "float32")
    names, weights = list(TABLE), [r.weight * (SELDOM if "repeated(" in r.template else 1) for r in TABLE.values()]
    turn = "" if form or seed % TURN else IN_TURN[seed // TURN % len(IN_TURN)]
    if first := draft.random.choice([name for name in names if form in name]) if form else turn:
        try_rule(draft, first)
    for _ in range(draft.random.randint(*(FEW if seed // 2 % LONG_ONES else MANY))):
        try_rule(draft, draft.random.choices(names, weights)[0])
    shown = observations(draft, SHOWN_IN_TURN if turn else set())
    program = finish(draft, shown, is_for_gpu="alike" in first)
    return program, [refused(draft, statements) for statements in draft.refused]


def try_rule(draft: Draft, name: str) -> str | None:
    """Use a rule; None if what it made was refused, or is too large."""
    chosen: dict[str, str] = {}
    try:
        for gap, choose in TABLE[name].choosers.items():
            chosen[gap] = choose(draft, chosen)
        made = draft.add(TABLE[name].template.format(**chosen))
    except (Refused, IndexError, ValueError):  # of a gap that nothing fills, such as an axis of a scalar
        return None
    size = 1
    for n in draft.type_of(made).shape:
        size *= max(n, 2)
    if size > LARGEST:
        draft.statements.pop()
        return None
    return made


def write_pair(seed: int) -> Program:
    """A program that shows one observation of what one rule makes: all pairs of these, one seed after the other."""
    row, column = divmod(seed, len(TABLE))
    observation = list(OBSERVED)[row % len(OBSERVED)]
    for attempt in range(10):
        draft = Draft(seed + attempt * FAR, "float64" if seed % 2 else "float32")
        made = next(filter(None, (try_rule(draft, list(TABLE)[column]) for _ in range(6))), None)
        has_parameters = any(re.search(r"C\.(parameter|layers)", s.text) for s in draft.statements)
        if made and (has_parameters or "training" not in observation):
            break
    return replace(finish(draft, [observation]), seed=seed)


def observations(draft: Draft, shown: Set[str]) -> list[str]:
    """What is shown of a program: `shown`, and random ones."""
    random = draft.random
    number = random.choice([1, 1, 1, 2, 2, 4])  # each is compiled by itself, which is what a program costs
    chosen = {*random.choices(list(OBSERVED), list(OBSERVED.values()), k=number)}
    if any(s.type.is_sparse for s in draft.statements) and random.random() < 0.5:  # what is trained by rows
        chosen.add("training")
    return sorted(chosen | shown)


def finish(draft: Draft, shown: Sequence[str], is_for_gpu: bool = False) -> Program:
    """The program with what no statement uses as its roots."""
    random = draft.random
    used = {u for s in draft.statements for u in s.uses}
    leaves = ("C.parameter(", "C.constant(", "C.input_variable(", "C.sequence.input_variable(")
    roots = [s.name for s in draft.statements if s.name not in used and not s.text.startswith(leaves)]
    texts = LEARNERS | {"options": LEARNER_OPTIONS}
    learner = random.choice(texts[random.choice([*LEARNERS, "options", "options"])])
    learner = learner.format(**{name: random.choice(texts) for name, texts in SCHEDULES.items()})
    return Program(
        draft.seed, draft.dtype, tuple(draft.statements), tuple(roots[-4:]), (minibatch(draft), minibatch(draft)),
        tuple(sorted(shown, key=lambda observation: LAST.get(observation, 0))), learner,
        is_for_gpu=random.random() < FOR_A_GPU or is_for_gpu,
    ).needed()


def refused(draft: Draft, statements: tuple[Statement, ...]) -> Program:
    """The program that ends in a statement that was refused."""
    roots = (statements[-1].name,)
    return Program(draft.seed, draft.dtype, statements, roots, (minibatch(draft),), ("values",)).needed()


def minibatch(draft: Draft) -> Minibatch:
    """Between one and four sequences: equal, ragged, or one long one among short ones."""
    random = draft.random
    size = random.randint(1, 4)
    lengths = {
        axis: random.choice([
            tuple(random.randint(1, 5) for _ in range(size)), (random.randint(1, 4),) * size,
            tuple(7 if i == size - 1 else 1 for i in range(size)),
        ])
        for axis in (SEQUENCE, "t1", "t2")
    }
    return Minibatch(size, lengths, random.randint(1, 3))
