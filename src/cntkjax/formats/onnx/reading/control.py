"""If with a known condition, and Loop with a known number of iterations, which is unrolled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .... import ops
from .checks import MAX_UNROLLED
from .table import OnnxNode, reads
from .values import FLOAT, Dim, OnnxTensor, Outputs

if TYPE_CHECKING:
    from onnx import GraphProto

    from .graph import GraphReader


@reads("If")
def _if(node: OnnxNode) -> Outputs:
    condition = _known_scalar(node.tensor(0))
    if condition is None:
        raise node.error("only conditions that do not depend on data can be read")
    graph = node.attribute("then_branch" if condition else "else_branch")
    if graph is None:
        raise node.error("the branch to be taken is missing")
    inner = node.reader.body(graph, {})
    return [inner.output(o.name) for o in graph.output]


def _known_scalar(tensor: OnnxTensor) -> int | bool | None:
    """The value of a condition or a count; None if the data determine it."""
    value = tensor.array if tensor.is_known else None
    if value is None or value.size != 1:
        return None
    scalar = value.reshape(()).item()
    return None if isinstance(scalar, Dim) else scalar


@dataclass
class _Loop:
    """The state between the iterations: `carried` values, and the values of each iteration so far."""

    node: OnnxNode
    graph: GraphProto
    carried: list[OnnxTensor]
    goes_on: bool
    steps: list[list[OnnxTensor]] = field(default_factory=list)

    def iterate(self, weights: GraphReader, i: int) -> None:
        """Read the body once more. `weights` knows its initializers, which all iterations share."""
        inner = weights.inside()
        values = [inner.constant(np.asarray(i, np.int64)), inner.constant(np.asarray(True)), *self.carried]
        inner.tensors |= {v.name: value for v, value in zip(self.graph.input, values, strict=True)}
        inner.nodes(self.graph.node)
        condition, *outputs = [inner.output(o.name) for o in self.graph.output]
        goes_on = _known_scalar(condition)
        if goes_on is None:
            raise self.node.error("a loop that ends when its data say so cannot be read: its condition has to be known")
        self.goes_on, self.carried = bool(goes_on), outputs[: len(self.carried)]
        self.steps.append(outputs[len(self.carried) :])


@reads("Loop")
def _loop(node: OnnxNode) -> Outputs:
    """Each iteration becomes nodes of its own; values that it collects are stacked."""
    graph = node.attribute("body")
    count = max(len(node) - 2, 0)
    if graph is None or len(graph.input) != count + 2 or len(graph.output) < count + 1:
        raise node.error("its body does not fit its operands")
    begins = _known_scalar(node.tensor(1)) if node.has(1) else True
    if begins is None:
        raise node.error("a loop that begins only if its data say so cannot be read: its condition has to be known")
    limit = _trip_count(node)
    loop = _Loop(node, graph, [node.tensor(2 + i) for i in range(count)], bool(begins))
    weights = node.reader.inside()
    weights.initializers(graph)
    i = 0
    while loop.goes_on and (limit is None or i < limit):
        weights.count_unrolled(len(graph.node), node.where)
        loop.iterate(weights, i)
        i += 1
    if not loop.steps and len(graph.output) > count + 1:
        raise node.error("it has no iterations, so that its collected outputs would be empty")
    return [*loop.carried, *(_stacked(node, list(values)) for values in zip(*loop.steps, strict=True))]


def _trip_count(node: OnnxNode) -> int | None:
    """The largest number of iterations; None if only the condition limits it."""
    if not node.has(0):
        return None
    count = _known_scalar(node.tensor(0))
    if count is None:
        raise node.error("the number of its iterations depends on data or the size of a free axis; it has to be known")
    if count > MAX_UNROLLED:
        raise node.error(f"{count} iterations; {MAX_UNROLLED} can be read")
    return int(count)


def _stacked(node: OnnxNode, values: list[OnnxTensor]) -> OnnxTensor:
    """The values of all iterations along a new first axis."""
    kind = values[0].kind
    arrays = [v.array if v.is_known else None for v in values]
    if kind != FLOAT and all(a is not None for a in arrays):
        return node.reader.constant(np.stack([a for a in arrays if a is not None]))
    steps = [ops.expand_dims(v.variable, -len(v.shape) - 1) for v in values]
    return OnnxTensor(kind, (ops.splice(*steps, axis=0) if len(steps) > 1 else steps[0]).output)
