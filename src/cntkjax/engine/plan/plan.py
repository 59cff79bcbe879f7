"""Plans: a graph prepared for lowering, with blocks opened, loops found, and everything in the order of computation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...graph.axis import Axis
from ...graph.build import edits, infer_all
from ...graph.errors import explain
from ...graph.function import Node
from ...graph.shape import FREE, INFERRED, is_unknown
from ...graph.variable import Edge, Leaf, producer
from .components import parts_of
from .early_exit import fuse_early_exit
from .indices import Indices, indices_of
from .padding import Mask, masks
from .partition import Stage, partition
from .parts import Loop, Part, nodes_of, outputs_of, resolve
from .side_by_side import side_by_side
from .structure import describing, node_structure


class Plan:
    """What is computed for some outputs, in order.

    `leaves`, `arguments` and `random` (nodes that draw random numbers) are in order of appearance. Graphs of the same
    structure have equal `key`s and share one compiled program, which takes their leaves in this order. Variables that
    are `known` are arguments, although they could be computed.

    Errors: ValueError if a placeholder has not been replaced, if a shape is not known, or for a cycle without a delay;
            AxisError for a loop along different sequence axes.
    """

    def __init__(self, outputs: Sequence[Edge], known: Sequence[Edge] = ()) -> None:
        self.requested = tuple(outputs)  # kept alive, so that no other variable gets one of their ids
        self.outputs = [resolve(v) for v in outputs]
        self.known = frozenset(known)
        roots = [node for v in self.outputs if (node := producer(v)) is not None and v not in self.known]
        parts = parts_of(roots, self._operand_nodes)
        self.nodes = [node for part in parts for node in nodes_of(part)]
        sources = dict.fromkeys(
            v for v in [*(resolve(i) for n in self.nodes for i in n.node_inputs), *self.outputs]
            if producer(v) is None or v in self.known
        )
        self.leaves: list[Leaf] = [v for v in sources if isinstance(v, Leaf)]
        self.arguments = [v for v in sources if not isinstance(v, Leaf)]
        self.random = [n for n in self.nodes if "rngSeed" in n.node_attributes]
        self.edits = edits()
        self.checked_values: dict[int, object] = {}  # of constants among the `indices`, by their place
        self.programs: dict[Hashable, object] = {}  # those that run it, which are kept as long as the plan
        self.direct: Any = None  # how it is evaluated without them: see run/direct.py
        self._check(outputs)
        self.parts = fuse_early_exit(parts, self.outputs)
        for part in dict.fromkeys([*parts, *self.parts]):  # a fused loop may run part by part
            if isinstance(part, Loop):
                part.outputs = self._used_outside(part)

    def _operand_nodes(self, node: Node) -> Iterator[Node]:
        for v in map(resolve, node.node_inputs):
            if (owner := producer(v)) is not None and v not in self.known:
                yield owner

    def _used_outside(self, loop: Loop) -> list[Edge]:
        inside = set(nodes_of(loop))
        used = {resolve(v) for n in self.nodes if n not in inside for v in n.node_inputs} | set(self.outputs)
        return [v for n in nodes_of(loop) for v in n.node_outputs if v in used]

    def _check(self, outputs: Sequence[Edge]) -> None:
        check_no_placeholders(self.arguments)
        computed = [v for node in self.nodes for v in node.node_outputs]
        from_data = any(INFERRED in v.shape for v in self.arguments)  # their inferred dimensions come with the data
        if not from_data and any(INFERRED in v.shape for v in computed):
            infer_all([node for v in outputs if (node := producer(v)) is not None])  # an input has got its size since
        for v in computed:
            if is_unknown(v.shape) or (INFERRED in v.shape and not from_data):
                raise ValueError(explain(
                    f"the shape of {v!r} is not known", {"node": v},
                    "declare the shapes of the inputs that it is computed from",
                ))

    # ---- leaves
    @cached_property
    def gathered_leaves(self) -> frozenset[Leaf]:
        """Leaves of which only rows are used: right operands of products with sparse data, and of nothing else."""
        return frozenset(self.weights_of(
            lambda node: node.primitive.gathers_rows(node) and _is_sparse(resolve(node.node_inputs[0]))
        ))

    def weights_of(
        self, matches: Callable[[Node], bool], ignores: Callable[[Node], bool] = lambda node: False
    ) -> dict[Leaf, list[Node]]:
        """Leaves used only as second operands of matching nodes outside of loops, each with these nodes.

        `ignores` says which other nodes may use them as well.
        """
        weights: dict[Leaf, list[Node]] = {}
        used_elsewhere: set[Edge] = {*self.outputs, *self.assigned}
        inside = {n for part in self.parts if isinstance(part, Loop) for n in nodes_of(part)}
        for node in self.nodes:
            for place, v in enumerate(map(resolve, node.node_inputs)):
                if isinstance(v, Leaf) and place == 1 and node not in inside and matches(node):
                    weights.setdefault(v, []).append(node)
                elif not ignores(node):
                    used_elsewhere.add(v)
        return {v: nodes for v, nodes in weights.items() if v not in used_elsewhere}

    @cached_property
    def assigned(self) -> frozenset[Edge]:
        """Parameters and constants that nodes of the plan write."""
        return frozenset(resolve(n.node_inputs[0]) for n in self.nodes if n.primitive.assigns_operand)

    # ---- sequences
    @cached_property
    def delays(self) -> list[Node]:
        """Nodes that look back, where a sequence is cut into the minibatch before."""
        return [n for n in self.nodes if n.primitive.delay < 0]

    @cached_property
    def loop_axes(self) -> frozenset[Axis]:
        """Sequence axes along which there are loops."""
        return frozenset(part.axis for part in self.parts if isinstance(part, Loop))

    @cached_property
    def nodes_backwards(self) -> frozenset[Node]:
        """Nodes in loops from the last step to the first."""
        return frozenset(n for part in self.parts if isinstance(part, Loop) and part.reverse for n in nodes_of(part))

    @cached_property
    def groups(self) -> list[list[Part]]:
        """The parts in an order in which loops that can run side by side follow one another (`side_by_side`)."""
        return side_by_side(self.parts)

    @cached_property
    def looped_nodes(self) -> int:
        """The number of nodes in all loops, where those side by side count once."""
        return sum(len(group[0].nodes) for group in self.groups if isinstance(group[0], Loop))

    @cached_property
    def equal_lengths(self) -> list[tuple[Edge, Edge]]:
        """Pairs of variables along different axes whose sequences must have equal lengths, as far as these are fed."""
        return self._pairs_on_different_axes("fed")

    @cached_property
    def computed_equal_lengths(self) -> list[tuple[Edge, Edge]]:
        """The same, as far as only the program knows the lengths."""
        return [*self._pairs_on_different_axes("computed"), *(pair for n in self.nodes for pair in _of_one_name(n))]

    def _pairs_on_different_axes(self, lengths: Literal["fed", "computed"]) -> list[tuple[Edge, Edge]]:
        nodes = [n for n in self.nodes if n.primitive.equal_lengths == lengths and len(n.node_inputs) > 1]
        pairs = [[resolve(v) for v in n.node_inputs[:2]] for n in nodes]
        return [(a, b) for a, b in pairs if a.sequence_axis and b.sequence_axis and a.sequence_axis != b.sequence_axis]

    @cached_property
    def packed_arrays(self) -> list[tuple[Edge, Edge]]:
        """Arrays whose first axis becomes the steps of sequences, each with what says how long these are."""
        nodes = [[resolve(v) for v in n.node_inputs] for n in self.nodes if n.primitive.packs_sequences]
        return [(array, lengths) for array, *others in nodes for lengths in others]

    @cached_property
    def unpacks_sequences(self) -> bool:
        """True if sequences become arrays: each then needs a row of its own."""
        return any(n.primitive.unpacks_sequences for n in self.nodes)

    @cached_property
    def unpacked_axes(self) -> frozenset[Axis]:
        """Axes of arguments whose sequences become arrays; all of them if computed sequences do."""
        axes = {resolve(n.node_inputs[0]).sequence_axis for n in self.nodes if n.primitive.unpacks_sequences}
        fed = frozenset(v.sequence_axis for v in self.arguments if v.sequence_axis is not None)
        return fed & axes if fed >= axes else fed

    @cached_property
    def masks(self) -> dict[Node, Mask] | None:
        """With which masks no output depends on how long these arrays are padded; None if one does all the same."""
        return masks([(n, [resolve(v) for v in n.node_inputs]) for n in self.nodes], self.outputs)

    @cached_property
    def depends_on_longest(self) -> bool:
        """True if an output may depend on how long the longest sequence of the minibatch is."""
        return self.unpacks_sequences and self.masks != {}

    # ---- indices
    @cached_property
    def indices(self) -> list[Indices]:
        """Indices that are fed, or constants."""
        return indices_of(self.nodes, self.known)

    # ---- programs
    @cached_property
    def calls_python(self) -> bool:
        """True if it runs Python code of the user."""
        return any(n.primitive.calls_python for n in self.nodes)

    @cached_property
    def needs_exact_batch(self) -> bool:
        """True if the batch axis must not be padded."""
        return any(n.primitive.needs_exact_batch for n in self.nodes)

    @cached_property
    def makes_batch(self) -> bool:
        """True if a static axis becomes the batch axis, so that samples are not those that are fed."""
        return any(n.primitive.makes_batch for n in self.nodes)

    @cached_property
    def is_divisible(self) -> bool:
        """True if each value of a sample is computed from that sample or its sequence alone, but for normalization.

        A minibatch may then be divided between devices.
        """
        return not (self.calls_python or self.assigned or self.computed_equal_lengths or self.mixes_samples)

    @cached_property
    def mixes_samples(self) -> bool:
        """True if a value may be computed from several samples or sequences, or from their places in a minibatch."""
        return self.needs_exact_batch or self.makes_batch or any(map(_mixes_samples, self.nodes))

    @cached_property
    def is_of_samples(self) -> bool:
        """True for dense samples in and out, each computed by itself, without indices that are checked before."""
        return self.is_divisible and not self.indices and all(
            v.dynamic_axes and v.sequence_axis is None and not v.is_sparse for v in (*self.arguments, *self.outputs)
        ) and all(producer(v) is not None for v in self.outputs) and not any(
            node.primitive.makes_sparse(node.node_attributes) for node in self.nodes
        )

    @cached_property
    def only_computes(self) -> bool:
        """True if an evaluation writes nothing but random streams, calls no user code, and checks sizes only."""
        checks = self.computed_equal_lengths or self.packed_arrays or self.indices
        return not (self.calls_python or self.assigned or checks)

    @cached_property
    def stages(self) -> list[Stage]:
        """Its partition for an evaluation with several batch sizes."""
        return partition(self.parts, self.outputs)

    @property
    def free_dimension_sizes(self) -> Hashable:
        """The sizes of free dimensions that functions of the user returned last; other sizes need another program."""
        return tuple(n.primitive.free_dimension_sizes() for n in self.nodes if n.primitive.calls_python)

    @cached_property
    def free_results(self) -> list[Edge]:
        """What functions of the user return with free dimensions; of those in loops, what the loops return."""
        return [v for part in self.parts if any(map(_decides_on_sizes, nodes_of(part))) for v in outputs_of(part)]

    @property
    def has_unknown_sizes(self) -> bool:
        """True if a function of the user has not said yet which sizes its free dimensions have."""
        return any(_decides_on_sizes(n) and not n.primitive.free_dimension_sizes() for n in self.nodes)

    @cached_property
    def is_double(self) -> bool:
        """True if any value is double precision."""
        variables = (*self.leaves, *self.arguments, *(v for n in self.nodes for v in n.node_outputs))
        return any(v.dtype is np.float64 for v in variables)

    @cached_property
    def key(self) -> Hashable:
        """Its structure when this was first asked for."""
        return self.structure()

    def structure(self) -> Hashable:
        """What is equal for graphs that compute the same from their leaves and arguments; edits may change it.

        Errors: KeyError if an edit has connected a node to one that is not in the plan.
        """
        number: dict[Edge, Hashable] = {}
        describe = describing()
        for kind, sources in (("leaf", self.leaves), ("argument", self.arguments)):
            number.update({v: (kind, i) for i, v in enumerate(sources)})
        number.update({v: (i, k) for i, n in enumerate(self.nodes) for k, v in enumerate(n.node_outputs)})
        return (
            tuple(describe(v) for v in (*self.leaves, *self.arguments)),
            tuple(node_structure(n, number, describe) for n in self.nodes),
            tuple(number[v] for v in self.outputs),
            # Which depends on the values of constants.
            None if self.masks is None else tuple((number[n.node_outputs[0]], m.value) for n, m in self.masks.items()),
        )


def check_no_placeholders(variables: Iterable[Edge]) -> None:
    """ValueError for a placeholder."""
    for v in variables:
        if v.is_placeholder:
            raise ValueError(explain(
                f"placeholder {v.name or v.uid!r} has not been replaced, so there is nothing to compute from",
                {"here": v}, "call the function with an argument, or use replace_placeholders",
            ))


def _decides_on_sizes(node: Node) -> bool:
    return node.primitive.calls_python and any(FREE in v.shape for v in node.node_outputs)


def _of_one_name(node: Node) -> Iterator[tuple[Edge, Edge]]:
    """Pairs of operands that are combined step by step since their axes have the same name; the first one's is kept."""
    operands = [v for v in map(resolve, node.node_inputs) if v.sequence_axis]
    axis = operands[0].sequence_axis if operands else None
    if axis is not None and node.node_outputs[0].sequence_axis in (axis, None):
        for v in operands[1:]:
            assert v.sequence_axis is not None
            if v.sequence_axis != axis and v.sequence_axis.name == axis.name:
                yield operands[0], v


def _mixes_samples(node: Node) -> bool:
    if node.primitive.mixes_samples:
        return True
    operands, results = (any(v.dynamic_axes for v in ends) for ends in (node.node_inputs, node.node_outputs))
    return operands and not results


def _is_sparse(v: Edge) -> bool:
    """True for sparse data, and for values that are computed as sparse samples."""
    node = producer(v)
    if v.is_sparse or node is None:
        return v.is_sparse
    return node.primitive.makes_sparse(node.node_attributes)
