"""Evaluation without training."""

from .evaluator import Evaluator
