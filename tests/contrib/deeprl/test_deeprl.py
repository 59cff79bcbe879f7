"""Agents learn small tasks; memories, networks and preprocessing work as documented."""

from dataclasses import dataclass

import numpy as np
import pytest

import cntkjax as C
from cntkjax.contrib.deeprl.agent.agent_factory import make_agent
from cntkjax.contrib.deeprl.agent.shared.models import Models
from cntkjax.contrib.deeprl.agent.shared.preprocessing import AtariPreprocessing, SlidingWindow
from cntkjax.contrib.deeprl.agent.shared.qlearning_parameters import QLearningParameters
from cntkjax.contrib.deeprl.agent.shared.replay_memory import ReplayMemory


@dataclass
class Discrete:
    n: int


@dataclass
class Box:
    low: np.ndarray
    high: np.ndarray

    @property
    def shape(self):
        return self.low.shape


PLACES = Box(np.zeros(1), np.ones(1))


def corridor(agent, episodes, most=40):
    """Five places; action 1 goes right, 0 left; the right end pays 1. Returns the lengths of the last episodes."""
    lengths = []
    for _ in range(episodes):
        place = 0
        action, _ = agent.start(np.float32([place / 4]))
        lengths.append(0)
        for _ in range(most):
            lengths[-1] += 1
            place = min(4, max(0, place + (1 if action == 1 else -1)))
            observation = np.float32([place / 4])
            if place == 4:
                agent.end(1, observation)
                break
            action, _ = agent.step(0, observation)
    return lengths[-5:]


def make(tmp_path, text):
    (tmp_path / "agent.cfg").write_text(text)
    np.random.seed(1)
    C.cntk_py.set_fixed_random_seed(1)
    return make_agent(str(tmp_path / "agent.cfg"), PLACES, Discrete(2))


TABLE = """[General]
Agent = tabular_qlearning
[QLearningAlgo]
DiscretizationResolution = 5
EpsilonDecayStepCount = 200
EpsilonMinimum = 0
InitialEpsilon = 1
[Optimization]
InitialEta = 0.5
"""
NETWORK = """[General]
Agent = qlearning
Gamma = 0.8
[QLearningAlgo]
QRepresentation = {representation}
EpsilonDecayStepCount = 400
EpsilonMinimum = 0
InitialEpsilon = 1
QUpdateFrequency = 1
MinibatchSize = 8
TargetQUpdateFrequency = 50
DoubleQLearning = True
[ExperienceReplay]
StartSize = 20
Capacity = 300
Prioritized = {prioritized}
[NetworkModel]
HiddenLayerNodes = {hidden}
[Optimization]
InitialEta = 0.05
EtaMinimum = 0.05
"""


def test_a_table_learns_to_reach_the_goal(tmp_path):
    agent = make(tmp_path, TABLE)
    corridor(agent, 60)
    agent.set_as_best_model()
    agent.enter_evaluation()
    assert [agent.evaluate([place / 4]) for place in range(4)] == [1, 1, 1, 1]
    agent.save(tmp_path / "table.txt")
    assert np.loadtxt(tmp_path / "table.txt").shape == (5, 2)


@pytest.mark.parametrize("representation, hidden, prioritized", [
    ("dqn", "[32]", False), ("dueling-dqn", "[32, [None], [None]]", True),
])
def test_a_network_learns_to_reach_the_goal(tmp_path, representation, hidden, prioritized):
    settings = NETWORK.format(representation=representation, hidden=hidden, prioritized=prioritized)
    agent = make(tmp_path, settings)
    corridor(agent, 100)
    agent.set_as_best_model()
    agent.enter_evaluation()
    assert [agent.evaluate(np.float32([place / 4])) for place in range(4)] == [1, 1, 1, 1]
    agent.save(str(tmp_path / "q.model"))
    assert C.load_model(str(tmp_path / "q.model")).shape == (2,)
    agent.save_parameter_settings(str(tmp_path / "saved.cfg"))
    assert QLearningParameters(str(tmp_path / "saved.cfg")).gamma == 0.8


def test_a_policy_learns_to_reach_the_goal(tmp_path):
    agent = make(tmp_path, "[General]\nAgent = actor_critic\nGamma = 0.8\n[PolicyGradient]\nUpdateFrequency = 20\n"
                           "[Optimization]\nInitialEta = 0.5\nEtaMinimum = 0.5\n")
    before = np.mean(corridor(agent, 5))
    after = np.mean(corridor(agent, 150))
    assert after < min(before, 8)
    agent.set_as_best_model()
    agent.save(str(tmp_path / "policy.model"))
    again = make(tmp_path, "[General]\nAgent = actor_critic\n[PolicyGradient]\n"
                           f"InitialPolicy = {tmp_path / 'policy.model'}\n")
    np.testing.assert_array_equal(again._policy_network.parameters[0].value, agent._policy_network.parameters[0].value)


def test_exploration_decays_from_the_first_step_and_a_memory_fills_at_random(tmp_path, capsys):
    """Numbers, texts and settings are CNTK's."""
    agent = make(tmp_path, "[General]\nAgent = qlearning\ngamma = 0.5\n[QLearningAlgo]\nQRepresentation = dqn\n"
                           "InitialEpsilon = 0.4\nEpsilonDecayStepCount = 8\nEpsilonMinimum = 0\n"
                           "[ExperienceReplay]\nStartSize = 8\n")
    assert agent._parameters.gamma == 0.95  # case matters in the names of options
    infos = [agent.start([0.0])[1], *(agent.step(0, [0.5])[1] for _ in range(9))]
    np.testing.assert_allclose([i["epsilon"] for i in infos], [*np.arange(8, -1, -1) / 20, 0])
    assert [i["action_behavior"] for i in infos] == ["RANDOM"] * 8 + ["GREEDY"] * 2
    agent.save_parameter_settings(str(tmp_path / "saved.cfg"))
    assert (tmp_path / "saved.cfg").read_text().startswith("[General]\nAgent = qlearning\ngamma = 0.5\n\n[QLearn")
    assert capsys.readouterr().out == 'Parameterized Q-learning agent using neural networks "dqn" with 2 actions.\n\n'


def test_agents_say_what_they_are_and_what_they_did(tmp_path, capsys):
    infos = [make(tmp_path, f"[General]\nAgent = {kind}\n").start([0.0])[1]
             for kind in ("tabular_qlearning", "random", "actor_critic")]
    assert infos[0].keys() == {"action_behavior", "epsilon"} and infos[1:] == [{}, {}]
    assert capsys.readouterr().out.split("\n") == [
        "Initialized discrete Q-learning agent with 10 states and 2 actions.",
        "Initialized random agent with 2 actions.",
        'Parameterized the agent\'s policy using neural networks "nn" with 2 actions.', "",
        'Parameterized the agent\'s value function using neural network "nn".', "", "",
    ]


def test_an_unknown_agent_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"agent.cfg: Agent is qlearning, .* or random, not 'clever'"):
        make(tmp_path, "[General]\nAgent = clever\n")
    with pytest.raises(ValueError, match="'undefined.thing' is no path"):
        make(tmp_path, "[General]\nAgent = qlearning\nPreProcessing = undefined.thing\n")


def test_transitions_are_sampled_by_priority():
    memory = ReplayMemory(5, prioritized=True)
    for state, priority in enumerate([1, 0.5, 4, 2, 0.25, 3, 1]):
        memory.store(state, 0, 0, None, priority)
    drawn = [t.state for _ in range(400) for _, t in memory.sample_minibatch(10)]
    chances = np.bincount(drawn, minlength=7) / len(drawn)
    np.testing.assert_allclose(chances, np.array([0, 0, 4, 2, 0.25, 3, 1]) / 10.25, atol=0.02)


def test_dueling_networks_add_advantages_over_their_mean():
    network = Models.dueling_network((3,), 2, model_hidden_layers="[4, [3], [None]]")
    assert sorted(p.shape for p in network["f"].parameters) == [(1,), (2,), (3,), (3, 1), (3, 4), (4,), (4, 2), (4, 3)]


def test_frames_are_gray_and_resized():
    frames = AtariPreprocessing((210, 160, 3), 2)
    image = np.zeros((210, 160, 3), np.uint8)
    image[:] = np.arange(210)[:, None, None]
    assert frames.preprocess(image)[1, [0, 1, 40, 83], 0].tolist() == [1, 3, 101, 208]  # as on CNTK 2.7
    assert SlidingWindow((2,), 3, "float32").output_shape() == (3, 2)
