"""An agent that chooses actions at random."""

from __future__ import annotations

import numpy as np

from ...._typing import ArrayLike
from .agent import AgentBaseClass, Choice
from .shared.discretize import Space


class RandomAgent(AgentBaseClass):
    """Chooses all actions with equal probability: a baseline for other agents."""

    def __init__(self, o_space: Space, a_space: Space) -> None:
        super().__init__(o_space, a_space)
        print(f"Initialized random agent with {self._num_actions} actions.")

    def start(self, state: ArrayLike) -> Choice:
        """The first action."""
        self.episode_count += 1
        return self._act(state)

    def step(self, reward: float, next_state: ArrayLike) -> Choice:
        """The next action."""
        self.step_count += 1
        return self._act(next_state)

    def end(self, reward: float, next_state: ArrayLike) -> None:
        """Nothing is learned."""
        self.step_count += 1

    def set_as_best_model(self) -> None:
        """There is no model."""

    def save(self, filename: str) -> None:
        """There is nothing to write."""

    def save_parameter_settings(self, filename: str) -> None:
        """There are no settings."""

    def _act(self, state: ArrayLike) -> Choice:
        return self._choose_action(state)[0], {}

    def _choose_action(self, state: ArrayLike) -> tuple[int, str]:
        return int(np.random.randint(self._num_actions)), "RANDOM"
