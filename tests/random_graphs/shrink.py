"""Make a program that fails smaller, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .compare import Difference, compare, is_refusal
from .draft import AXES
from .known import marked
from .processes import CNTK, OURS, Shown, comparable, on_cntk, run
from .program import BATCH, MANY_STEPS, SEQUENCE, Minibatch, Program, Statement, Type

ROUNDS = 6
CHANGES = 25  # that are tried at once
WHOLE = 4


def differences(programs: list[Program], thriftily: bool = False) -> list[list[Difference]]:
    """How each program differs between CNTK and this package.

    `thriftily`: what CNTK refuses is asked of this package for one seed of `WHOLE` only.
    """
    found = _differences(programs, thriftily)
    # Where CNTK refuses one of several roots nothing is compared: each by itself.
    parts = [
        (i, replace(p, roots=(r,)).needed()) for i, p in enumerate(programs) for r in p.roots
        if len(p.roots) > 1 and any(d.is_refused_root for d in found[i])
    ]
    for (i, _), part in zip(parts, _differences([p for _, p in parts], thriftily), strict=True):
        found[i] += [d for d in part if d.is_fault]
    return found


def _differences(programs: list[Program], thriftily: bool) -> list[list[Difference]]:
    cntk = on_cntk(programs)
    asked = [
        comparable(p, shown) if thriftily and p.seed % WHOLE else p.lines()
        for p, shown in zip(programs, cntk, strict=True)
    ]
    ours = run(OURS, asked)
    found = _marked(programs, cntk, ours)
    doubtful = [i for i, differing in enumerate(found) if any(d.is_fault for d in differing)]
    again = [replace(programs[i], is_tilted=programs[i].divides_gradients) for i in doubtful]
    tilted = iter(run(OURS, [p.lines() for p in again if p.is_tilted]))
    ours_again = [next(tilted) if p.is_tilted else ours[i] for i, p in zip(doubtful, again, strict=True)]
    cntk_again, exact = on_cntk(again), run(CNTK, [p.in_double_precision for p in again])
    for i, theirs, mine, in_double in zip(doubtful, cntk_again, ours_again, exact, strict=True):
        p = programs[i]
        refused = [d for d in found[i] if is_refusal(in_double.get(d.what, {"error": ""}))]
        found[i] = confirmed(
            found[i], marked(compare(theirs, mine, p.dtype), p),
            [d for d in compare(theirs, in_double, p.dtype) if p.dtype == "float32" or d.what == MANY_STEPS],
            compare(in_double, mine, p.dtype) + refused,
        )
    return found


def _marked(programs: list[Program], cntk: list[Shown], ours: list[Shown]) -> list[list[Difference]]:
    return [marked(compare(a, b, p.dtype), p) for p, a, b in zip(programs, cntk, ours, strict=True)]


def confirmed(
    found: list[Difference], again: list[Difference], rounded: list[Difference], exact: list[Difference]
) -> list[Difference]:
    """The differences; those are known that are none when CNTK is asked again, by another process.

    It has answered by chance then, or, in a tilted program, the gradient of a parameter is 0 but for rounding. A value
    tells nothing where CNTK differs from itself in double precision, or after many steps from data that differ in the
    last digit (`rounded`), or where ours is equal to that (`exact`: how it differs, or what cannot be computed so).
    """
    def reason(d: Difference) -> str:
        if d.is_fault and (d.kind, d.what, d.place) not in {(x.kind, x.what, x.place) for x in again}:
            return "not there again"
        is_rounding = _is_among(d, rounded) or not _is_among(d, exact)
        return "rounding" if d.kind == "value" and is_rounding else ""

    return [replace(d, kind="known", details=f"{why} | {d.details}") if (why := reason(d)) else d for d in found]


def _is_among(difference: Difference, others: list[Difference]) -> bool:
    """Whether one of the others is in the same place."""
    return (difference.what, difference.place) in {(x.what, x.place) for x in others}


def shrink(program: Program, kind: str) -> tuple[Program, list[Difference]]:
    """The smallest program found whose difference is of this kind."""
    found: list[Difference] = differences([program])[0]
    for _ in range(ROUNDS):
        candidates = list(smaller(program))[:CHANGES]
        pairs = zip(candidates, differences(candidates), strict=True)
        failing = [(size(p), p, d) for p, d in pairs if kind in {x.kind for x in d}]
        if not failing:
            break
        _, program, found = min(failing, key=lambda f: f[0])
    return program, found


def size(p: Program) -> tuple[int, int, int]:
    return (
        len(p.statements) + len(p.observations) + len(p.minibatches),
        sum(m.size for m in p.minibatches),
        sum(len(s.text) for s in p.statements),
    )


def smaller(p: Program) -> Iterator[Program]:
    """Programs with something left out, the largest changes first."""
    if len(p.roots) > 1:
        yield from (replace(p, roots=(r,)).needed() for r in p.roots)
    yield from (replace(p, roots=(s.name,)).needed() for s in p.statements if not s.is_input and (s.name,) != p.roots)
    for s in p.statements:
        yield from (_with(p, s, text) for text in _replacements(p, s))
    if len(p.observations) > 1:
        yield from (replace(p, observations=(o,)) for o in p.observations)
    yield from (replace(p, minibatches=(m,)) for m in p.minibatches if len(p.minibatches) > 1)
    for m in p.minibatches:
        if m.size > 1:
            yield replace(p, minibatches=tuple(_halved(x) if x is m else x for x in p.minibatches))


def _halved(m: Minibatch) -> Minibatch:
    return replace(m, size=m.size // 2, lengths={a: n[len(n) - m.size // 2:] for a, n in m.lengths.items()})


def _with(p: Program, s: Statement, made: Statement) -> Program:
    return replace(p, statements=tuple(made if x is s else x for x in p.statements)).needed()


def _replacements(p: Program, s: Statement) -> Iterator[Statement]:
    """What may stand in the place of a statement: a variable of the same type that it uses, or an input."""
    if s.is_input or not s.uses:
        return
    for name in dict.fromkeys(s.uses):
        if p[name].type == s.type and s.text != f"C.alias({name})":
            yield Statement(s.name, f"C.alias({name})", s.type)
    made = input_of(s.name, s.type)
    if made and s.name not in p.roots:
        yield made


def input_of(name: str, t: Type) -> Statement | None:
    """An input of a type, if its axes are such that an input can have them."""
    known = {(): "dynamic_axes=[], ", (BATCH,): "", (BATCH, SEQUENCE): ""}
    known |= {(BATCH, name): f"sequence_axis={axis}, " for name, axis in AXES.items() if axis}
    if t.axes not in known or t.is_open:
        return None
    make = "C.sequence.input_variable" if t.is_sequence else "C.input_variable"
    sparse = ", is_sparse=True" if t.is_sparse else ", needs_gradient=True"
    return Statement(name, f'{make}({t.shape}, {known[t.axes]}name="{name}", dtype=np.{t.dtype}{sparse})', t, True)


