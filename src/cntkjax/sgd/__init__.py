"""CNTK's SGD block: training as its command-line users describe it, with automatic learning rates and sizes.

``cntkjax.sgd`` is this package and, as ever, the learner: importing the package binds its name in ``cntkjax``, where
scripts call ``C.sgd(parameters, lr)``. So the module can be called.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from .. import learners
from ..configuration import ConfigError
from ._block import SGD
from ._moments import Moments, moments
from ._observer import Observer
from .history import Epoch, History


class _CallablePackage(ModuleType):
    """The module, which is also the learner `sgd`."""

    __call__ = staticmethod(learners.sgd)


sys.modules[__name__].__class__ = _CallablePackage
__signature__ = inspect.signature(learners.sgd)

__all__ = ["SGD", "ConfigError", "Epoch", "History", "Moments", "Observer", "moments"]
