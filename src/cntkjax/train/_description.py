"""What workers that train together have to agree in: the model and the learners, as texts by feature."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import jax
import numpy as np

from ..graph.function import nodes
from ..graph.variable import Leaf
from ..learners._learner import LearnerCore
from ..ops.functions import Function


def describe(functions: Sequence[Function], learners: Sequence[LearnerCore]) -> dict[str, str]:
    """The features by name, most telling first."""
    parameters = dict.fromkeys(p for function in functions for p in function.parameters)
    operations = [node.op_name for node in nodes([f.root_function for f in functions], into_blocks=True)]
    features = {
        "the parameters of the model": ", ".join(map(_parameter, parameters)),
        "the operations of the model": ", ".join(operations),
        "the number of learners": str(len(learners)),
    }
    for i, learner in enumerate(learners):
        features |= {f"{name} of learner {i}": value for name, value in _describe(learner).items()}
    return features


def _parameter(p: Leaf) -> str:
    return f"{p.name or 'unnamed'} {p.shape} {np.dtype(p.dtype)}"


def _describe(learner: LearnerCore) -> dict[str, str]:
    return {
        "the parameters": ", ".join(map(_parameter, learner.parameters)),
        "the kind": learner.kind,
        "the learning rate": f"{learner.rate_schedule!r} from {learner.learning_rate()} on",
        "the momentum": repr(learner.momenta),
        "the options": repr(learner.options),
        "the strategy": repr(learner.strategy),
        "the rule": _fingerprint(learner),
    }


def _fingerprint(learner: LearnerCore) -> str:
    """A digest of all that a step of the learner computes, constants included; of none while its rate is 0."""
    scalars = learner.hyper(1)
    if scalars is None:
        return "none"
    with learner.precision():
        values = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in learner.parameters]
        hyper = {name: np.ones_like(value) for name, value in scalars.items()}
        update = jax.make_jaxpr(lambda g, s, v: learner.transform.update(g, s, v, hyper=hyper))
        program = str(update(values, jax.eval_shape(learner.transform.init, values), values))
    return hashlib.sha256(program.encode()).hexdigest()[:12]
