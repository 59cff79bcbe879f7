"""Networks that exist already, in descriptions: loading, editing, and functions that clone parts of networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..models import kind_of, load_network
from ..nodes import NetNode, reachable, replaced
from .values import Applied, Builtin, Fields, LoadedNetwork, Thunk

PARAMETERS = ("learnable", "constant", "shared")


def editing_functions() -> list[Builtin]:
    """The functions of BS.Network."""
    return [Builtin("Load", _load), Builtin("Edit", _edit), Builtin("CloneFunction", _clone_function)]


def loaded(path: str, failed: Callable[[str], Exception]) -> LoadedNetwork:
    """The network of a file as nodes of a description. Errors: that of `failed` if it cannot be read."""
    try:
        network = load_network(path)
    except (ValueError, OSError) as error:
        raise failed(str(error)) from error
    nodes = {
        name: NetNode(network.operations.get(name, kind_of(variable)), name, [], {}, variable=variable)
        for name, variable in network.nodes.items()
    }
    for name, node in nodes.items():
        node.inputs = [nodes[each] for each in network.inputs.get(name, ()) if each in nodes]
        node.originals = list(node.inputs)
        if name in network.rates:
            node.options["learningRateMultiplier"] = network.rates[name]
        if name in network.statistics:
            node.options["awaitsData"] = True
    return LoadedNetwork(nodes, network.roles)


def _load(call: Applied) -> LoadedNetwork:
    (path,) = call.values()
    call.evaluator.expect(str, path, call.place, "the name of a model's file")
    return loaded(path, call.error)


def _edit(call: Applied) -> LoadedNetwork:
    """``Edit (network, functions, additionalRoots)``: offer each node to functions, which may return another one."""
    model, functions, roots = call.values()
    call.evaluator.expect(LoadedNetwork, model, call.place, "a network, as of BS.Network.Load,")
    further = [each for each in call.evaluator.elements(roots) if isinstance(each, NetNode)]
    replacements: dict[int, NetNode] = {}
    for name, node in model.nodes.items():
        new = node
        for function in call.evaluator.elements(functions):
            new = call.evaluator.apply(function, [Thunk(None, None, name, new)], {}, name, call.place)
            call.evaluator.expect(NetNode, new, call.place, "an edit function that returns a node")
        if new is not node:
            replacements[id(node)] = new
    copies = replaced(model.nodes.values(), replacements, lambda name: name)
    _connect(model, {**replacements, **{id(node): node for node in further}}, copies)
    nodes = {node.name: node for node in further}
    for name, node in model.nodes.items():
        new = copies.get(id(node), node)
        nodes |= {new.name: new} if new.name == name else {name: node, new.name: new}
    return LoadedNetwork(nodes, model.roles)


def _connect(model: LoadedNetwork, new: dict[int, NetNode], copies: dict[int, NetNode]) -> None:
    """Let new nodes, which were made from those of the model, depend on the edited model.

    `new`: by the nodes that they replace. A new node goes on depending on the node that it replaces.
    """
    old = {id(node) for node in model.nodes.values()}
    keeps: dict[int, tuple[NetNode, set[int]]] = {}
    for key, node in new.items():
        for each in reachable([node], old):
            keeps.setdefault(id(each), (each, set()))[1].add(key)
    for node, kept in keeps.values():
        node.inputs = [each if id(each) in kept else copies.get(id(each), each) for each in node.operands()]


def _clone_function(call: Applied) -> Builtin:
    """``CloneFunction (inputs, outputs, parameters)``: a function that makes copies of a part of a network."""
    inputs, outputs, mode = call.values()
    if mode not in PARAMETERS:
        raise call.error(f"parameters is one of {', '.join(map(repr, PARAMETERS))}, not {mode!r}")
    nodes = call.evaluator.elements(inputs)
    for node in nodes:
        call.evaluator.expect(NetNode, node, call.place, "nodes as the inputs of CloneFunction")
    members = _members(call, outputs)

    def clone(inner: Applied) -> Any:
        operands = inner.values()
        for each in operands:
            inner.evaluator.expect(NetNode, each, inner.place, "a node of the network")
        if len(operands) != len(nodes):
            raise inner.error(f"the cloned function has {len(nodes)} arguments, {len(operands)} are given")
        replacements = {id(node): new for node, new in zip(nodes, operands, strict=True)}
        if mode != "shared":
            replacements |= _parameters(members.values(), replacements, mode, inner.path)
        copies = replaced(members.values(), replacements, lambda name: f"{inner.path}.{name}" if inner.path else name)
        for node in copies.values() if mode == "constant" else ():  # Microsoft's page How do I adapt models
            if node.operation == "BatchNormalization" and node.variable is not None and node not in operands:
                node.options = node.options | {"frozen": True}
        results = {name: copies.get(id(node), node) for name, node in members.items()}
        return _result(inner, outputs, results)

    return Builtin("CloneFunction", clone)


def _members(call: Applied, outputs: Any) -> dict[str, NetNode]:
    """The outputs by name; "" for a single one."""
    if isinstance(outputs, Fields):
        values = {name: call.evaluator.force(thunk) for name, thunk in outputs.members.items()}
    else:
        values = {"": outputs}
    for value in values.values():
        what = "a node, or a record of nodes, as the outputs of CloneFunction"
        call.evaluator.expect(NetNode, value, call.place, what)
    return values


def _parameters(outputs: Any, replacements: dict[int, NetNode], mode: str, path: str) -> dict[int, NetNode]:
    """Copies of the parameters that the cloned part has, all of them constant or as they were."""
    constant = True if mode == "constant" else None
    return {
        id(node): copied_leaf(node, f"{path}.{node.name}" if path else node.name, constant)
        for node in reachable(outputs) if node.operation == "LearnableParameter" and id(node) not in replacements
    }


def copied_leaf(node: NetNode, name: str, constant: bool | None = None) -> NetNode:
    """An input or parameter like another one; `constant`: whether it never learns (None: like the other one)."""
    options = dict(node.options) | ({} if node.variable is None else {"copied": node.variable})
    if "copied" in options:
        options["constant"] = options.get("constant") if constant is None else constant
    elif constant is not None:
        options["learningRateMultiplier"] = 0.0 if constant else options.get("learningRateMultiplier", 1.0) or 1.0
    return NetNode(node.operation, name, [], options, node.place, node.chain)


def learns(node: NetNode) -> bool:
    """Whether a parameter is learned."""
    if "copied" in node.options and node.options["constant"] is not None:
        return not node.options["constant"]
    variable = node.options.get("copied", node.variable)
    return node.options.get("learningRateMultiplier", 1.0) != 0 if variable is None else not variable.is_constant


def _result(call: Applied, outputs: Any, results: dict[str, NetNode]) -> Any:
    """A node, or a record with the same names as the outputs."""
    if not isinstance(outputs, Fields):
        return results[""]
    record = Fields(None, call.path)
    record.members = {name: Thunk(None, None, name, node) for name, node in results.items()}
    return record


__all__ = ["copied_leaf", "editing_functions", "learns", "loaded"]
