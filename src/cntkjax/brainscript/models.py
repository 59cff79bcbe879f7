"""Networks in model files.

A file has the graph, and beside it, as a custom attribute of its first root, what CNTK's first format holds and the
second does not: the roles of nodes, and CNTK's names of their operations.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..axis import Axis
from ..configuration.source import local_path
from ..formats import v1_file
from ..graph.function import nodes
from ..misc.converter import unfolded
from ..ops import combine, input_variable
from ..ops.functions import Function
from ..sgd import ConfigError
from ..variables import Variable
from .network import ROLES, Network

_ATTRIBUTE = "cntkNetwork"
_KEPT = ("roles", "operations", "inputs", "rates", "statistics", "traces")
_LOSSES = ("CrossEntropyWithSoftmax", "SquaredError", "Logistic", "BinaryCrossEntropy", "SequenceWithSoftmax",
           "ForwardBackward", "CosineDistance", "NCE", "NceLoss")
_FROZEN = "BatchNormalization"  # in constant clones
_METRICS = ("ClassificationError", "EditDistanceError", "NDCG")


def function_of(network: Network) -> Function:
    """All nodes of a network as a function, which can be saved: inputs and parameters without a use, too.

    Errors: ConfigError if none computes something.
    """
    owners: list[Any] = [v.owner.root_function for v in network.nodes.values() if v.is_output]
    used = {id(v) for node in nodes(owners) for v in node.node_inputs}
    roots: list[Any] = []
    reached: set[int] = set()
    outputs = [v for v in network.nodes.values() if v.is_output]
    for v in sorted(outputs, key=lambda v: id(v) in used):  # loops that only they use are not reached by the others
        if id(v.owner.root_function) not in reached:
            roots.append(v)
            reached.update(map(id, nodes([v.owner.root_function])))
    if not roots:
        raise ConfigError("the network has no nodes that compute something: a model needs one")
    roots[0].owner.custom_attributes = {_ATTRIBUTE: json.dumps({name: getattr(network, name) for name in _KEPT})}
    return combine([*roots, *(v for v in network.nodes.values() if not v.is_output and id(v) not in used)])


def load_network(path: str) -> Network:
    """The network in a model file. Errors: ConfigError if there is none; FormatError if it is damaged."""
    path = local_path(path)
    if not Path(path).is_file():
        folder = Path(path).parent
        others = sorted(os.listdir(folder))[:8] if folder.is_dir() else []
        hint = f"; in {folder} there are {', '.join(others)}" if others else "; train it first, or give modelPath"
        raise ConfigError(f"there is no model {path}{hint}")
    network = network_in(_with_default_axis(Function.load(path)))
    if (file := v1_file.network_in(path)) is not None:  # which has roles, and operations and inputs as in CNTK 1
        network.operations |= {name: node.op for name, node in file.nodes.items() if name in network.nodes}
        network.inputs |= {name: node.inputs for name, node in file.nodes.items()
                           if sorted(node.inputs) == sorted(network.inputs.get(name, ()))}
        network.roles = {role: [name for name in file.roles.get(role, ()) if name in network.nodes] for role in ROLES}
    return network


def _with_default_axis(function: Function) -> Function:
    """The model with inputs that have the default sequence axis where CNTK 1 named none, so that they meet new ones."""
    axes = [Axis.default_batch_axis(), Axis.default_dynamic_axis()]
    unnamed = {
        v: input_variable(v.shape, v.dtype, v.needs_gradient, v.is_sparse, dynamic_axes=axes, name=v.name)
        for v in function.arguments if any(axis.name == "" for axis in v.dynamic_axes)
    }
    return function.clone("share", unnamed) if unnamed else function


def network_in(function: Function) -> Network:
    """The network of a model: with the roles that it was saved with, or those that follow from its operations."""
    if (kept := _kept(function)) is None:  # layers of Python are blocks
        function = unfolded(function, lambda node: len(node.outputs) > 1 if node.is_block else node.op_name == _FROZEN)
        return _as_saved(_named(function), function)
    variables = _named(function)
    names = [name for name in kept["operations"] if name in variables]
    roles = {role: [name for name in kept["roles"].get(role, ()) if name in variables] for role in ROLES}
    network = Network({name: variables[name] for name in names}, roles, kept["operations"], kept["inputs"])
    network.rates, network.traces = kept["rates"], kept.get("traces", {})
    network.statistics = {name: (kind, of) for name, (kind, of) in kept.get("statistics", {}).items()}
    return network


def _kept(function: Function) -> Any:
    """What a file has beside the graph, which is taken off it; None for those of others."""
    for node in nodes([function.root_function]):
        public: Any = node
        if text := public.custom_attributes.get(_ATTRIBUTE):
            public.custom_attributes = {k: v for k, v in public.custom_attributes.items() if k != _ATTRIBUTE}
            return json.loads(text)
    return None


def _named(function: Function) -> dict[str, Variable]:
    """The variables by their names; those without a name of their own by their uids, as CNTK does."""
    by_name: dict[str, Variable] = {}
    for node in nodes([function.root_function]):
        variables: list[Any] = [*(node.outputs if node.op_name != "Combine" else ()), *_operands(node)]
        for variable in variables:
            name = variable.name or variable.uid
            by_name[name if by_name.get(name, variable) is variable else variable.uid] = variable
    return by_name


def _operands(node: Any) -> list[Any]:
    """The inputs of a node; the initial state of a delay is none, where it is a number."""
    is_delay = node.op_name in ("PastValue", "FutureValue")
    return [each for each in node.node_inputs if not (is_delay and each.is_constant and not each.name)]


def _as_saved(found: dict[str, Variable], function: Function) -> Network:
    """The network of a model that another program has saved."""
    names = {id(variable): name for name, variable in found.items()}
    inputs = {name: [names[id(each)] for each in _operands(variable.owner.root_function)]
              for name, variable in found.items() if variable.is_output}
    operations = {name: kind_of(variable) for name, variable in found.items()}
    return Network(found, _guessed(function), operations, inputs)


def kind_of(variable: Variable) -> str:
    """CNTK's name of what computes a variable."""
    if variable.is_output:
        return str(variable.owner.op_name)
    return f"{'Sparse' * variable.is_sparse}InputValue" if variable.is_input else "LearnableParameter"


def _guessed(function: Function) -> dict[str, list[str]]:
    """Roles by operations: losses, metrics; the other outputs of the model are its outputs."""
    roles: dict[str, list[str]] = {role: [] for role in ROLES}
    outputs: list[Any] = [*function.outputs]
    for output in outputs:
        operation = output.owner.op_name
        role = "criterion" if operation in _LOSSES else "evaluation" if operation in _METRICS else "output"
        roles[role].append(output.name or output.owner.name)
    is_trained = roles["criterion"] or roles["evaluation"]
    roles["label"] = [v.name for v in function.arguments if is_trained and v.name.lower().startswith("label")]
    roles["feature"] = [v.name for v in function.arguments if v.name not in roles["label"]]
    return roles


__all__ = ["function_of", "kind_of", "load_network", "network_in"]
