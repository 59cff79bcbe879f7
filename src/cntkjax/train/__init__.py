"""Training: the trainer and what belongs to it."""

from .trainer import Trainer
