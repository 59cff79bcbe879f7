"""Q-learning with a table."""

from __future__ import annotations

import numpy as np

from ...._typing import ArrayLike
from ....graph.errors import explain
from .agent import AgentBaseClass, Choice, decayed
from .shared.discretize import Space
from .shared.qlearning_parameters import QLearningParameters


class TabularQLearning(AgentBaseClass):
    """A table of Q values for each state and action; the cells of a grid number the observations in a Box.

    Errors: ValueError for other representations than 'tabular', and for spaces that are neither discrete nor a box.
    Source: Watkins and Dayan, Q-learning, Machine Learning 1992.
    """

    def __init__(self, cfg_filename: str, o_space: Space, a_space: Space) -> None:
        super().__init__(o_space, a_space)
        self._parameters = settings = QLearningParameters(cfg_filename)
        if settings.q_representation != "tabular":
            raise ValueError(f"QRepresentation of TabularQLearning is 'tabular', not {settings.q_representation!r}")
        self._discretize_observation_space(o_space, settings.discretization_resolution)
        if not self._discrete_observation_space:
            raise ValueError(explain(
                f"a table needs discrete observations or a box, not {self._classname(o_space)}",
                fix="use Agent=qlearning, whose network takes such observations",
            ))
        self._q = self._best_model = np.full((self._shape_of_inputs[0], self._num_actions), float(settings.initial_q))
        states, actions = self._q.shape
        print(f"Initialized discrete Q-learning agent with {states} states and {actions} actions.")

    def start(self, state: ArrayLike) -> Choice:
        """Begin an episode."""
        self.episode_count += 1
        return self._act(self._preprocess_state(state))

    def step(self, reward: float, next_state: ArrayLike) -> Choice:
        """Learn from the reward, and choose the next action."""
        state = self._preprocess_state(next_state)
        self._learn(reward + self._parameters.gamma * self._q[state].max())
        return self._act(state)

    def end(self, reward: float, next_state: ArrayLike) -> None:
        """Learn from the last reward."""
        self._learn(reward)

    def set_as_best_model(self) -> None:
        """Keep a copy of the current table."""
        self._best_model = self._q.copy()

    def save(self, filename: str) -> None:
        """Write the best table as text, with a row for each state."""
        np.savetxt(filename, self._best_model)

    def save_parameter_settings(self, filename: str) -> None:
        """Write the settings."""
        self._parameters.save(filename)

    def enter_evaluation(self) -> None:
        """Choose the best action from now on."""
        super().enter_evaluation()
        self._epsilon = 0.0

    def _act(self, state: int) -> Choice:
        self._adjust_exploration_rate()
        self._last_state = state
        self._last_action, behavior = self._choose_action(state)
        return self._last_action, {"action_behavior": behavior, "epsilon": self._epsilon}

    def _learn(self, target: float) -> None:
        self._adjust_learning_rate()
        cell = self._last_state, self._last_action
        self._q[cell] += self._eta * (target - self._q[cell])
        self.step_count += 1

    def _adjust_learning_rate(self) -> None:
        s = self._parameters
        self._eta = decayed(s.initial_eta, s.eta_minimum, s.eta_decay_step_count, self.step_count)

    def _adjust_exploration_rate(self) -> None:
        s = self._parameters
        self._epsilon = decayed(s.initial_epsilon, s.epsilon_minimum, s.epsilon_decay_step_count, self.step_count)

    def _choose_action(self, state: int) -> tuple[int, str]:
        if np.random.random() < self._epsilon:
            return int(np.random.randint(self._num_actions)), "RANDOM"
        return int(np.argmax(self._q[state])), "GREEDY"

    def _preprocess_state(self, state: ArrayLike) -> int:
        return int(np.asarray(self._discretize_state_if_necessary(state)))
