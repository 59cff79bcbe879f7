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
MANY_STEPS = "training in many steps"
LONG = 230  # steps, so many that the thorough version of a small program takes over
Show = tuple[str, str]  # by which name, the expression


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
    is_for_gpu: bool = False  # compiled as for one here

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
        if place < 0 or what.startswith(("training", "structure")):
            return self.statements
        if what == "values on the way":
            return self.cone([self.on_the_way[place]])
        if what == "values as they are":
            return self.statements
        if what == "values again":
            return self.cone([self.roots[place // 2]])
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
        lines += self.loss if any("training" in o or o == "gradients" for o in self.observations) else []
        return lines + [self._line(show) for o in self.observations for show in OBSERVATIONS[o](self)]

    def _line(self, show: Show) -> str:
        what, shown = show
        return f'show("{what}", {call("as_on_a_gpu", f"lambda: {shown}") if self.is_for_gpu else shown})'

    @property
    def in_double_precision(self) -> list[str]:
        """The same lines, with numbers of 64 bits; of a program that has these, with data of other last digits."""
        others = ["data = (lambda f: lambda *a: f(*a) * (1 + 1e-14))(data)"] if self.dtype == "float64" else []
        return ["T = np.float64", *others, *self.lines()[1:]]

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

    def _values(self, i: int = 0) -> list[Show]:
        return [(f"values {i}", f"evaluate({self._list}, m{i})")]

    def _other_values(self) -> list[Show]:
        """Those of the other minibatches, of other sizes."""
        return [line for i in range(1, len(self.minibatches)) for line in self._values(i)]

    def _fed_otherwise(self) -> list[Show]:
        return [("fed otherwise", f"otherwise({self._list}, m0, {self.seed // 2})")]

    def _fed_oddly(self) -> list[Show]:
        return [("fed oddly", f"otherwise({self._list}, m0, {self.seed // 2}, ODD)")]

    def _gradients(self) -> list[Show]:
        wrt = ", ".join(self.differentiated)
        return [("gradients", f"gradients(loss, [{wrt}], m0)")] if wrt else []

    def _given_gradients(self) -> list[Show]:
        wrt = ", ".join(self.below_first_root)
        return [("given gradients", f"pulled_back({self.roots[0]}, [{wrt}], m0)")] if wrt else []

    def _training(self) -> list[Show]:
        return [("training", f"train({self._trained}, {self.learner_function}, {self.minibatch_list})")]

    @property
    def _trained(self) -> str:
        """The expression for what training makes smaller."""
        return "tilted(loss)" if self.is_tilted else "loss"

    @property
    def minibatch_list(self) -> str:
        """The expression for a list of all minibatches."""
        return f"[{', '.join(f'm{i}' for i in range(len(self.minibatches)))}]"

    @property
    def learner_function(self) -> str:
        """The expression for what makes the learner of parameters."""
        return f"lambda parameters: {self.learner}"

    @property
    def _learns(self) -> bool:
        return bool(self.loss) and any("C.parameter(" in s.text or "C.layers" in s.text for s in self.statements)

    def _observed_training(self) -> list[Show]:
        output = next((r for r in self.roots if self[r].type.dtype == self.dtype), "")
        training = f"observed_training({self._trained}, {output}, {self.learner_function}, {self.minibatch_list})"
        return [("training that is observed", training)] if self._learns else []

    def _long_training(self) -> list[Show]:
        training = f"train({self._trained}, {self.learner_function}, [m0], {LONG})"
        return [(MANY_STEPS, training)] if self._learns else []

    def _session(self) -> list[Show]:
        """On a file of dense data, which readers give in single precision."""
        fed = [s.type for s in self.statements if s.is_input]
        are_plain = all(t.axes and t.dtype == "float32" and not (t.is_open or t.is_sparse) for t in fed)
        if not (fed and are_plain and self._learns):
            return []
        options = 1 + self.seed % 5, 3 + self.seed % 11, 2 + self.seed % 7, 2 + self.seed % 3
        return [("training in a session", f"session({self._trained}, {self.learner_function}, m0, {options})")]

    def _structure(self) -> list[Show]:
        return [("structure", f"structure({self._list})")]

    @property
    def on_the_way(self) -> list[str]:
        """The roots, behind some of what they are computed from; nothing if they are computed from leaves."""
        leaves = ("C.parameter(", "C.constant(")
        inner = [s for s in self.statements if not (s.is_input or s.name in self.roots or s.text.startswith(leaves))]
        return [*(s.name for s in inner[-1 - self.seed % 3 :]), *self.roots] if inner else []

    def _values_on_the_way(self) -> list[Show]:
        return [("values on the way", f"evaluate([{', '.join(self.on_the_way)}], m0)")] if self.on_the_way else []

    def _values_again(self) -> list[Show]:
        """Not of what is random, or assigns: a `Predictor` has its own copies of the parameters, as they were."""
        is_other = any(re.search(r"random|Dropout|C\.assign\(", s.text) for s in self.statements)
        return [] if is_other else [("values again", f"again({self._list}, {self.minibatch_list})")]

    def _other_parameters(self) -> list[Show]:
        return [("values of other parameters", f"revalued({self._list}, m0)")]

    def _as_values(self) -> list[Show]:
        return [("values as they are", f"as_values({self._list}, m0)")]

    def _interrupted_training(self) -> list[Show]:
        training = f"interrupted_training({self._trained}, {self.learner_function}, {self.minibatch_list})"
        return [("training that is interrupted", training)] if self._learns else []

    def _evaluated(self) -> list[Show]:
        """Of what is fed: else CNTK divides by no samples."""
        is_fed = any(s.is_input for s in self.cone(self.roots))
        return [("training evaluated", f"evaluated(loss, {self.minibatch_list})")] if self.loss and is_fed else []

    @property
    def divides_gradients(self) -> bool:
        """Whether the learner divides gradients by their size, so that one of 0 but for rounding makes large steps."""
        return bool(re.search("ada|rms", self.learner))

    def _loaded(self) -> list[Show]:
        return [("loaded", f"evaluate([reload(C.combine({self._list}))], m0)")]

    @property
    def cut(self) -> int:
        """Behind which step all sequences are cut: two or more, as many as the longest delay, or not at all (0).

        CNTK sees only the previous minibatch.
        """
        axes = {a for s in self.statements if s.is_input for a in s.type.axes[1:]}
        shortest = min((n for a in axes for n in self.minibatches[0].lengths[a]), default=0)
        return shortest - 1 if shortest > 2 else 0

    def _pieces(self) -> list[Show]:
        return [("pieces", f"pieces({self._list}, m0, {self.cut})")] if self.cut else []


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
    "observed training": Program._observed_training,
    "long training": Program._long_training,
    "training session": Program._session,
    "structure": Program._structure,
    "values on the way": Program._values_on_the_way,
    "other parameters": Program._other_parameters,
    "values again": Program._values_again,
    "as values": Program._as_values,
    "interrupted training": Program._interrupted_training,
    "evaluated training": Program._evaluated,
}
