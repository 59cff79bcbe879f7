"""A random program: statements that build a graph, and what is observed of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

HEADER = Path(__file__).with_name("header.py")
BATCH = "defaultBatchAxis"
SEQUENCE = "defaultDynamicAxis"
NAME = re.compile(r"\bv\d+\b")


def call(function: str, *arguments: object) -> str:
    return f"{function}({', '.join(map(str, arguments))})"


@dataclass(frozen=True)
class Type:
    """What a variable is: the shape of a sample, the names of its dynamic axes, its storage."""

    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    is_sparse: bool = False
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_sequence(self) -> bool:
        return len(self.axes) > 1

    @property
    def is_open(self) -> bool:
        """Whether a dimension is free or not known yet."""
        return any(n < 0 for n in self.shape)


@dataclass(frozen=True)
class Statement:
    """`name = text`; an input is fed by each minibatch."""

    name: str
    text: str
    type: Type
    is_input: bool = False

    @property
    def line(self) -> str:
        return f"with C.default_options(dtype=T): {self.name} = {self.text}" if "C.layers" in self.text else (
            f"{self.name} = {self.text}"
        )

    @property
    def uses(self) -> list[str]:
        return NAME.findall(self.text)


@dataclass(frozen=True)
class Minibatch:
    """The lengths of the sequences along each sequence axis, and the size of free dimensions."""

    size: int
    lengths: dict[str, tuple[int, ...]]
    free: int = 2

    def data(self, variable: Statement, seed: int) -> str:
        """The expression of what `variable` is fed."""
        t = variable.type
        shape = tuple(n if n >= 0 else self.free for n in t.shape)
        make = ("sparse", "one_hot")[int(variable.name[1:]) % 2] if t.is_sparse else "data"
        lengths = next((self.lengths[a] for a in t.axes if a != BATCH), None)
        if not t.axes:
            return call(make, seed, *shape)
        if lengths is None:
            return call(make, seed, self.size, *shape)
        return f"[{', '.join(call(make, seed + i, n, *shape) for i, n in enumerate(lengths))}]"


@dataclass(frozen=True)
class Program:
    """Statements, the roots that are computed, and what is observed of them (`OBSERVATIONS`)."""

    seed: int
    dtype: str
    statements: tuple[Statement, ...]
    roots: tuple[str, ...]
    minibatches: tuple[Minibatch, ...]
    observations: tuple[str, ...]
    learner: str = ""
    is_tilted: bool = False

    def __getitem__(self, name: str) -> Statement:
        return next(s for s in self.statements if s.name == name)

    def needed(self) -> Program:
        """Without statements that no root needs."""
        return replace(self, statements=self.cone(self.roots))

    def cone(self, names: Iterable[str]) -> tuple[Statement, ...]:
        """The statements that some variables depend on, their own included."""
        wanted = set(names)
        for s in reversed(self.statements):
            if s.name in wanted:
                wanted.update(s.uses)
        return tuple(s for s in self.statements if s.name in wanted)

    def contributing(self, what: str, place: int) -> tuple[Statement, ...]:
        """The statements that one of the values of an observation depends on; all, if `place` is -1."""
        if place < 0 or what == "training":
            return self.statements
        if "gradients" not in what:
            return self.cone([self.roots[place % len(self.roots)]])
        later = {(self.differentiated if what == "gradients" else self.below_first_root)[place]}
        for s in self.statements:
            if later.intersection(s.uses):
                later.add(s.name)
        return self.cone(later)

    @property
    def differentiated(self) -> list[str]:
        """The variables of which gradients are observed."""
        return [s.name for s in self.statements if s.text.startswith("C.parameter(") or "needs_gradient" in s.text]

    @property
    def below_first_root(self) -> list[str]:
        """Those that the first root depends on: CNTK takes the gradient of one root only."""
        cone = {s.name for s in self.cone(self.roots[:1])}
        return [name for name in self.differentiated if name in cone]

    def lines(self) -> list[str]:
        """One line of Python each."""
        lines = [f"T = np.{self.dtype}"]
        lines += [s.line for s in self.statements]
        lines += [f'show("type of {r}", describe({r}))' for r in self.roots]
        lines += [self._minibatch(i) for i in range(len(self.minibatches))]
        lines += self.loss if {"gradients", "training"} & set(self.observations) else []
        for observation in self.observations:
            lines += OBSERVATIONS[observation](self)
        return lines

    @property
    def in_double_precision(self) -> list[str]:
        """The same lines, with numbers of 64 bits."""
        return ["T = np.float64", *self.lines()[1:]]

    def script(self) -> str:
        """The whole program, which CNTK 2.7 runs as well."""
        show = 'def show(what, value):\n    print(what, "=", value)\n'
        return "\n".join([HEADER.read_text(), "", show, "", *self.lines(), ""])

    def _minibatch(self, i: int) -> str:
        inputs = [s for s in self.statements if s.is_input]
        entries = [f'"{s.name}": {self.minibatches[i].data(s, 100 * i + 10 * int(s.name[1:]))}' for s in inputs]
        return f"m{i} = {{{', '.join(entries)}}}"

    @property
    def loss(self) -> list[str]:
        """The line of a number for each sample: every root contributes, each element with another weight."""
        terms = [self._term(self[r]) for r in self.roots if self[r].type.dtype == self.dtype]
        if len(terms) == 1:
            return [f"loss = C.combine([{terms[0]}])"]  # a single term may be an output, which has no `grad`
        return [f"loss = {' + '.join(terms)}"] if terms else []

    def _term(self, root: Statement) -> str:
        t = root.type
        weights = call("data", root.name[1:], *t.shape)
        weighted = root.name if t.is_open or not t.shape else f"{root.name} * C.constant({weights})"
        summed = f"C.reduce_sum({weighted})" if t.shape else weighted
        return f"C.sequence.reduce_sum({summed})" if t.is_sequence else summed

    @property
    def _list(self) -> str:
        return f"[{', '.join(self.roots)}]"

    def _values(self, i: int = 0) -> list[str]:
        return [f'show("values {i}", evaluate({self._list}, m{i}))']

    def _other_values(self) -> list[str]:
        """Those of the other minibatches, of other sizes."""
        return [line for i in range(1, len(self.minibatches)) for line in self._values(i)]

    def _fed_otherwise(self) -> list[str]:
        return [f'show("fed otherwise", otherwise({self._list}, m0, {self.seed // 2}))']

    def _fed_oddly(self) -> list[str]:
        return [f'show("fed oddly", otherwise({self._list}, m0, {self.seed // 2}, ODD))']

    def _gradients(self) -> list[str]:
        wrt = ", ".join(self.differentiated)
        return [f'show("gradients", gradients(loss, [{wrt}], m0))'] if wrt else []

    def _given_gradients(self) -> list[str]:
        wrt = ", ".join(self.below_first_root)
        return [f'show("given gradients", pulled_back({self.roots[0]}, [{wrt}], m0))'] if wrt else []

    def _training(self) -> list[str]:
        minibatches = ", ".join(f"m{i}" for i in range(len(self.minibatches)))
        loss = "tilted(loss)" if self.is_tilted else "loss"
        return [f'show("training", train({loss}, lambda parameters: {self.learner}, [{minibatches}]))']

    @property
    def divides_gradients(self) -> bool:
        """Whether the learner divides gradients by their size, so that one of 0 but for rounding makes large steps."""
        return bool(re.search("ada|rms", self.learner))

    def _loaded(self) -> list[str]:
        return [f'show("loaded", evaluate([reload(C.combine({self._list}))], m0))']

    @property
    def cut(self) -> int:
        """Behind which step all sequences are cut: two or more, as many as the longest delay, or not at all (0).

        CNTK sees only the previous minibatch.
        """
        axes = {a for s in self.statements if s.is_input for a in s.type.axes[1:]}
        shortest = min((n for a in axes for n in self.minibatches[0].lengths[a]), default=0)
        return shortest - 1 if shortest > 2 else 0

    def _pieces(self) -> list[str]:
        return [f'show("pieces", pieces({self._list}, m0, {self.cut}))'] if self.cut else []


OBSERVATIONS = {
    "values": Program._values,
    "other values": Program._other_values,
    "fed otherwise": Program._fed_otherwise,
    "fed oddly": Program._fed_oddly,
    "gradients": Program._gradients,
    "given gradients": Program._given_gradients,
    "loaded": Program._loaded,
    "training": Program._training,
    "pieces": Program._pieces,
}
