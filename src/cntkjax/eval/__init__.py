"""Evaluation without training."""

from .evaluator import Evaluator, MinibatchData, use_default_device
from .predictor import Predictor

