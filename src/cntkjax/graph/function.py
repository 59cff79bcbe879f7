"""Functions: the nodes of a graph. A primitive computes, a block wraps a graph, a composite is a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from .._user_code import Place, user_place
from .errors import layer_title
from .uid import new_uid
from .variable import Edge, Leaf

Attributes = dict[str, Any]
CUSTOM = "customAttributes"  # the attribute that holds the user's own attributes

# CNTK stores the operands of these in the reverse order of its Python API, which shows in files and traversal orders.
REVERSED = frozenset({"Times", "TransposeTimes", "Gather", "GatherOp"})


class Node:
    """A node. Exactly one of three kinds:

    - primitive: `primitive` says what it computes from `node_inputs` with `node_attributes`;
    - block: `block_composite` is the wrapped graph, `block_map` its (placeholder, operand) pairs;
    - composite: `root` is the primitive or block whose outputs it has; it represents the whole graph below it.
    """

    public_name = "Function"  # in messages: users know its subclass

    def __init__(
        self,
        *,
        primitive: Any = None,
        inputs: Sequence[Edge] = (),
        attributes: Attributes | None = None,
        root: Node | None = None,
        name: str = "",
        uid: str | None = None,
    ) -> None:
        self._root = root
        self._name = name or ""
        self._made_by = ""  # name of the Python function that composed it, for messages
        self._origin: Place | None = user_place() if root is None else root._origin
        self._uid = uid or new_uid("CompositeFunction" if root is not None else primitive.name)
        if root is not None:  # no other attributes: users set their own on composites, and find nodes by name
            return
        self.primitive = primitive
        self.node_inputs: list[Edge] = list(inputs)
        self.node_attributes: Attributes = attributes or {}
        self._layer = ""  # if no block wraps it: the layer it is part of, for messages
        self.node_outputs: list[Edge] = []
        self.block_composite: Node | None = None
        self.block_map: list[tuple[Edge, Edge]] = []
        self.block_name = ""
        self.seedings = 0  # how often its seed of random numbers was set, for graph.streams
        self.rewrite_cache: tuple[int, Node | None] | None = None  # (edits, replacement), for engine.plan.rewrite

    @property
    def name(self) -> str:
        """The name given by the user, or ''."""
        return self._name

    @property
    def uid(self) -> str:
        """The unique name: the operation and a number."""
        return self._uid

    # ---- kind
    @property
    def is_composite(self) -> bool:
        """True if this represents a whole graph."""
        return self._root is not None

    @property
    def is_block(self) -> bool:
        """True if this wraps a graph."""
        return self._root is None and self.block_composite is not None

    @property
    def is_primitive(self) -> bool:
        """True for a node, of a primitive operation or a block; False for composites."""
        return self._root is None

    @property
    def root_function(self) -> Node:
        """The primitive or block at the root; of these themselves the node itself."""
        return self._root if self._root is not None else self

    @property
    def op_name(self) -> str:
        """CNTK's name of the operation."""
        if self.is_composite:
            return "CompositeFunctionOpName"
        return self.block_name if self.is_block else self.primitive.name

    # ---- edges
    @property
    def outputs(self) -> tuple[Edge, ...]:
        """Output variables."""
        return tuple(self.root_function.node_outputs)

    @property
    def inputs(self) -> tuple[Edge, ...]:
        """Of a composite: the leaves in the order of traversal; of a node: its operands."""
        if self._root is None:
            return tuple(self.node_inputs)
        return tuple(dict.fromkeys(leaves(self._root)))

    def _of_kind(self, *kinds: str) -> tuple[Any, ...]:
        return tuple(v for v in self.inputs if v._kind.name in kinds)

    @property
    def arguments(self) -> tuple[Edge, ...]:
        """Inputs and placeholders, in order of appearance; of a node also computed operands, each once."""
        if self._root is not None:
            return self._of_kind("Input", "Placeholder")
        return tuple(dict.fromkeys(self._of_kind("Input", "Placeholder", "Output")))

    @property
    def placeholders(self) -> tuple[Edge, ...]:
        """Placeholders that have not been replaced yet."""
        return self._of_kind("Placeholder")

    @property
    def parameters(self) -> tuple[Leaf, ...]:
        """Parameters, in the order of CNTK's traversal (see `REVERSED`)."""
        return self._leaves_of_kind("Parameter")

    @property
    def constants(self) -> tuple[Leaf, ...]:
        """Constants, in the order of CNTK's traversal."""
        return self._leaves_of_kind("Constant")

    def _leaves_of_kind(self, kind: str) -> tuple[Any, ...]:
        variables = leaves(self._root, native_inputs) if self._root is not None else native_inputs(self)
        return tuple(v for v in dict.fromkeys(variables) if v._kind.name == kind)


def copied_attributes(node: Node) -> Attributes:
    """The attributes for a copy of a node; custom attributes are copied too."""
    return {k: dict(v) if k == CUSTOM else v for k, v in node.node_attributes.items()}


def set_uid(node: Node, uid: str) -> None:
    """Set the id that a node has in a file."""
    node._uid = uid


def mark_layer(function: Node, made_by: str) -> None:
    """Record for messages which layer a function is, also on those nodes that are part of no layer inside it."""
    function._made_by = made_by
    for node in nodes([function.root_function]):
        node._layer = node._layer or layer_title(made_by, function._name)


def native_inputs(node: Node) -> list[Edge]:
    """The operands in CNTK's own order."""
    return node.node_inputs[::-1] if node.op_name in REVERSED else node.node_inputs


def leaves(
    root: Node, inputs: Callable[[Node], list[Edge]] = attrgetter("node_inputs")
) -> Iterator[Edge]:
    """Leaf variables below a node, depth first in the order of the inputs; blocks are not entered.

    Those of a combination begin with the leaves that it combines.
    """
    def operands(node: Node) -> Iterator[Edge]:
        found = inputs(node)
        return iter(sorted(found, key=_is_computed) if node.primitive.passes_through else found)

    seen: set[Node] = {root}
    stack = [operands(root)]
    while stack:
        for variable in stack[-1]:
            owner = variable._owner
            if owner is None:
                yield variable
            elif owner not in seen:
                seen.add(owner)
                stack.append(operands(owner))
                break
        else:
            stack.pop()


def _is_computed(v: Edge) -> bool:
    return v._owner is not None


def nodes(
    roots: Sequence[Node], into_blocks: bool = False, cut: Container[Edge] = frozenset(),
    inputs: Callable[[Node], Iterable[Edge]] = attrgetter("node_inputs"),
) -> list[Node]:
    """Primitives and blocks that the roots depend on, operands first (a cycle is cut at the first repeated node).

    With `into_blocks` the nodes inside blocks too, before the block itself. Variables in `cut` are not followed.
    `inputs` returns the operands of a node that are followed.
    """
    seen: set[Node] = set()
    order: list[Node] = []
    stack: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            stack.append((node, _owners(node, into_blocks, cut, inputs)))

    for root in roots:
        enter(root.root_function)
        while stack:
            node, owners = stack[-1]
            for owner in owners:
                if owner not in seen:
                    enter(owner)
                    break
            else:
                order.append(node)
                stack.pop()
    return order


def nodes_inside(block: Node) -> list[Node]:
    """The nodes inside a block, and inside the blocks in it, operands first; none for another node."""
    inner = block.block_composite
    return [] if inner is None else nodes([inner.root_function], into_blocks=True)


def _owners(
    node: Node, into_blocks: bool, cut: Container[Edge], inputs: Callable[[Node], Iterable[Edge]]
) -> Iterator[Node]:
    for variable in inputs(node):
        if variable._owner is not None and variable not in cut:
            yield variable._owner
    if into_blocks and node.block_composite is not None:
        yield node.block_composite.root_function

