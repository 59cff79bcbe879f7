"""Settings of policy gradients."""

from __future__ import annotations

from .settings import GENERAL, OPTIMIZATION, Settings


class PolicyGradientParameters(Settings):
    """Networks, updates and optimization, from a file; see `table` for sections, options and defaults.

    >>> PolicyGradientParameters("").update_frequency
    64
    """

    table = GENERAL | OPTIMIZATION | {
        "shared_representation": ("PolicyGradient", "SharedRepresentation", False),
        "policy_representation": ("PolicyGradient", "PolicyRepresentation", "nn"),
        "value_function_representation": ("PolicyGradient", "ValueFunctionRepresentation", "nn"),
        "relative_step_size": ("PolicyGradient", "RelativeStepSize", 0.5),
        "regularization_weight": ("PolicyGradient", "RegularizationWeight", 0.001),
        "initial_policy_network": ("PolicyGradient", "InitialPolicy", ""),
        "update_frequency": ("PolicyGradient", "UpdateFrequency", 64),
        "policy_network_hidden_layers": ("NetworkModel", "PolicyNetworkHiddenLayerNodes", "[10]"),
        "value_network_hidden_layers": ("NetworkModel", "ValueNetworkHiddenLayerNodes", "[10]"),
    }
