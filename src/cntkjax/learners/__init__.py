"""Learners: how gradients change parameters, with CNTK's units, schedules and order of things."""

from ..core import NDArrayView, asarray
from ._counters import Counters
from ._learner import Learner, Options
from ._learners import (
    adadelta,
    adagrad,
    adam,
    default_unit_gain_value,
    fsadagrad,
    momentum_sgd,
    nesterov,
    rmsprop,
    set_default_unit_gain_value,
    sgd,
)
from ._optax import from_optax
from ._schedules import (
    IGNORE,
    TrainingParameterSchedule,
    UnitType,
    _infer_learning_parameter_schedule,
    _infer_learning_rate_schedule_and_ref_minibatch_size,
    _verify_learning_rate_type,
    _verify_momentum_type,
    learning_parameter_schedule,
    learning_parameter_schedule_per_sample,
    learning_rate_schedule,
    momentum_as_time_constant_schedule,
    momentum_schedule,
    momentum_schedule_per_sample,
    training_parameter_schedule,
)
from ._user import UserLearner, universal

__all__ = [
    "IGNORE", "Learner", "UnitType", "UserLearner",
    "adadelta", "adagrad", "adam", "from_optax", "fsadagrad", "momentum_sgd", "nesterov", "rmsprop", "sgd", "universal",
    "learning_parameter_schedule", "learning_parameter_schedule_per_sample", "learning_rate_schedule",
    "momentum_as_time_constant_schedule", "momentum_schedule", "momentum_schedule_per_sample",
    "training_parameter_schedule",
    "default_unit_gain_value", "set_default_unit_gain_value",
]  # fmt: skip
