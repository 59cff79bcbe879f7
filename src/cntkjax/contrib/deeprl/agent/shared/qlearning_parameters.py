"""Settings of Q-learning."""

from __future__ import annotations

import math

from .settings import GENERAL, OPTIMIZATION, Settings


class QLearningParameters(Settings):
    """Exploration, updates, memory and optimization, from a file; see `table` for sections, options and defaults.

    >>> QLearningParameters("").minibatch_size
    32
    """

    table = GENERAL | OPTIMIZATION | {
        "q_representation": ("QLearningAlgo", "QRepresentation", "tabular"),
        "initial_epsilon": ("QLearningAlgo", "InitialEpsilon", 0.1),
        "epsilon_decay_step_count": ("QLearningAlgo", "EpsilonDecayStepCount", 100000),
        "epsilon_minimum": ("QLearningAlgo", "EpsilonMinimum", 0.01),
        "initial_q": ("QLearningAlgo", "InitialQ", 0.0),
        "discretization_resolution": ("QLearningAlgo", "DiscretizationResolution", 10),
        "target_q_update_frequency": ("QLearningAlgo", "TargetQUpdateFrequency", 10000),
        "minibatch_size": ("QLearningAlgo", "MinibatchSize", 32),
        "replays_per_update": ("QLearningAlgo", "ReplaysPerUpdate", 1),
        "q_update_frequency": ("QLearningAlgo", "QUpdateFrequency", 4),
        "use_error_clipping": ("QLearningAlgo", "ErrorClipping", True),
        "double_q_learning": ("QLearningAlgo", "DoubleQLearning", False),
        "replay_memory_capacity": ("ExperienceReplay", "Capacity", 100000),
        "replay_start_size": ("ExperienceReplay", "StartSize", 5000),
        "use_prioritized_replay": ("ExperienceReplay", "Prioritized", False),
        "priority_alpha": ("ExperienceReplay", "PriorityAlpha", 0.7),
        "priority_beta": ("ExperienceReplay", "PriorityBeta", 0.5),
        "priority_epsilon": ("ExperienceReplay", "PriorityEpsilon", 0.01),
        "hidden_layers": ("NetworkModel", "HiddenLayerNodes", "[20]"),
        "gradient_clipping_threshold": ("Optimization", "GradientClippingThreshold", math.inf),
    }
