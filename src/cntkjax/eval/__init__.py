"""Evaluation without training."""

from ..graph.arguments import check_arguments as _check_arguments
from .evaluator import Evaluator, MinibatchData, use_default_device
from .predictor import Predictor

_check_arguments(globals(), __name__)
