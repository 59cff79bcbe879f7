"""Evaluation without training."""

from ..graph.arguments import check_arguments as _check_arguments
from .evaluator import Evaluator, MinibatchData, use_default_device

_check_arguments(globals(), __name__)
