"""Agents from configuration files."""

from __future__ import annotations

from collections.abc import Callable
from configparser import ConfigParser
from typing import Any

from .agent import AgentBaseClass
from .policy_gradient import ActorCritic
from .qlearning import QLearning
from .random_agent import RandomAgent
from .shared.discretize import Space
from .tabular_qlearning import TabularQLearning

_AGENTS: dict[str, Callable[[str, Any, Any], AgentBaseClass]] = {
    "qlearning": QLearning, "tabular_qlearning": TabularQLearning, "actor_critic": ActorCritic,
}


def make_agent(agent_config: str, o_space: Space, a_space: Space) -> AgentBaseClass:
    """The agent that the option Agent in section General names: qlearning, tabular_qlearning, actor_critic or random.

    Errors: ValueError for another name.
    """
    config = ConfigParser()
    config.read(agent_config)
    name = config.get("General", "Agent", fallback="random")
    if name == "random":
        return RandomAgent(o_space, a_space)
    if name not in _AGENTS:
        raise ValueError(f"{agent_config}: Agent is {', '.join(_AGENTS)} or random, not {name!r}")
    return _AGENTS[name](agent_config, o_space, a_space)
