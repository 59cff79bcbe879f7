"""Learners under the names of CNTK's compiled module, with its order of arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..learners import _learners
from ..learners._learner import Learner
from ..learners._schedules import IGNORE, Schedulable


@dataclass
class AdditionalLearningOptions:
    """What every learner takes besides its own arguments.

    >>> from cntkjax import cntk_py
    >>> options = cntk_py.AdditionalLearningOptions()
    >>> options.l2_regularization_weight = 0.1
    >>> options.dict_options[cntk_py.Learner._MINIBATCH_SIZE] = cntk_py.SizeTWrapper(2)
    """

    l1_regularization_weight: float = 0.0
    l2_regularization_weight: float = 0.0
    gaussian_noise_injection_std_dev: Schedulable = 0.0
    gradient_clipping_threshold_per_sample: float = np.inf
    gradient_clipping_with_truncation: bool = True
    dict_options: dict[str, Any] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """The same for `cntk.learners`. Schedules have their own reference sizes: only IGNORE has an effect."""
        keywords = {name: value for name, value in vars(self).items() if name != "dict_options"}
        size = self.dict_options.get(Learner._MINIBATCH_SIZE)
        return keywords | {"minibatch_size": IGNORE if getattr(size, "value", size) == IGNORE else None}


def _native(name: str, make: Callable[..., Learner], *names: str) -> Callable[..., Learner]:
    def learner(parameters: Sequence[Any], *arguments: Any) -> Learner:
        values = [a for a in arguments if not isinstance(a, AdditionalLearningOptions)]
        options = arguments[-1].keywords() if len(values) < len(arguments) else {}
        if len(values) > len(names):
            raise TypeError(f"{learner.__name__} takes {', '.join(names)} and options, not {len(values)} values")
        return make(parameters, **dict(zip(names, values, strict=False)), **options)

    learner.__name__ = learner.__qualname__ = f"{name}_learner"
    learner.__doc__ = f"`cntk.learners.{make.__name__}` of (parameters, {', '.join(names)}, options)."
    return learner


_MOMENTUM = ("lr", "momentum", "unit_gain")
sgd_learner = _native("sgd", _learners.sgd, "lr")
momentum_sgd_learner = _native("momentum_sgd", _learners.momentum_sgd, *_MOMENTUM)
nesterov_learner = _native("nesterov", _learners.nesterov, *_MOMENTUM)
ada_grad_learner = _native("ada_grad", _learners.adagrad, "lr", "need_ave_multiplier")
ada_delta_learner = _native("ada_delta", _learners.adadelta, "lr", "rho", "epsilon")
fsada_grad_learner = _native("fsada_grad", _learners.fsadagrad, *_MOMENTUM, "variance_momentum")
adam_learner = _native("adam", _learners.adam, *_MOMENTUM, "variance_momentum", "epsilon", "adamax")
rmsprop_learner = _native(
    "rmsprop", _learners.rmsprop, "lr", "gamma", "inc", "dec", "max", "min", "need_ave_multiplier",
)
