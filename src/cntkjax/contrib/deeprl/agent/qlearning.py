"""Q-learning with a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .... import learners, ops
from ...._typing import ArrayLike
from ....ops.functions import CloneMethod, Function
from ....train.trainer import Trainer
from .agent import AgentBaseClass, Choice, decayed
from .shared.cntk_utils import huber_loss
from .shared.discretize import Space
from .shared.models import Models, Network
from .shared.qlearning_parameters import QLearningParameters
from .shared.replay_memory import ReplayMemory, _Transition


class QLearning(AgentBaseClass):
    """Q values by a network, trained on remembered transitions with targets from an older copy of the network.

    `QRepresentation` is 'dqn', 'dueling-dqn', or the path of a function such as `customized_models.conv_dqn`.

    Errors: ValueError for other representations and preprocessors.
    Source: Mnih et al., Nature 2015; van Hasselt et al. (double), AAAI 2016; Schaul et al. (prioritized), ICLR 2016.
    """

    def __init__(self, config_filename: str, o_space: Space, a_space: Space) -> None:
        super().__init__(o_space, a_space)
        self._parameters = settings = QLearningParameters(config_filename)
        self._set_up_preprocessing(settings.preprocessing, settings.preprocessing_args)
        kind = settings.q_representation
        networks = {"dqn": Models.feedforward_network, "dueling-dqn": Models.dueling_network}
        network: Callable[..., Network] | None = networks.get(kind)
        if network is None and "." not in kind:
            raise ValueError(f"QRepresentation of QLearning is 'dqn', 'dueling-dqn' or a path, not {kind!r}")
        structure = (settings.hidden_layers,) if network else ()
        loss = huber_loss if settings.use_error_clipping else None
        model = (network or self._import_method(kind))(self._shape_of_inputs, self._num_actions, *structure, loss)
        self._input_variables, self._output_variables = model["inputs"], model["outputs"]
        self._q, loss = model["f"], model["loss"]
        self._target_q = self._best_model = self._q.clone(CloneMethod.clone)
        self._weight_variables = None
        if settings.use_prioritized_replay:
            self._weight_variables = ops.input_variable(1)
            loss = loss * self._weight_variables
        learner = learners.momentum_sgd(
            self._q.parameters, learners.learning_parameter_schedule(settings.initial_eta),
            learners.momentum_schedule(settings.momentum),
            gradient_clipping_threshold_per_sample=settings.gradient_clipping_threshold,
        )
        self._trainer = Trainer(self._q, loss, learner)
        self._replay_memory = ReplayMemory(settings.replay_memory_capacity, settings.use_prioritized_replay)
        print(f'Parameterized Q-learning agent using neural networks "{kind}" with {self._num_actions} actions.\n')

    def start(self, state: ArrayLike) -> Choice:
        """Begin an episode."""
        self.episode_count += 1
        if self._preprocessor is not None:
            self._preprocessor.reset()
        return self._act(self._preprocess_state(state))

    def step(self, reward: float, next_state: ArrayLike) -> Choice:
        """Store the transition, learn periodically, and choose the next action."""
        state = self._preprocess_state(next_state)
        self._remember(reward, state)
        return self._act(state)

    def end(self, reward: float, next_state: ArrayLike) -> None:
        """Store the last transition of the episode."""
        self._remember(reward, None)

    def set_as_best_model(self) -> None:
        """Keep a copy of the current network."""
        self._best_model = self._q.clone(CloneMethod.clone)

    def enter_evaluation(self) -> None:
        """Choose the best action from now on."""
        super().enter_evaluation()
        self._epsilon = 0.0

    def save(self, filename: str) -> None:
        """Write the best network."""
        self._best_model.save(filename)

    def save_parameter_settings(self, filename: str) -> None:
        """Write the settings."""
        self._parameters.save(filename)

    def _act(self, state: ArrayLike) -> Choice:
        self._adjust_exploration_rate()
        self._last_state = state
        self._last_action, behavior = self._choose_action(state)
        return self._last_action, {"action_behavior": behavior, "epsilon": self._epsilon}

    def _remember(self, reward: float, next_state: ArrayLike | None) -> None:
        priority = self._compute_priority(self._last_state, self._last_action, reward, next_state)
        self._replay_memory.store(self._last_state, self._last_action, reward, next_state, priority)
        self.step_count += 1
        self._update_q_periodically()

    def _adjust_learning_rate(self) -> None:
        s = self._parameters
        eta = decayed(s.initial_eta, s.eta_minimum, s.eta_decay_step_count, self.step_count)
        self._trainer.parameter_learners[0].reset_learning_rate(learners.learning_parameter_schedule(eta))

    def _adjust_exploration_rate(self) -> None:
        s = self._parameters
        self._epsilon = decayed(s.initial_epsilon, s.epsilon_minimum, s.epsilon_decay_step_count, self.step_count)

    def _choose_action(self, state: ArrayLike) -> tuple[int, str]:
        is_filling = self.step_count < self._parameters.replay_start_size  # the memory has too few transitions
        if is_filling or np.random.random() < self._epsilon:
            return int(np.random.randint(self._num_actions)), "RANDOM"
        return int(np.argmax(self._evaluate_q(self._q, [state]))), "GREEDY"

    def _evaluate_q(self, model: Function, states: Sequence[ArrayLike]) -> np.ndarray:
        """The values of all actions in each state. Shapes: [states, actions]."""
        shape = len(states), self._num_actions
        if not states:
            return np.zeros(shape)
        arrays = [np.asarray(state, np.float32) for state in states]
        values = np.reshape(model.eval({model.arguments[0]: arrays}), (-1, self._num_actions))
        return np.array(np.broadcast_to(values, shape), float)  # CNTK's tests stand in for a model with one row for all

    def _update_q_periodically(self) -> None:
        s = self._parameters
        if self.step_count >= s.replay_start_size and self.step_count % s.q_update_frequency == 0:
            self._adjust_learning_rate()
            for _ in range(s.replays_per_update):
                self._replay_and_update()
        if self.step_count % s.target_q_update_frequency == 0:
            self._target_q = self._q.clone(CloneMethod.freeze)

    def _replay_and_update(self) -> None:
        """One training step, with the rewards plus the target network's values of the next states as targets."""
        samples = self._replay_memory.sample_minibatch(self._parameters.minibatch_size)
        transitions = [t for _, t in samples]
        states = [t.state for t in transitions]
        targets = self._evaluate_q(self._q, states)
        targets[np.arange(len(samples)), [t.action for t in transitions]] = self._targets(transitions)
        minibatch = {self._input_variables: states, self._output_variables: targets.astype(np.float32)}
        if self._weight_variables is not None:
            weights = np.array([t.priority for t in transitions], np.float64) ** -self._parameters.priority_beta
            minibatch[self._weight_variables] = (weights / weights.sum())[:, None].astype(np.float32)
        self._trainer.train_minibatch(minibatch)
        if self._weight_variables is not None:
            positions = [position for position, _ in samples]
            self._replay_memory.update_priority(dict(zip(positions, self._priorities(transitions), strict=True)))

    def _targets(self, transitions: Sequence[_Transition]) -> np.ndarray:
        """The reward of each, plus the discounted value of the next state by the target network, if there is one.

        Shapes: [transitions].
        """
        ends = np.array([t.next_state is None for t in transitions])
        following = [t.state if end else t.next_state for t, end in zip(transitions, ends, strict=True)]
        values = self._evaluate_q(self._target_q, following)
        selecting = self._evaluate_q(self._q, following) if self._parameters.double_q_learning else values
        selected = values[np.arange(len(values)), selecting.argmax(axis=1)]
        return np.array([t.reward for t in transitions]) + self._parameters.gamma * np.where(ends, 0.0, selected)

    def _compute_priority(self, state: ArrayLike, action: int, reward: float, next_state: ArrayLike | None) -> float:
        return self._priorities([_Transition(state, action, reward, next_state)])[0]

    def _priorities(self, transitions: Sequence[_Transition]) -> list[float]:
        """How surprising each is: by the temporal-difference error, the target minus the Q value."""
        values = self._evaluate_q(self._q, [t.state for t in transitions])
        errors = self._targets(transitions) - values[np.arange(len(values)), [t.action for t in transitions]]
        return list((abs(errors) + self._parameters.priority_epsilon) ** self._parameters.priority_alpha)
