"""Operations that the Python API of CNTK 2 does not create, but that models of CNTK 1 (BrainScript) contain.

Source: CNTK 2.7 with such models. Criteria are sums over the minibatch, not values for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array
from ..engine.lower.values import Context, Traced
from ..engine.plan.padding import PaddedOperand
from ..graph.build import Spec
from ..graph.function import Node
from ..graph.variable import Edge
from .base import Attrs, DTypeOf, Primitive, String, primitive
from .elementwise import Elementwise
from .loss import WholeMinibatch
from .reduce import OverAllAxes, padding_of_softmax


@primitive("Sigmoid", 1)
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    def lower(self, attrs: Attrs, *samples: Array) -> Array:
        """Element by element."""
        return jax.nn.sigmoid(*samples)


@primitive("Pass", 56)
class Pass(Elementwise):
    """The operand."""

    def lower(self, attrs: Attrs, *samples: Array) -> Array:
        """The operand, unchanged."""
        return samples[0]


@primitive("EnvironmentInput", 1002)
class EnvironmentInput(Primitive):
    """1 in training, 0 elsewhere. CNTK 2 has no number for it, but reads it in files of CNTK 1.

    Errors: ValueError for another property than isTraining: CNTK 2.7 knows none of others that were tried.
    """

    attributes = {"propertyName": String, "newDataType": DTypeOf(np.float32)}
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar without dynamic axes."""
        if attrs["propertyName"] != "isTraining":
            raise ValueError(f"there is no environment property {attrs['propertyName']!r}; the only one is isTraining")
        return Spec((), attrs["newDataType"], axes=())

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> Traced:
        """A constant of the program: trainings have programs of their own."""
        return Traced(jnp.asarray(ctx.training, attrs["newDataType"]), ())


@primitive("LogSoftmax", 51)
class LogSoftmax(OverAllAxes):
    """The logarithm of the softmax over all static axes."""

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the operand, if it is far below 0 and adds nothing to the sum over the steps."""
        return padding_of_softmax(attrs, operands[0], operands[0].padding)

    def along(self, x: Array, axis: int) -> Array:
        """The computation along one axis."""
        return jax.nn.log_softmax(x, axis=axis)

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """Of vectors."""
        return _log_softmax_by_numpy if len(node.node_outputs[0].shape) == 1 else None


def _log_softmax_by_numpy(x: AnyArray) -> AnyArray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class _Sum(WholeMinibatch):
    """The sum over all samples of one number for each."""

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> Traced:
        """The sum, without padding."""
        rows, mask = self.samples(ctx, *values)
        return Traced(jnp.sum(jnp.where(mask, self.sample(*rows), 0)), ())

    @staticmethod
    def sample(*rows: Array) -> Array:
        """The number of each sample: [cells, elements] -> [cells]."""
        raise NotImplementedError


@primitive("SumAll", 18)
class SumAll(_Sum):
    """The sum of all elements."""

    @staticmethod
    def sample(*rows: Array) -> Array:
        """The sum of its elements."""
        return jnp.sum(rows[0], -1)


@primitive("SquaredError", 34)
class SquaredError(_Sum):
    """The sum of (x - y)²."""

    @staticmethod
    def sample(*rows: Array) -> Array:
        """The sum over its elements."""
        x, y = rows
        return jnp.sum(jnp.square(x - y), -1)


@primitive("CrossEntropyWithSoftmax", 35)
class CrossEntropyWithSoftmax(_Sum):
    """The sum of -label · log(softmax(output)). Operands: output, label."""

    @staticmethod
    def sample(*rows: Array) -> Array:
        """The cross entropy. Its gradient is softmax(output) - label, in CNTK also for labels that do not sum to 1."""
        output, label = rows
        logs, fixed = jax.nn.log_softmax(output, axis=-1), jax.lax.stop_gradient
        differentiated = jax.nn.logsumexp(output, -1) - jnp.sum(fixed(label) * output + label * fixed(logs), -1)
        return differentiated + fixed(-jnp.sum(label * logs, -1) - differentiated)
