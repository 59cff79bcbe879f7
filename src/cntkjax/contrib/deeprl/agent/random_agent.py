"""An agent that does anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from .agent import AgentBaseClass, Choice


class RandomAgent(AgentBaseClass):
    """Chooses any action with the same chance: what others have to be better than."""

    def start(self, state: Any) -> Choice:
        """The first action."""
        self.episode_count += 1
        return self._act(state)

    def step(self, reward: float, next_state: Any) -> Choice:
        """The next action."""
        self.step_count += 1
        return self._act(next_state)

    def end(self, reward: float, next_state: Any) -> None:
        """Nothing is learned."""
        self.step_count += 1

    def set_as_best_model(self) -> None:
        """There is no model."""

    def save(self, filename: str) -> None:
        """There is nothing to write."""

    def save_parameter_settings(self, filename: str) -> None:
        """There are no settings."""

    def _act(self, state: Any) -> Choice:
        action, behavior = self._choose_action(state)
        return action, {"action_behavior": behavior}

    def _choose_action(self, state: Any) -> tuple[int, str]:
        return int(np.random.randint(self._num_actions)), "RANDOM"
