"""From the nodes of a description to a network of variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..configuration import ConfigError
from ..default_options import default_options
from ..graph.variable import producer, rename
from ..variables import Variable
from .library.leaves import copied
from .library.package import PACKAGE
from .library.table import OPERATIONS, shape
from .network import ROLES, SUMS, Network
from .nodes import NetNode, changed, named, ordered, reachable

PRECOMPUTED = frozenset({"Mean", "InvStdDev"})
DTYPES = {"float": "float32", "double": "float64", "float16": "float16"}
_INPUTS = frozenset({"InputValue", "SparseInputValue"})
_LINEAR, _PRODUCTS = frozenset({"Plus", "Minus", "Negate", "Pass"}), frozenset({"ElementTimes", "DiagTimes", "Times"})
_NO_NUMBER = re.compile(r"invalid literal for int\(\) with base 10:|could not convert string to float:")


def is_delay(node: NetNode) -> bool:
    """Whether a node may close a loop."""
    return node.operation in OPERATIONS and OPERATIONS[node.operation].delays


class Builder:
    """Builds nodes, each once.

    `package`: the public package, or what records calls of it. `names`: whether variables get the names of the nodes.
    What is added to a model has its precision.
    """

    def __init__(self, package: Any = PACKAGE, precision: str = "float", names: bool = True) -> None:
        self.package = package
        self.precision = precision
        self.names = names
        self.built: dict[int, Any] = {}
        self.axes: dict[Any, Any] = {}
        self.criteria: set[int] = set()
        self.sequential: set[Any] = {""} if package.has_sequences else set()

    def build(self, nodes: Iterable[NetNode]) -> None:
        """Build nodes and what they depend on."""
        needed = [node for node in reachable(nodes) if node.operation != "DynamicAxis"]
        new = changed(needed, _single_samples(needed))
        fresh = {id(node) for node in new}
        self.built |= {id(node): node.variable for node in needed if id(node) not in fresh}
        components = ordered([node for node in new if id(node) not in self.built], is_delay)
        self._find_sequences(node for component in components for node in component)
        loops: dict[Any, NetNode] = {}
        of_model = next((node.variable.dtype for node in needed if node.variable is not None), None)
        with default_options(dtype=of_model or DTYPES[self.precision]):
            for component in components:
                for node in component:
                    if id(node) not in self.built:
                        self._build(node, loops, in_loop=len(component) > 1 or node in node.operands())
        self._close(loops)

    def _build(self, node: NetNode, loops: dict[Any, NetNode], in_loop: bool) -> None:
        """One node, whose operands are built; what a delay within a loop looks back at is not known yet."""
        operands = node.operands()
        if node.variable is None and (choose := getattr(OPERATIONS.get(node.operation), "operands", None)):
            operands = choose(operands)
        inputs = [self.built[id(each)] for each in operands if id(each) in self.built]
        if in_loop and is_delay(node):
            later = self.package.placeholder(**_known_shape(node.operands()[0]))
            loops[later] = node.operands()[0]
            inputs = [later, *(self.built[id(each)] for each in node.operands()[1:])]
        try:
            self.built[id(node)] = _variable(self._call(node, self._with_sums(node, operands, inputs)))
        except ConfigError:
            raise
        except (ValueError, TypeError, RuntimeError, LookupError, OSError, AttributeError, MemoryError) as error:
            raise node.error(_first_lines(error)) from error

    def _with_sums(self, node: NetNode, operands: list[NetNode], inputs: list[Any]) -> list[Any]:
        """The inputs; criteria, which are sums over the minibatch in CNTK, as such sums where that makes a difference.

        It makes none in sums of criteria, and in products with what has no samples: these are criteria of samples, too.
        """
        sums = [self._is_criterion(each) for each in operands]
        others = [each for each, is_sum in zip(inputs, sums, strict=False) if not is_sum]
        is_scaled = node.operation in _PRODUCTS and len(others) == 1 and not others[0].dynamic_axes
        if not any(sums) or is_scaled or (node.operation in _LINEAR and not others):
            self.criteria |= {id(node)} if any(sums) else set()
            return inputs
        return [
            self.package.reduce_sum(each, axis=self.package.Axis.all_axes()) if is_sum else each
            for each, is_sum in zip(inputs, sums, strict=True)
        ]

    def _is_criterion(self, node: NetNode) -> bool:
        """Whether a node has values of samples here, and their sum in CNTK."""
        built = self.built.get(id(node))
        return (node.operation in SUMS or id(node) in self.criteria) and built is not None and bool(built.dynamic_axes)

    def _call(self, node: NetNode, inputs: list[Any]) -> Any:
        name = node.name if self.names else ""
        if node.variable is not None:
            return self._cloned(node, inputs)
        options = dict(node.options)
        if "copied" in options:
            return copied(self.package, options["copied"], options["constant"], name)
        if node.operation in PRECOMPUTED:
            start = 0.0 if node.operation == "Mean" else 1.0
            return self.package.Constant(start, shape=inputs[0].shape, name=name)
        if node.operation in _INPUTS:
            options["axes"] = self._axes(options.pop("dynamicAxis", None))
        return OPERATIONS[node.operation].build(self.package, *inputs, name=name, **options)

    def _cloned(self, node: NetNode, inputs: list[Any]) -> Any:
        """A node of another network, with other inputs; a product with a 1 x 1 matrix was one of elements there."""
        if node.variable.is_input:
            return copied(self.package, node.variable, None, node.name if self.names else "", self._axes(None))
        if node.operation == "Times" and node.variable.owner.root_function.op_name == "ElementTimes":
            return OPERATIONS["Times"].build(self.package, *inputs, name=node.name if self.names else "")
        if node.options.get("frozen") and (function := node.variable.owner.root_function).op_name == node.operation:
            kept = {key: function.attributes[key] for key in ("spatial", "epsilon")}
            return OPERATIONS[node.operation].build(self.package, *inputs, frozen=True, name=node.name, **kept)
        before = [self._original(each) for each in node.originals]
        return node.variable.owner.clone("share", dict(zip(before, inputs, strict=True)))

    def _original(self, node: NetNode) -> Any:
        """The variable that a node was in the network that it comes from."""
        return node.variable if node.variable is not None else self.built[id(node)]

    def _axes(self, axis: Any) -> list[Any]:
        """The dynamic axes of an input: a sequence axis only where something needs sequences."""
        Axis = self.package.Axis
        key = id(axis) if isinstance(axis, NetNode) else axis or ""
        if key not in self.sequential:
            return [Axis.default_batch_axis()]
        if key not in self.axes:
            self.axes[key] = Axis.default_dynamic_axis() if key == "" else Axis(getattr(axis, "name", axis))
        return [Axis.default_batch_axis(), self.axes[key]]

    def _find_sequences(self, nodes: Iterable[NetNode]) -> None:
        """Which axes have sequences: named ones, and the default one if an operation on sequences depends on it."""
        for node in nodes:
            if node.operation in OPERATIONS and OPERATIONS[node.operation].sequences:
                self.sequential |= _axes_of(node)
            elif node.operation in _INPUTS and node.options.get("dynamicAxis"):
                axis = node.options["dynamicAxis"]
                self.sequential.add(id(axis) if isinstance(axis, NetNode) else axis)

    def _close(self, loops: dict[Any, NetNode]) -> None:
        """Connect delays with what they look back at, and infer everything that depends on them."""
        if loops:
            known = {later: self.built[id(node)] for later, node in loops.items()}
            functions = {each.owner: None for each in self.built.values() if each.is_output}
            try:
                self.package.connect(list(functions), known)
            except (ValueError, TypeError, RuntimeError) as error:
                raise next(iter(loops.values())).error(_first_lines(error)) from error


def _inputs_of(node: NetNode) -> list[NetNode]:
    """All inputs of the network that a node depends on."""
    return [each for each in reachable([node]) if each.operation in _INPUTS]


def _axes_of(node: NetNode) -> set[Any]:
    """The dynamic axes of all inputs that a node depends on."""
    axes = [each.options.get("dynamicAxis") for each in _inputs_of(node)]
    return {id(axis) if isinstance(axis, NetNode) else axis or "" for axis in axes}


def _single_samples(nodes: Sequence[NetNode]) -> set[NetNode]:
    """The inputs of a model for single samples, such as frames, if operations on sequences are added to it.

    In CNTK's networks all inputs are sequences; here those are that need to be (see `Builder`).
    """
    inputs = {node for node in nodes if node.variable is not None and node.variable.is_input}
    added = [node for node in nodes if node.variable is None and node.operation in OPERATIONS]
    is_changed = any(OPERATIONS[node.operation].sequences and inputs.intersection(_inputs_of(node)) for node in added)
    return inputs if is_changed and all(len(node.variable.dynamic_axes) == 1 for node in inputs) else set()


def _known_shape(node: NetNode) -> dict[str, Any]:
    """The shape of a node that a delay in a loop looks back at, if its description says it."""
    return {"shape": shape(node.options["resultShape"])} if "resultShape" in node.options else {}


def _variable(value: Any) -> Any:
    """The variable of a function with one output."""
    return value if isinstance(value, Variable) else value.output


def _first_lines(error: BaseException) -> str:
    message = _NO_NUMBER.sub("a number is expected, not", str(error).strip())
    return "\n  ".join(message.splitlines()[:12])


_package: ContextVar[Any] = ContextVar("package", default=PACKAGE)


@contextmanager
def recorded(recorder: Any) -> Iterator[None]:
    """Networks that are made meanwhile are made by calls of a recorder."""
    token = _package.set(recorder)
    try:
        yield
    finally:
        _package.reset(token)


def network_of(members: dict[str, NetNode], roles: dict[str, list[NetNode]], precision: str = "float") -> Network:
    """The network of nodes that are named directly, and of what they depend on."""
    for name, node in members.items():
        owner = re.split(r"[.\[]", node.name)[0]
        if owner == name or members.get(owner) is not node:  # another name of it does not count: log of Image/QuickE2E
            node.name = name
    nodes = named([*members.values(), *(node for nodes in roles.values() for node in nodes)])
    for node in nodes.values():
        if node.tag and node not in roles[node.tag]:
            roles[node.tag].append(node)
    builder = Builder(_package.get(), precision)
    builder.build(nodes.values())
    variables = {name: builder.built[id(node)] for name, node in nodes.items() if node.operation != "DynamicAxis"}
    network = Network(variables)
    network.roles = {role: [node.name for node in roles[role]] for role in ROLES}
    network.operations = {name: node.operation for name, node in nodes.items()}
    network.inputs = {name: [each.name for each in node.operands()] for name, node in nodes.items()}
    network.statistics = {
        name: (node.operation, node.operands()[0].name) for name, node in nodes.items()
        if node.operation in PRECOMPUTED and (node.variable is None or "awaitsData" in node.options)
    }
    network.traces = {name: node.options for name, node in nodes.items() if node.operation == "Trace"}
    learned = [name for name, variable in network.nodes.items() if variable.is_parameter]
    rates = {name: nodes[name].options.get("learningRateMultiplier", 1.0) for name in learned}
    network.rates = {name: float(rate) for name, rate in rates.items() if rate not in (0, 1)}
    for name, variable in network.nodes.items():
        if variable.name != name:
            rename(variable, name)
            if (function := producer(variable)) is not None:  # files have the names of functions
                rename(function, name)
    return network


__all__ = ["Builder", "network_of", "recorded"]
