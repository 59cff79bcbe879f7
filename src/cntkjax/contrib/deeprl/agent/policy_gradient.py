"""Policy gradients with a critic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import layers, learners, losses, ops
from ...._typing import ArrayLike
from ....graph.errors import explain
from ....graph.variable import set_value, value_of
from ....ops.functions import CloneMethod, Function, load_model
from ....train.trainer import Trainer
from .agent import AgentBaseClass, Choice, decayed
from .shared.cntk_utils import negative_of_entropy_with_softmax
from .shared.discretize import Space
from .shared.models import Models, Network
from .shared.policy_gradient_parameters import PolicyGradientParameters


class ActorCritic(AgentBaseClass):
    """A network of action probabilities, and one of state values, from which the advantage of an action follows.

    Both representations are 'nn' or the path of a function such as `customized_models.conv_dqn`; with
    `SharedRepresentation` the values are a layer on top of the policy's network.

    Errors: ValueError for other representations, and for an initial policy that does not fit.
    Source: Mnih et al., Asynchronous methods for deep reinforcement learning, ICML 2016.
    """

    def __init__(self, config_filename: str, o_space: Space, a_space: Space) -> None:
        super().__init__(o_space, a_space)
        self._parameters = PolicyGradientParameters(config_filename)
        self._set_up_preprocessing(self._parameters.preprocessing, self._parameters.preprocessing_args)
        self._set_up_policy_network_and_value_network()
        self._best_model = self._policy_network
        policy, value = self._parameters.policy_representation, self._parameters.value_function_representation
        print(f'Parameterized the agent\'s policy using neural networks "{policy}" with {self._num_actions} actions.\n')
        print(f'Parameterized the agent\'s value function using neural network "{value}".\n')
        self._trajectory_states: list[Any] = []
        self._trajectory_actions: list[int] = []
        self._trajectory_rewards: list[float] = []
        self._forget_buffers()

    def start(self, state: ArrayLike) -> Choice:
        """Begin an episode."""
        self.episode_count += 1
        if self._preprocessor is not None:
            self._preprocessor.reset()
        self._process_accumulated_trajectory(False)
        self._trajectory_states = [self._preprocess_state(state)]
        return self._act()

    def step(self, reward: float, next_state: ArrayLike) -> Choice:
        """Learn periodically, and choose the next action."""
        self._trajectory_rewards.append(reward)
        self._trajectory_states.append(self._preprocess_state(next_state))
        self._update_periodically(keep_last=True)
        return self._act()

    def end(self, reward: float, next_state: ArrayLike) -> None:
        """Store the last reward; the next `start` processes the trajectory."""
        self._trajectory_rewards.append(reward)
        self._update_periodically(keep_last=False)

    def set_as_best_model(self) -> None:
        """Keep a copy of the current policy."""
        self._best_model = self._policy_network.clone(CloneMethod.clone)

    def save(self, filename: str) -> None:
        """Write the best policy."""
        self._best_model.save(filename)

    def save_parameter_settings(self, filename: str) -> None:
        """Write the settings."""
        self._parameters.save(filename)

    def _set_up_policy_network_and_value_network(self) -> None:
        s = self._parameters
        states = self._input_variables = ops.input_variable(self._shape_of_inputs)
        policy = self._network(
            s.policy_representation, s.policy_network_hidden_layers, self._num_actions,
            losses.cross_entropy_with_softmax,
        )
        policy_loss = policy["loss"].replace_placeholders({policy["inputs"]: states})
        self._policy_network = policy["f"]
        if s.initial_policy_network:
            _copy_parameters(self._policy_network, load_model(s.initial_policy_network))
        if s.shared_representation:
            self._value_network = layers.Dense(1, activation=None)(self._policy_network)
            self._value_network_output_variables = ops.input_variable(1)
            value_loss = losses.squared_error(self._value_network, self._value_network_output_variables)
        else:
            value = self._network(s.value_function_representation, s.value_network_hidden_layers, 1)
            value_loss = value["loss"].replace_placeholders({value["inputs"]: states})
            self._value_network, self._value_network_output_variables = value["f"], value["outputs"]
        self._policy_network_output_variables = policy["outputs"]
        self._policy_network_weight_variables = ops.input_variable(1)
        loss = ops.reduce_sum(policy_loss * self._policy_network_weight_variables)
        loss += s.regularization_weight * negative_of_entropy_with_softmax(self._policy_network)
        loss += s.relative_step_size * ops.reduce_sum(value_loss)
        learner = learners.momentum_sgd(
            loss.parameters, learners.learning_parameter_schedule(s.initial_eta), learners.momentum_schedule(s.momentum)
        )
        self._trainer = Trainer(self._policy_network, loss, learner)

    def _network(
        self, kind: str, hidden_layers: str, outputs: int, *loss_function: Callable[[Any, Any], Any]
    ) -> Network:
        if kind == "nn":
            structure: tuple[str, ...] = (hidden_layers,)
            builder: Callable[..., Network] = Models.feedforward_network
        elif "." in kind:
            structure, builder = (), self._import_method(kind)
        else:
            raise ValueError(f"a representation of ActorCritic is 'nn' or the path of a function, not {kind!r}")
        return builder(self._shape_of_inputs, outputs, *structure, *loss_function, use_placeholder_for_input=True)

    def _adjust_learning_rate(self) -> None:
        s = self._parameters
        eta = decayed(s.initial_eta, s.eta_minimum, s.eta_decay_step_count, self.step_count)
        self._trainer.parameter_learners[0].reset_learning_rate(learners.learning_parameter_schedule(eta))

    def _act(self) -> Choice:
        action, _ = self._choose_action(self._trajectory_states[-1])
        self._trajectory_actions.append(action)
        return action, {}

    def _choose_action(self, state: ArrayLike) -> tuple[int, str]:
        logits = self._evaluate_model(self._policy_network, state).astype(np.float64)
        weights = np.exp(logits - logits.max())
        return int(np.random.choice(self._num_actions, p=weights / weights.sum())), "RANDOM"

    def _evaluate_model(self, model: Function, state: ArrayLike) -> np.ndarray:
        return np.reshape(model.eval({model.arguments[0]: [state]}), -1)

    def _update_periodically(self, keep_last: bool) -> None:
        self.step_count += 1
        if self.step_count % self._parameters.update_frequency == 0:
            self._process_accumulated_trajectory(keep_last)
            self._update_networks()

    def _process_accumulated_trajectory(self, keep_last: bool) -> None:
        """Convert the trajectory to training data. If the episode continues, the value of the last state replaces the
        later rewards. With `keep_last`, that state begins the next trajectory.
        """
        count = len(self._trajectory_rewards)
        if count:
            continues = len(self._trajectory_states) > count
            bootstrap = self._evaluate_model(self._value_network, self._trajectory_states[-1])[0] if continues else 0.0
            returns = self._discount_rewards(bootstrap)
            steps = zip(self._trajectory_states, self._trajectory_actions, returns, strict=False)
            for state, action, reward in steps:
                self._input_buffer.append(state)
                self._value_network_output_buffer.append([reward])
                self._policy_network_output_buffer.append(self._index_to_vector(action, self._num_actions))
                advantage = reward - self._evaluate_model(self._value_network, state)[0]
                self._policy_network_weight_buffer.append([advantage])
        self._trajectory_states = self._trajectory_states[-1:] if keep_last else []
        self._trajectory_actions, self._trajectory_rewards = [], []

    def _discount_rewards(self, bootstrap_r: float) -> list[float]:
        """The return of each step: its reward plus the later ones, discounted."""
        returns, total = [], bootstrap_r
        for reward in reversed(self._trajectory_rewards):
            total = reward + self._parameters.gamma * total
            returns.append(total)
        return returns[::-1]

    def _update_networks(self) -> None:
        if not self._input_buffer:
            return
        self._adjust_learning_rate()
        self._trainer.train_minibatch({
            self._input_variables: self._input_buffer,
            self._value_network_output_variables: np.array(self._value_network_output_buffer, np.float32),
            self._policy_network_output_variables: self._policy_network_output_buffer,
            self._policy_network_weight_variables: np.array(self._policy_network_weight_buffer, np.float32),
        })
        self._forget_buffers()

    def _forget_buffers(self) -> None:
        self._input_buffer: list[Any] = []
        self._value_network_output_buffer: list[list[float]] = []
        self._policy_network_output_buffer: list[np.ndarray] = []
        self._policy_network_weight_buffer: list[list[float]] = []


def _copy_parameters(network: Function, trained: Function) -> None:
    """Set the parameters of a network to those of a network of the same structure."""
    shapes, initial_shapes = ([p.shape for p in f.parameters] for f in (network, trained))
    if shapes != initial_shapes:
        raise ValueError(explain(
            f"the initial policy has parameters {initial_shapes}, but the settings make a network of {shapes}",
            fix="set PolicyNetworkHiddenLayerNodes to the sizes of the initial policy",
        ))
    for p, q in zip(network.parameters, trained.parameters, strict=True):
        set_value(p, np.array(value_of(q)))  # a copy, as training gives buffers away
