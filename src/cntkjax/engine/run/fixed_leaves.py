"""Programs for leaves that stay: what follows from these alone is computed once, and not in each run."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

import jax

from ..._interrupts import deferred_interrupts
from ..._typing import Array, PyTree
from ..lower.constant_part import Split, split_constants
from ..xla.compiler import prediction_options, quick_options
from ..xla.platform import convolutions_by, lowering, matmul_precision
from ..xla.versions import double_precision
from .compiling import Inputs
from .minibatch import PackedMinibatch
from .program import Program
from .random_streams import RandomInputs


class FixedLeaves(list[Array]):
    """The values of the leaves of a plan, in its order, with what was computed from them. Threads may share it."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        super().__init__(arrays)
        self._constants: dict[Hashable, list[Array]] = {}  # what a program takes, by the signature of its minibatch
        self._computed: dict[Hashable, list[Array]] = {}  # mostly the same for all
        self._lock = threading.RLock()

    def constants(self, program: FixedLeavesProgram, signature: Hashable, sent: PyTree) -> list[Array]:
        """What a program takes in the place of the leaves, with such a minibatch. `sent`: its arrays."""
        with self._lock:
            if signature not in self._constants:
                with double_precision(program.plan.is_double), matmul_precision(), deferred_interrupts():
                    split = program.split(sent)
                    if split.key not in self._computed:
                        compute = jax.jit(split.computed, compiler_options=quick_options())
                        self._computed[split.key] = compute([*self])
                self._constants[signature] = [*self._computed[split.key], *(self[i] for i in split.kept)]
            return self._constants[signature]


class FixedLeavesProgram(Program):
    """A program that is called with `FixedLeaves`. Where it calls Python, that is called in each run."""

    options = staticmethod(prediction_options)

    def split(self, sent: PyTree) -> Split:
        """The program in two parts, for minibatches whose arrays have these shapes."""
        shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self.plan.leaves]
        with convolutions_by(lowering().convolutions):  # now, and when the rest is compiled
            return split_constants(lambda leaves, fed: Program._trace(self, (), leaves, fed), shapes, sent)

    def _trace(self, donated: PyTree, leaves: Sequence[Array | None], sent: PyTree, sizes: Hashable = ()) -> PyTree:
        if self.plan.calls_python:
            return super()._trace(donated, leaves, sent)
        return self.split(sent).rest([array for array in leaves if array is not None], sent)

    def inputs(
        self, minibatch: PackedMinibatch, leaves: Sequence[Array | None], random: RandomInputs | None,
        donated: PyTree = (), extra: PyTree = (),
    ) -> Inputs:
        """See `Program.inputs`."""
        donated, leaves, sent = super().inputs(minibatch, leaves, random, donated, extra)
        if self.plan.calls_python:
            return donated, [*leaves], sent
        assert isinstance(leaves, FixedLeaves)
        return donated, leaves.constants(self, minibatch.signature, sent), sent


__all__ = ["FixedLeaves", "FixedLeavesProgram"]
