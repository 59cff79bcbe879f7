"""CNTK's learners.

To add a learner, write its rule in _transforms.py, a function here with its name in ``__all__`` (:func:`nesterov` is an
example), and a row in tests/learners/cases.py. All learners share these arguments:

    parameters      a list of parameters
    lr              learning rate: a number, a list of one for each epoch, or a schedule
    minibatch_size  the number of samples that plain numbers for rates and momentums refer to. None: a minibatch of any
                    size. IGNORE: the same, and the learner first averages the gradient over the minibatch
    epoch_size      samples in each epoch of a plain list; None: one sweep over the data
    use_mean_gradient   deprecated for ``minibatch_size=IGNORE``
    gradient_clipping_threshold_per_sample, gradient_clipping_with_truncation
                    clips each element of the gradient to ± the threshold, or else its Frobenius norm to the threshold
    l2_regularization_weight    per sample, added to the gradient
    gaussian_noise_injection_std_dev    of noise added to the parameters after each step, independent of the rate
    l1_regularization_weight    per sample and rate: parameters are moved towards zero after each step

"Per sample" is "per minibatch" where gradients are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..graph.arguments import public
from ..variables import Parameter
from . import _lazy_transforms as transforms
from ._learner import Learner, LearnerOptions, Scalars
from ._schedules import Schedulable, learning_parameter_schedule_per_sample, momentum_as_time_constant_schedule

__all__ = [
    "adadelta", "adagrad", "adam", "default_unit_gain_value", "fsadagrad", "momentum_sgd", "nesterov", "rmsprop",
    "set_default_unit_gain_value", "sgd",
]

_TWO_HOURS = 2 * 3600 * 100
"""Samples, at CNTK's 100 speech frames per second: the default time constant of variances."""

_default_unit_gain = True


@public
def default_unit_gain_value() -> bool:
    """The default of ``unit_gain`` for CNTK's C++ functions; the functions of this module have their own defaults.

    >>> default_unit_gain_value()
    True
    """
    return _default_unit_gain


@public
def set_default_unit_gain_value(value: bool) -> None:
    """Set :func:`default_unit_gain_value`. The defaults of the functions here stay ``True``, as in CNTK 2.7.

    >>> set_default_unit_gain_value(True)
    """
    global _default_unit_gain
    _default_unit_gain = bool(value)


@public
def sgd(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Stochastic gradient descent: w <- w - lr g.

    Units: ``lr`` refers to a minibatch of any size, or to ``minibatch_size`` samples; see the module's documentation
           for all arguments.
    Errors: as :class:`Learner`.
    Source: CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = sgd([w], lr=0.1)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    return Learner(parameters, lr, options=options)


@public
def momentum_sgd(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    momentum: Schedulable,
    unit_gain: bool = True,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Gradient descent with momentum: s <- m s + u lr g; w <- w - s, with u = 1 - m for ``unit_gain``, otherwise 1.

    Units: ``momentum`` refers to M samples; a minibatch of n decays s by m = momentum ** (n / M); see the module's
           documentation.
    Errors: as :class:`Learner`; TypeError if ``unit_gain`` is not a bool.
    Source: CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = momentum_sgd([w], lr=0.1, momentum=0.9)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.99, 1.02], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    rule = [("rate", transforms.scale_by_rate()), ("momentum", transforms.momentum())]
    return Learner(
        parameters, lr, rule, options, momenta={"momentum": momentum}, unit_gain=unit_gain, reports_momentum=True
    )


@public
def nesterov(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    momentum: Schedulable,
    unit_gain: bool = True,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Nesterov's momentum: s <- m s + u lr g; w <- w - (m s + u lr g).

    Units, Errors: as :func:`momentum_sgd`.
    Source: CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = nesterov([w], lr=0.1, momentum=0.9)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.981, 1.038], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    rule = [("rate", transforms.scale_by_rate()), ("momentum", transforms.nesterov())]
    return Learner(parameters, lr, rule, options, momenta={"momentum": momentum}, unit_gain=unit_gain)


@public
def adagrad(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    need_ave_multiplier: bool = True,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Adagrad: a <- a + g²; w <- w - lr g / √a; with ``need_ave_multiplier`` over the mean of 1 / √a in each parameter.

    Units: see the module's documentation.
    Errors: as :class:`Learner`.
    Source: Duchi, Hazan and Singer 2011; CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = adagrad([w], lr=0.1)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value.round(4)
    array([0.8667, 1.1333], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    rule = [("adagrad", transforms.adagrad(need_ave_multiplier)), ("rate", transforms.scale_by_rate())]
    return Learner(parameters, lr, rule, options)


@public
def adadelta(
    parameters: Sequence[Parameter],
    lr: Schedulable = learning_parameter_schedule_per_sample(1),
    rho: float = 0.95,
    epsilon: float = 1e-8,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Adadelta: w <- w - lr d, d = g √(E[d²] + ε) / √(E[g²] + ε), with running means E[x²] <- ρ E[x²] + (1-ρ) x².

    Units: the default rate is 1 per sample; see the module's documentation.
    Errors: as :class:`Learner`.
    Source: Zeiler 2012; CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = adadelta([w])
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value.round(4)
    array([0.9996, 1.0004], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    rule = [("adadelta", transforms.adadelta(rho, epsilon)), ("rate", transforms.scale_by_rate())]
    return Learner(parameters, lr, rule, options)


@public
def rmsprop(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    gamma: float,
    inc: float,
    dec: float,
    max: float,
    min: float,
    need_ave_multiplier: bool = True,
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """RMSProp with a step size t for each element: a <- γ a + (1-γ) g²; w <- w - lr g q, q = t / √(a + 1e-6).

    t is initially 0.02; it becomes t · ``inc``, at most ``max``, if the sign of g has not changed, otherwise
    t · ``dec``, at least ``min``. With ``need_ave_multiplier`` q is divided by its mean over the parameter.

    Units: see the module's documentation.
    Errors: RuntimeError unless 0 < gamma < 1, inc > 1, 0 < dec < 1 and 0 < min < max; otherwise as :class:`Learner`.
    Source: CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = rmsprop([w], lr=0.1, gamma=0.95, inc=1.2, dec=0.7, max=10, min=1e-4)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value.round(4)
    array([0.8667, 1.1333], dtype=float32)
    """
    for condition, requirement in (
        (0 < gamma < 1, f"gamma must be between 0 and 1, but is {gamma}"),
        (inc > 1, f"inc must be greater than 1, but is {inc}"),
        (0 < dec < 1, f"dec must be between 0 and 1, but is {dec}"),
        (0 < min < max, f"max must be greater than min and min greater than 0, but they are {max} and {min}"),
    ):
        if not condition:
            raise RuntimeError(f"rmsprop: {requirement}")
    options = LearnerOptions.of(locals())
    rule = [
        ("rmsprop", transforms.rmsprop(gamma, inc, dec, max, min, need_ave_multiplier)),
        ("rate", transforms.scale_by_rate()),
    ]
    return Learner(parameters, lr, rule, options, extra_scalars=_updates)


@public
def fsadagrad(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    momentum: Schedulable,
    unit_gain: bool = True,
    variance_momentum: Schedulable = momentum_as_time_constant_schedule(_TWO_HOURS),
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Frank Seide's adagrad: s <- m s + u g · min(√(k/a), 10); w <- w - lr s, with a <- v a + (1-v) g².

    Units: k <- v k + (1-v) n smooths the number of samples as a smooths g²: √(a/k) is the rms of one sample's gradient.
           See :func:`momentum_sgd` for m, u and, with ``variance_momentum``, v.
    Errors: as :class:`Learner`; TypeError if ``unit_gain`` is not a bool.
    Source: CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = fsadagrad([w], lr=0.1, momentum=0.9)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value.round(4)
    array([0.995, 1.005], dtype=float32)
    """
    options = LearnerOptions.of(locals())
    rule = [("fsadagrad", transforms.fsadagrad()), ("rate", transforms.scale_by_rate())]
    return Learner(
        parameters, lr, rule, options,
        momenta={"momentum": momentum, "variance": variance_momentum}, unit_gain=unit_gain,
        extra_scalars=_smoothed_samples,
    )


@public
def adam(
    parameters: Sequence[Parameter],
    lr: Schedulable,
    momentum: Schedulable,
    unit_gain: bool = True,
    variance_momentum: Schedulable = momentum_as_time_constant_schedule(_TWO_HOURS),
    l1_regularization_weight: float = 0.0,
    l2_regularization_weight: float = 0.0,
    gaussian_noise_injection_std_dev: Schedulable = 0.0,
    gradient_clipping_threshold_per_sample: float = np.inf,
    gradient_clipping_with_truncation: bool = True,
    use_mean_gradient: bool | None = None,
    epsilon: float = 1e-8,
    adamax: bool = False,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Learner:
    """Adam: a <- v a + (1-v) g²; s <- m s + u g; w <- w - lr c s / (√a + ε), c = √(1 - v^t) / (1 - m^t) at step t.

    ``adamax``: a <- max(v a, |g|); w <- w - lr c s / (a + ε), c = 1 / (1 - m^t).

    Units: ``variance_momentum`` is a time constant of 720,000 samples by default; see :func:`momentum_sgd` for m and u.
           With ``minibatch_size=IGNORE`` and plain numbers this is the paper's algorithm, except for the place of ε.
    Errors: ValueError if ``epsilon`` is negative; TypeError if ``unit_gain`` is not a bool; otherwise as
            :class:`Learner`.
    Source: Kingma and Ba 2014; CNTK 2.7.

    >>> import cntkjax as C
    >>> w = C.parameter((2,), init=1)
    >>> learner = adam([w], lr=0.1, momentum=0.9)
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value.round(4)
    array([0.975, 1.025], dtype=float32)
    """
    if epsilon < 0:
        raise ValueError(f"adam: epsilon must not be negative, but is {epsilon}; the default is 1e-8")
    options = LearnerOptions.of(locals())
    name, link = ("adamax", transforms.adamax) if adamax else ("adam", transforms.adam)
    rule = [(name, link(epsilon)), ("rate", transforms.scale_by_rate())]
    return Learner(
        parameters, lr, rule, options,
        momenta={"momentum": momentum, "variance": variance_momentum}, unit_gain=unit_gain,
        extra_scalars=_adamax_bias if adamax else _adam_bias,
    )


def _updates(smoothed: float, sample_count: int, scalars: Scalars) -> Scalars:
    return {"count": smoothed + 1}


def _smoothed_samples(smoothed: float, sample_count: int, scalars: Scalars) -> Scalars:
    return {"count": scalars["variance"] * smoothed + (1 - scalars["variance"]) * sample_count}


def _adamax_bias(updates: float, sample_count: int, scalars: Scalars) -> Scalars:
    count = updates + 1
    with np.errstate(divide="ignore"):
        return {"count": count, "bias": 1 / (1 - np.float64(scalars["momentum"]) ** count)}


def _adam_bias(updates: float, sample_count: int, scalars: Scalars) -> Scalars:
    adamax = _adamax_bias(updates, sample_count, scalars)
    correction = 1 - scalars["variance"] ** adamax["count"]
    return {**adamax, "bias": adamax["bias"] * math.sqrt(correction) if correction >= 0 else math.nan}
