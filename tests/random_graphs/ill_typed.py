"""Programs in which one shape, axis, type or operand is another: CNTK 2.7 accepts some of them, and refuses others."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from .draft import Draft, Refused
from .generator import finish, refused
from .program import NAME, Program, Statement

# Digits that are part of a name or of a type stay.
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
SHAPE = re.compile(r"input_variable\((\([^)]*\))")
SIZES = ("1", "2", "5")
NUMBERS = ("-1", "0", "1", "2", "7", "-3", "0.5", "None", "(1, 0)")
Change = Callable[[random.Random, Program, Statement], str]


def variants(program: Program, seed: int, number: int = 4) -> Iterator[Program]:
    """Programs that differ from `program` in one statement."""
    chance = random.Random(seed)
    for _ in range(number if program.statements else 0):
        s = chance.choice(program.statements)
        text = chance.choice(CHANGES)(chance, program, s)
        variant = written(program, s, text)
        # CNTK takes sparse data for vectors only.
        if text != s.text and all(v.type.rank == 1 for v in variant.statements if v.is_input and v.type.is_sparse):
            yield variant


def written(program: Program, changed: Statement, text: str) -> Program:
    """The program with another text for one statement, up to the one that is refused for it."""
    draft = Draft(program.seed, program.dtype)
    for s in program.statements:
        try:
            draft.add(text if s is changed else s.text, s.is_input, s.name)
        except Refused:
            return refused(draft, draft.refused[-1])
    return replace(finish(draft), observations=("values", "gradients")[:draft.random.choice([1, 1, 2])])


def other_number(chance: random.Random, program: Program, s: Statement) -> str:
    found = list(NUMBER.finditer(s.text))
    if not found:
        return s.text
    number = chance.choice(found)
    other = chance.choice(SIZES if "data(" in s.text else NUMBERS)
    return s.text[:number.start()] + other + s.text[number.end():]


def other_operand(chance: random.Random, program: Program, s: Statement) -> str:
    found = list(NAME.finditer(s.text))
    before = program.statements[:program.statements.index(s)]
    if not found or not before or s.is_input:
        return s.text
    operand = chance.choice(found)
    return s.text[:operand.start()] + chance.choice(before).name + s.text[operand.end():]


def other_shape(chance: random.Random, program: Program, s: Statement) -> str:
    """An input of another shape."""
    shapes = ["()", "(1,)", "(5,)", "(2, 3)", "(1, 2, 3)", "(C.FreeDimension,)", "(C.FreeDimension, 2)"]
    return SHAPE.sub(lambda m: m[0].replace(m[1], chance.choice(shapes)), s.text)


def other_option(chance: random.Random, program: Program, s: Statement) -> str:
    """Another element type, other axes, sparse data."""
    swaps = [
        ("dtype=T", "dtype=np.float64"), ("dtype=T", "dtype=np.float32"), ("C.parameter(", "C.constant("),
        (", is_sparse=True", ""), (", needs_gradient=True", ", is_sparse=True"), ("True", "False"), ("False", "True"),
        ("C.sequence.input_variable", "C.input_variable"), ("dynamic_axes=[]", "is_sparse=False"),
    ]
    fitting = [(old, new) for old, new in swaps if old in s.text]
    return s.text.replace(*chance.choice(fitting), 1) if fitting else s.text


CHANGES: list[Change] = [other_number, other_number, other_operand, other_operand, other_shape, other_option]
