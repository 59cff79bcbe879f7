"""Networks of agents, as dictionaries with 'inputs', 'outputs' (the targets), 'f' and 'loss'."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ..... import layers, losses, ops
from .....ops.functions import Function
from .....variables import Variable

Network = dict[str, Any]


def network(
    shape_of_inputs: Sequence[int],
    number_of_outputs: int,
    function: Callable[[Any], Any],
    loss_function: Callable[[Any, Any], Any] | None,
    use_placeholder_for_input: bool,
) -> Network:
    """A function of states and its loss, the squared error if none is given."""
    inputs = (ops.placeholder if use_placeholder_for_input else ops.input_variable)(shape_of_inputs)
    outputs = ops.input_variable(number_of_outputs)
    f = function(inputs)
    return {"inputs": inputs, "outputs": outputs, "f": f, "loss": (loss_function or losses.squared_error)(f, outputs)}


def _dense(sizes: Sequence[int], outputs: int) -> Callable[..., Function]:
    hidden = [layers.Dense(size, activation=ops.relu) for size in sizes]
    return layers.Sequential([*hidden, layers.Dense(outputs, activation=None)])


class Models:
    """Networks by the sizes of their hidden layers, written as in a configuration file.

    >>> Models.feedforward_network((3,), 2, "[4]")["f"].shape
    (2,)
    """

    @staticmethod
    def feedforward_network(
        shape_of_inputs: Sequence[int],
        number_of_outputs: int,
        model_hidden_layers: str,
        loss_function: Callable[[Any, Any], Any] | None = None,
        use_placeholder_for_input: bool = False,
    ) -> Network:
        """Dense layers: '[10, 20]' has two hidden ones with relu."""
        sizes = Models._remove_none_elements_from_list(ast.literal_eval(model_hidden_layers))
        f = _dense(sizes, number_of_outputs)
        return network(shape_of_inputs, number_of_outputs, f, loss_function, use_placeholder_for_input)

    @staticmethod
    def dueling_network(
        shape_of_inputs: Sequence[int],
        number_of_outputs: int,
        model_hidden_layers: str,
        loss_function: Callable[[Any, Any], Any] | None = None,
        use_placeholder_for_input: bool = False,
    ) -> Network:
        """The value of a state plus the advantage of each action over their mean: '[10, [5], [6]]' has a shared layer
        of 10 units, one of 5 for the value and one of 6 for the advantages.

        Source: Wang et al., Dueling network architectures for deep reinforcement learning, ICML 2016.
        """
        common, value_sizes, advantage_sizes = Models._parse_dueling_network_structure(model_hidden_layers)

        def f(x: Variable | Function) -> Function:
            h = layers.Sequential([layers.Dense(size, activation=ops.relu) for size in common])(x) if common else x
            value, advantage = _dense(value_sizes, 1)(h), _dense(advantage_sizes, number_of_outputs)(h)
            return value + advantage - ops.reduce_mean(advantage)

        return network(shape_of_inputs, number_of_outputs, f, loss_function, use_placeholder_for_input)

    @staticmethod
    def _parse_dueling_network_structure(structure: str) -> tuple[list[int], list[int], list[int]]:
        *common, value_sizes, advantage_sizes = ast.literal_eval(structure)
        without_none = Models._remove_none_elements_from_list
        return without_none(common), without_none(value_sizes), without_none(advantage_sizes)

    @staticmethod
    def _remove_none_elements_from_list(data: Sequence[Any]) -> list[Any]:
        return [e for e in data if e is not None]
