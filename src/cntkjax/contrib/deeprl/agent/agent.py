"""The base class of agents."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ...._typing import ArrayLike
from ....graph.errors import explain
from .shared.discretize import BoxSpaceDiscretizer, Space
from .shared.preprocessing import Preprocessing

Choice = tuple[int, dict[str, str | float]]  # an action, how it was chosen, and the probability of chance


class AgentBaseClass(ABC):
    """An agent: `start` is called with the first state of an episode, `step` with each reward and next state, `end`
    with the last ones.

    Spaces are identified by the names of their classes in gym and gymnasium: actions are Discrete, observations
    Discrete, MultiBinary or Box.

    Errors: ValueError for other spaces.
    """

    def __init__(self, o_space: Space, a_space: Space) -> None:
        observations, actions = (type(space).__name__ for space in (o_space, a_space))
        if actions != "Discrete":
            raise ValueError(f"the actions of an agent have to be a Discrete space, not {self._classname(a_space)}")
        if observations not in ("Discrete", "MultiBinary", "Box"):
            raise ValueError(
                "the observations of an agent have to be a Discrete, MultiBinary or Box space, not "
                f"{self._classname(o_space)}"
            )
        self._num_actions: int = a_space.n
        self._discrete_observation_space = observations == "Discrete"
        self._num_states: int | None = o_space.n if self._discrete_observation_space else None
        self._shape_of_inputs: tuple[int, ...] = tuple(o_space.shape) if observations == "Box" else (o_space.n,)
        self._space_discretizer: BoxSpaceDiscretizer | None = None
        self._preprocessor: Preprocessing | None = None
        self.episode_count = self.step_count = 0

    @abstractmethod
    def start(self, state: ArrayLike) -> Choice:
        """Begin an episode: the first action."""

    @abstractmethod
    def step(self, reward: float, next_state: ArrayLike) -> Choice:
        """The next action, after the reward for the last one."""

    @abstractmethod
    def end(self, reward: float, next_state: ArrayLike) -> None:
        """The last reward of the episode."""

    @abstractmethod
    def save(self, filename: str) -> None:
        """Write the best model."""

    @abstractmethod
    def save_parameter_settings(self, filename: str) -> None:
        """Write the settings."""

    @abstractmethod
    def set_as_best_model(self) -> None:
        """Remember the current model as the best one so far."""

    @abstractmethod
    def _choose_action(self, state: Any) -> tuple[int, str]:
        """An action, and how it was chosen."""

    def enter_evaluation(self) -> None:
        """Prepare for calls of `evaluate` with the observations of another episode."""
        if self._preprocessor is not None:
            self._preprocessor.reset()

    def exit_evaluation(self) -> None:  # noqa: B027  # most agents have nothing to do
        """Resume training, with `start`."""

    def evaluate(self, o: ArrayLike) -> int:
        """The action for an observation, without learning."""
        return self._choose_action(self._preprocess_state(o))[0]

    def _set_up_preprocessing(self, path: str, arguments: str) -> None:
        """Use the preprocessor at a path; its arguments are the shape of observations and the tuple `arguments`."""
        if path:
            self._preprocessor = self._import_method(path)(self._shape_of_inputs, *ast.literal_eval(arguments))
            self._shape_of_inputs = self._preprocessor.output_shape()

    def _discretize_observation_space(self, space: Space, discretization_resolution: ArrayLike) -> None:
        """Number the cells of a Box; other spaces are not changed."""
        if type(space).__name__ == "Box":
            self._space_discretizer = BoxSpaceDiscretizer(space, discretization_resolution)
            self._num_states = int(np.prod(np.broadcast_to(discretization_resolution, space.shape)))
            self._shape_of_inputs, self._discrete_observation_space = (self._num_states,), True

    def _discretize_state_if_necessary(self, state: ArrayLike) -> ArrayLike:
        return state if self._space_discretizer is None else self._space_discretizer.discretize(state)

    @staticmethod
    def _index_to_vector(index: int, dimension: int) -> np.ndarray:
        return np.eye(dimension, dtype=np.float32)[index]

    def _preprocess_state(self, state: ArrayLike) -> Any:
        """The state for the agent's model: the observation, preprocessed, discretized or as an indicator vector."""
        if self._preprocessor is not None:
            state = self._preprocessor.preprocess(state)
        state = self._discretize_state_if_necessary(state)
        if self._num_states is not None and np.ndim(state) == 0:
            return self._index_to_vector(int(np.asarray(state)), self._num_states)
        return state

    def _classname(self, instance: object) -> str:
        return f"{type(instance).__module__}.{type(instance).__name__}"

    @staticmethod
    def _import_method(path: str) -> Callable[..., Any]:
        """The function or class at the path module.name. Errors: ValueError if it cannot be imported."""
        module, _, name = path.rpartition(".")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(explain(
                f"{path!r} is no path of a function or class that can be imported: {error}",
                fix="write package.module.name, and make sure that the module is on sys.path",
            )) from error


def decayed(initial: float, minimum: float, steps_of_decay: int, step: int) -> float:
    """The value at a step of a linear decay from `initial` to `minimum` over `steps_of_decay` steps."""
    return max(minimum, minimum + (initial - minimum) * (1 - step / steps_of_decay))
