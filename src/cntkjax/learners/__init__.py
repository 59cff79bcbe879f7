"""Learners: how gradients update parameters, with CNTK's units, schedules and order of operations."""

from ..core import NDArrayView, asarray
from . import _learners, _optax, _schedules, _user
from ._counters import Counters
from ._learner import Learner, LearnerOptions
from ._learners import *
from ._optax import *
from ._schedules import *
from ._schedules import (
    TrainingParameterSchedule,
    _infer_learning_parameter_schedule,
    _infer_learning_rate_schedule_and_ref_minibatch_size,
    _verify_learning_rate_type,
    _verify_momentum_type,
)
from ._user import *

__all__ = ["Learner"]
__all__ += _learners.__all__
__all__ += _optax.__all__
__all__ += _schedules.__all__
__all__ += _user.__all__

