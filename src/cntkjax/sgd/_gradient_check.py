"""gradientCheck: gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.variable import set_value, value_of
from ..ops.functions import Function
from ..train._sources import Inputs, SessionSource, next_minibatch

ELEMENTS = 5  # of each parameter
STEP = 1e-4  # relative to the larger of 1 and the element


def check_gradients(loss: Function, source: SessionSource, inputs: Inputs, size: int, figures: int) -> None:
    """Compare gradients of some elements of each parameter with central differences, on the next minibatch.

    Errors: RuntimeError if an element differs in the first `figures` significant digits.
    """
    position = source.get_checkpoint_state()
    minibatch: dict[Any, Any] = dict(next_minibatch(source, size, inputs))
    source.restore_from_checkpoint(position)
    if not minibatch:
        return
    arguments = {v: minibatch[v] for v in loss.arguments}
    parameters: list[Any] = list(loss.parameters)
    gradients = loss.grad(arguments, wrt=parameters)
    gradients = gradients if isinstance(gradients, dict) else {parameters[0]: gradients}
    draw = np.random.default_rng(0)
    problems = []
    for p in parameters:
        chosen = draw.choice(p.value.size, min(ELEMENTS, p.value.size), replace=False)
        for i in chosen:
            exact, estimate = float(gradients[p].reshape(-1)[i]), _difference(loss, arguments, p, int(i))
            tolerance = 10.0**-figures * max(abs(exact), abs(estimate), 1e-3)
            if not abs(exact - estimate) <= tolerance:
                problems.append(f"{p.name or p.uid}[{i}]: gradient {exact:.9g}, finite difference {estimate:.9g}")
    if problems:
        single = any(p.dtype == np.float32 for p in parameters)
        raise RuntimeError(
            f"gradientCheck: {len(problems)} of the gradients differ in the first {figures} digits:\n  "
            + "\n  ".join(problems[:10])
            + ("\nFix: build the model in double precision, or set a smaller sigFigs" if single else
               "\nFix: check the backward functions of your own operations, or set a smaller sigFigs")
        )


def _difference(loss: Function, arguments: dict[Any, Any], parameter: Any, element: int) -> float:
    """The central difference of the loss, summed over the minibatch."""
    value = np.array(value_of(parameter))
    step = STEP * max(1.0, abs(float(value.flat[element])))
    sums, points = [], []
    for sign in (1, -1):
        moved = value.copy()
        moved.flat[element] += sign * step
        set_value(parameter, moved)
        sums.append(_total(loss.eval(arguments)))
        points.append(float(moved.flat[element]))
    set_value(parameter, value)
    return (sums[0] - sums[1]) / (points[0] - points[1])


def _total(value: Any) -> float:
    return float(sum(np.sum(np.asarray(part, np.float64)) for part in value)) if isinstance(value, list) else float(
        np.sum(np.asarray(value, np.float64))
    )
