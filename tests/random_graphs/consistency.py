"""What holds of a program without CNTK, which computes the same in other forms.

Values: of each sequence alone, in another order, of each root alone, in a loaded model, in a predictor (which is
compiled thoroughly at once), in the other floating point type, compiled as for a GPU (of sequences cut in two as well),
and by NumPy. Gradients: as a function, compiled as for a GPU, and of what other roots are computed from. Training: with
gradients summed over pieces of a minibatch, and with a checkpoint in its midst.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cntkjax.engine.xla.platform import lowering_for

from . import numpy_reference, training_forms
from .compare import TOLERANCE, UNKNOWN, problem
from .executing import chosen, executed, in_order, is_mixing
from .program import BATCH, Program
from .serve import plain

# What jumps where operands are nearly equal or zero, has a type or frozen random numbers of its own.
JUMPING = re.compile(
    r"floor|ceil|round|greater|less|equal|hardmax|argm|top_k|element_(not|and|or|xor|divide|select)|straight|one_hot|where"
    r"|reciprocal|log|sqrt|pow|cosine|np\.float|normal|Pooling|POOLING|reduce_l2|asin|acos|atanh|clip|until|'freeze'"
    r"|PastValueWindow"
)
INFERRED = -1
Values = list[list[Any]]  # of each root, what each sample has


def problems(program: Program) -> list[str]:
    """What a program computes otherwise in another form; empty if all agree."""
    if any(n in (UNKNOWN, INFERRED) for s in program.statements for n in s.type.shape):
        return []
    names, minibatches = executed(program)
    if program.seed % 2:
        found = list(numpy_reference.disagreements(program, names, minibatches[0]))
    else:
        found = list(training_forms.disagreements(program, names, minibatches))
    found += _other_gradients(program, names, minibatches[0])
    found += _gradients_of_others(program, names, minibatches[0])
    return found + list(_other_forms(program, names, minibatches[0]))


def _other_forms(program: Program, names: dict[str, Any], minibatch: dict[str, Any]) -> Iterator[str]:
    roots = [names[r] for r in program.roots if BATCH in program[r].type.axes]
    fed = {s.name for s in program.statements if s.is_input and s.type.axes}
    if is_mixing(program) or not roots or not fed:
        return
    size = program.minibatches[0].size
    forms = {
        "alone": lambda: [evaluated(names, roots, chosen(minibatch, fed, [i])) for i in range(size)],
        "reversed": lambda: [evaluated(names, roots, chosen(minibatch, fed, range(size - 1, -1, -1)))],
        "root by root": lambda: [[evaluated(names, [root], minibatch)[0] for root in roots]],
        "loaded": lambda: [evaluated(names, [names["reload"](names["C"].combine(roots))], minibatch)],
        "predicted": lambda: [[_predicted(names, root, minibatch) for root in roots]],
        "fed otherwise": lambda: [[list(v) for v in names["otherwise"](roots, minibatch, program.seed // 2)]],
        "as on a GPU": lambda: [_as_on_a_gpu(partial(evaluated, names, roots, minibatch))],
    }
    whole = evaluated(names, roots, minibatch)
    for form, compute in forms.items():
        yield from disagreement(form, whole, compute(), TOLERANCE[program.dtype])
    if program.cut:
        pieces = partial(in_pieces, names, roots, minibatch, program.cut)
        yield from disagreement("pieces as on a GPU", pieces(), [_as_on_a_gpu(pieces)], TOLERANCE[program.dtype])
    if not any(JUMPING.search(s.text) for s in program.statements):
        yield from disagreement("other type", whole, [_of_other_type(program, roots)], TOLERANCE["float32"])


def _other_gradients(program: Program, names: dict[str, Any], minibatch: dict[str, Any]) -> Iterator[str]:
    """How gradients differ from those of `C.gradient`, and of programs that are compiled as for a GPU.

    `grad` normalizes by the statistics of the minibatch, `eval` of a gradient by those that training has left. What
    `to_batch` makes has as many samples as its operand's first axis, which need not be those of the other roots.
    """
    if not program.loss or any(re.search("random|Dropout|BatchNorm|to_batch", s.text) for s in program.statements):
        return
    exec(program.loss[0], names)
    loss = names["loss"]
    dense = [names[v] for v in program.differentiated if not program[v].type.is_sparse]
    wrt = [v for v in dense if v in (*loss.parameters, *loss.arguments)]
    if not wrt:
        return
    gradients = partial(names["gradients"], loss, wrt, minibatch)
    forms = {
        "gradients as functions": lambda: names["evaluate"](names["C"].gradient(loss, wrt).outputs, minibatch),
        "gradients as on a GPU": lambda: _as_on_a_gpu(gradients),
    }
    whole = plain(gradients())
    for form, compute in forms.items():
        if p := problem(whole, plain(compute()), TOLERANCE[program.dtype]):
            yield f"{form}: {p.replace('CNTK', 'grad')}"


def _gradients_of_others(program: Program, names: dict[str, Any], minibatch: dict[str, Any]) -> Iterator[str]:
    """Gradients of one root with respect to what only others depend on: zeros, in the form of the values."""
    roots = [r for r in program.roots if BATCH in program[r].type.axes]  # the others need not have values
    f = names["C"].combine([names[r] for r in roots]) if roots else None
    for root in roots[:1] + roots[1:][-1:]:
        below = {s.name for s in program.cone([root])}
        others = [v for v in program.differentiated if v not in below]
        wrt = [names[v] for v in others if f and names[v] in (*f.parameters, *f.arguments)]
        found = f.grad(names["feed"](f, minibatch), wrt=wrt, grad_root=names[root]) if wrt else {}
        for v, gradient in (found if isinstance(found, dict) else {wrt[0]: found}).items():
            values = minibatch[v.name] if v.is_input else v.value
            if p := problem(plain(names["each"](np.zeros_like, values)), plain(gradient), TOLERANCE[program.dtype]):
                yield f"gradient of {root} with respect to {v.uid}: {p.replace('CNTK', 'zeros')}"


def _as_on_a_gpu(compute: Callable[[], Values]) -> Values:
    with lowering_for("gpu"):
        return compute()


def _predicted(names: dict[str, Any], root: Any, minibatch: dict[str, Any]) -> list[Any]:
    f = names["C"].combine([root])
    return list(names["C"].Predictor(f)(names["feed"](f, minibatch)))


def _of_other_type(program: Program, roots: list[Any]) -> Values:
    """The values with elements of 64 instead of 32 bits, or the other way round."""
    names, (minibatch, *_) = executed(replace(program, dtype="float32" if program.dtype == "float64" else "float64"))
    others = [names[r] for r in program.roots if BATCH in program[r].type.axes]
    combine = names["C"].combine
    for p, q in zip(in_order(combine(roots).parameters), in_order(combine(others).parameters), strict=True):
        q.value = p.value
    return evaluated(names, others, minibatch)


def evaluated(names: dict[str, Any], roots: list[Any], minibatch: dict[str, Any]) -> Values:
    return [list(values) for values in names["evaluate"](roots, minibatch)]


def in_pieces(names: dict[str, Any], roots: list[Any], minibatch: dict[str, Any], cut: int) -> Values:
    return [list(values) for values in names["pieces"](roots, minibatch, cut)]


def disagreement(form: str, whole: Values, parts: list[Values], tolerance: float) -> Iterator[str]:
    """How the values of another form differ from those of the whole minibatch."""
    for root, expected in enumerate(whole):
        found = [sample for part in parts for sample in part[root]]
        if form == "reversed":
            found.reverse()
        if p := problem(plain(expected), plain(found), tolerance):
            yield f"{form}: {p.replace('CNTK', 'the minibatch')}"
