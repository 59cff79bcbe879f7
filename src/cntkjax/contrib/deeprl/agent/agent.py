"""What all agents share."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import numpy as np

from .shared.discretize import BoxSpaceDiscretizer

Choice = tuple[Any, dict[str, str]]  # an action and {'action_behavior': how it was chosen}


class AgentBaseClass(ABC):
    """An agent: `start` with an episode's first state, `step` with each reward and next state, `end` with the last.

    Spaces are known by the names of their classes, as gym and gymnasium call them: actions are Discrete, observations
    Discrete, MultiBinary or Box.

    Errors: ValueError for other spaces.
    """

    def __init__(self, o_space: Any, a_space: Any) -> None:
        observations, actions = (type(space).__name__ for space in (o_space, a_space))
        if actions != "Discrete":
            raise ValueError(f"an agent's actions have to be a Discrete space, not {self._classname(a_space)}")
        if observations not in ("Discrete", "MultiBinary", "Box"):
            raise ValueError(
                "an agent's observations have to be a Discrete, MultiBinary or Box space, not "
                f"{self._classname(o_space)}"
            )
        self._num_actions: int = a_space.n
        self._discrete_observation_space = observations == "Discrete"
        self._num_states: int | None = o_space.n if self._discrete_observation_space else None
        self._shape_of_inputs: tuple[int, ...] = tuple(o_space.shape) if observations == "Box" else (o_space.n,)
        self._space_discretizer: BoxSpaceDiscretizer | None = None
        self._preprocessor: Any = None
        self.episode_count = self.step_count = 0

    @abstractmethod
    def start(self, state: Any) -> Choice:
        """Begin an episode: the first action."""

    @abstractmethod
    def step(self, reward: float, next_state: Any) -> Choice:
        """The next action, after the reward for the last one."""

    @abstractmethod
    def end(self, reward: float, next_state: Any) -> None:
        """The last reward of the episode."""

    @abstractmethod
    def save(self, filename: str) -> None:
        """Write the best model."""

    @abstractmethod
    def save_parameter_settings(self, filename: str) -> None:
        """Write the settings."""

    @abstractmethod
    def set_as_best_model(self) -> None:
        """The model as it is now is the best one so far."""

    @abstractmethod
    def _choose_action(self, state: Any) -> tuple[Any, str]:
        """An action, and how it was chosen."""

    def enter_evaluation(self) -> None:
        """From now on `evaluate` is called, with the observations of another episode."""
        if self._preprocessor is not None:
            self._preprocessor.reset()

    def exit_evaluation(self) -> None:  # noqa: B027  # most agents have nothing to do
        """Training goes on, with `start`."""

    def evaluate(self, o: Any) -> Any:
        """The action for an observation; nothing is learned."""
        return self._choose_action(self._preprocess_state(o))[0]

    def _set_up_preprocessing(self, path: str, arguments: str) -> None:
        """Use the preprocessor at a path, given the shape of observations and what the tuple `arguments` says."""
        if path:
            self._preprocessor = self._import_method(path)(self._shape_of_inputs, *ast.literal_eval(arguments))
            self._shape_of_inputs = self._preprocessor.output_shape()

    def _discretize_observation_space(self, space: Any, discretization_resolution: Any) -> None:
        """Number the cells of a box; other spaces stay as they are."""
        if type(space).__name__ == "Box":
            self._space_discretizer = BoxSpaceDiscretizer(space, discretization_resolution)
            self._num_states = int(np.prod(np.broadcast_to(discretization_resolution, space.shape)))
            self._shape_of_inputs, self._discrete_observation_space = (self._num_states,), True

    def _discretize_state_if_necessary(self, state: Any) -> Any:
        return state if self._space_discretizer is None else self._space_discretizer.discretize(state)

    @staticmethod
    def _index_to_vector(index: int, dimension: int) -> np.ndarray:
        return np.eye(dimension, dtype=np.float32)[index]

    def _preprocess_state(self, state: Any) -> Any:
        """What the agent's model is given for an observation."""
        if self._preprocessor is not None:
            state = self._preprocessor.preprocess(state)
        state = self._discretize_state_if_necessary(state)
        if self._num_states is not None and np.ndim(state) == 0:
            return self._index_to_vector(state, self._num_states)
        return state

    def _classname(self, instance: Any) -> str:
        return f"{type(instance).__module__}.{type(instance).__name__}"

    @staticmethod
    def _import_method(path: str) -> Any:
        """What is at module.name; ValueError if nothing is."""
        module, _, name = path.rpartition(".")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{path!r} is no path of a function or class that can be imported: {error}") from error


def decayed(initial: float, minimum: float, steps_of_decay: int, step: int) -> float:
    """From `initial` to `minimum` in equal steps."""
    return max(minimum, initial - (initial - minimum) / steps_of_decay * step)
