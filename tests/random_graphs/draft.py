"""A program while it is written: each statement is built at once, so that the types of all variables are known."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import cntk as C

from .program import BATCH, SEQUENCE, Statement, Type, call
from .serve import new_names

Predicate = Callable[[Type], bool]
AXES = {SEQUENCE: "", "t1": 'C.Axis("t1")', "t2": 'C.Axis("t2")'}
FREE = {-3: "C.FreeDimension", -1: "C.InferredDimension"}


class Refused(Exception):
    """The package does not accept a statement."""


def tuple_text(shape: tuple[int, ...]) -> str:
    inner = ", ".join(FREE.get(n, str(n)) for n in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


class Draft:
    """Statements, and the random choices between what they may use."""

    def __init__(self, seed: int, dtype: str):
        self.seed, self.dtype = seed, dtype
        self.random = random.Random(seed)
        self.statements: list[Statement] = []
        self.refused: list[tuple[Statement, ...]] = []
        self.names: dict[str, object] = new_names()
        self.names["T"] = np.dtype(dtype).type

    def add(self, text: str, is_input: bool = False, name: str = "") -> str:
        """Build `text`, and return the name of its result."""
        s = Statement(name or f"v{len(self.statements) + 1}", text, Type(), is_input)
        try:
            exec(s.line, self.names)
            made = self._typed(s)
        except Exception as error:
            self.refused.append((*self.statements, s))
            raise Refused(str(error)) from error
        self.statements.append(made)
        return s.name

    def _typed(self, s: Statement) -> Statement:
        f = self.names[s.name]
        v = f.output if isinstance(f, C.Function) else f
        t = Type(tuple(v.shape), tuple(a.name for a in v.dynamic_axes), v.is_sparse, np.dtype(v.dtype).name)
        return Statement(s.name, s.text, t, s.is_input)

    def type_of(self, name: str) -> Type:
        return next(s.type for s in self.statements if s.name == name)

    def pick(self, fits: Predicate, leaf: Callable[[], Type]) -> str:
        """A variable that fits, most often a late one; otherwise, and sometimes, a new leaf."""
        fitting = [s.name for s in self.statements if fits(s.type)]
        if not fitting or self.random.random() < 0.15:
            return self.leaf(leaf())
        return fitting[-1 - int(len(fitting) * self.random.random() ** 2)]

    def leaf(self, t: Type) -> str:
        """A new input, parameter or constant of a type."""
        if any(n not in FREE and n < 0 for n in t.shape):
            raise Refused("a dimension that is not known yet")
        if t.is_sparse and not t.axes:
            raise Refused("a sparse sample without a batch axis")
        if not t.axes and not t.is_open and not t.is_sparse:
            number = len(self.statements) + 1
            if not t.shape:
                return self.add(f"C.parameter((), init={self.random.choice([0.5, -1.25, 1])}, dtype=T)")
            make = self.random.choice(["C.parameter(init={})", "C.parameter(init={})", "C.constant({})"])
            return self.add(make.format(call("data", number, *t.shape)))
        name = f'"v{len(self.statements) + 1}"'
        options = f"name={name}, dtype=T" + (", is_sparse=True" if t.is_sparse else "")
        if not t.is_sparse and self.random.random() < 0.6:
            options += ", needs_gradient=True"
        if len(t.axes) > 1:
            (axis,) = t.axes[1:]
            if axis not in AXES:
                raise Refused("an axis that no input has")
            options += f", sequence_axis={AXES[axis]}" if axis != SEQUENCE else ""
            return self.add(f"C.sequence.input_variable({tuple_text(t.shape)}, {options})", is_input=True)
        if not t.axes:
            options += ", dynamic_axes=[]"
        return self.add(f"C.input_variable({tuple_text(t.shape)}, {options})", is_input=True)

    def axes(self) -> tuple[str, ...]:
        """Dynamic axes of a new leaf."""
        sequence = self.random.choice([SEQUENCE, SEQUENCE, SEQUENCE, "t1", "t2"])
        return self.random.choices([(BATCH,), (BATCH, sequence), ()], [2, 5, 1])[0]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.random.choice([0, 1, 1, 1, 2, 2, 2, 3, 4, 5]) if rank is None else rank
        return tuple(self.random.choice([1, 2, 3, 4] if rank < 4 else [1, 1, 2, 3]) for _ in range(rank))
