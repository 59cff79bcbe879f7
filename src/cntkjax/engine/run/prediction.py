"""Predictions: evaluations whose only state is where random numbers are, so that threads run them side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.cells import commit
from ...graph.variable import Edge
from ..data.ragged import Ragged
from ..lower.carry import Memory
from ..native.program import Packed
from ..plan.parts import resolve
from .direct import Bindings
from .evaluation import evaluation_body
from .few_rows import few_rows
from .few_sequences import FewSequences
from .fixed_leaves import FixedLeaves, FixedLeavesProgram
from .minibatch import Feeds, PackedMinibatch, arguments_in_order
from .program import Program
from .program_cache import plan_of, programs
from .random_streams import RandomInputs, after_drawing, draw_random_state, random_inputs
from .result import collect_results
from .state import changes_of_cells, computed_lengths_error, leaf_arrays

Call = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


class Prediction:
    """The evaluation of outputs with the values that their parameters and constants have now.

    The graph has to be the caller's own: a training step that donated its parameters would take them away. Programs are
    compiled thoroughly at once, and shared with other graphs of the same structure. Random operations draw the numbers
    that evaluations of a new graph would draw, one call after the other.
    """

    def __init__(self, outputs: Sequence[Edge]) -> None:
        self.outputs, self.plan = list(outputs), plan_of(outputs)
        self.program: Program = programs.program(
            self.plan, "predict", evaluation_body, False, quick_start=False, make=FixedLeavesProgram
        )
        self.leaves = FixedLeaves(leaf_arrays(self.plan))
        self._bindings = Bindings(self.plan)
        self._packed_weights: Packed = {}
        self._few_sequences = FewSequences(self.plan, self.leaves, self._packed_weights)
        self._streams, self._drawing = Memory().streams, threading.Lock()

    def __call__(self, feeds: Feeds, memory: Memory | None = None) -> list[Any]:
        """The outputs, in the form of `Result.numpy`.

        `memory`: what pieces of sequences carry over from one call to the next.
        Errors: see `evaluate`.
        """
        if memory is None and (values := self._by_sizes(feeds)) is not None:
            return values
        own = Memory() if memory is None else memory
        minibatch = self._packed(feeds, own)
        data, layouts, changes = self.program(minibatch, self.leaves, self._drawn(minibatch))
        error = computed_lengths_error(self.plan, minibatch, changes)
        if error is not None:
            raise error
        commit(changes_of_cells(self.plan, minibatch, own, changes._replace(updates={})))
        results = collect_results(self.outputs, self.program.plan, minibatch, data, layouts)
        if memory is None:
            self._bindings.note(self.program, minibatch, arguments_in_order(self.plan, feeds))
        return [result.numpy() for result in results]

    def takes(self, feeds: Feeds) -> bool:
        """Whether it computes these data: all that the outputs can be computed of."""
        return True

    def _by_sizes(self, feeds: Feeds) -> list[Any] | None:
        """The outputs by what is bound to the sizes of the data; None if nothing is."""
        fed = arguments_in_order(self.plan, feeds)
        if (values := self._few_sequences(fed)) is not None:
            return values
        bound = self._bindings.get(fed)
        minibatch = None if bound is None else bound.packed(fed)
        if bound is None or minibatch is None:
            return None
        return bound.values(self.outputs, minibatch, bound.run(minibatch, self.leaves, self._drawn(minibatch)))

    def _drawn(self, minibatch: PackedMinibatch) -> RandomInputs | None:
        """The next random numbers, which no other call gets."""
        if not self.plan.random:
            return None
        with self._drawing:
            drawn = draw_random_state(self.plan, self._streams, False, self.program.columns(minibatch))
            commit(after_drawing(drawn, self._streams, False))
            return random_inputs(self.plan, drawn)

    def _packed(self, feeds: Feeds, memory: Memory) -> PackedMinibatch:
        return self.program.pack(self.plan, arguments_in_order(self.plan, feeds), memory)

    @property
    def is_direct(self) -> bool:
        """True for dense inputs and outputs of samples, which take nothing but the executable."""
        return bool(self.plan.arguments) and self.plan.is_of_samples

    def direct(self, examples: Mapping[Edge, np.ndarray]) -> Call:
        """A function of arrays of the shapes and types of examples, in their order; only if `is_direct`.

        Shapes: all [batch, *shape], contiguous; returned are arrays [batch, *shape of the output], of their own.
        """
        fed = [*map(resolve, examples)]
        layers = few_rows(self.plan, len(next(iter(examples.values()))))
        if layers is None:
            return lambda arrays: self({v: Ragged(array, None) for v, array in zip(fed, arrays, strict=True)})
        compute = layers.bound(self.leaves, self._packed_weights)
        order = [fed.index(v) for v in self.plan.arguments]
        return compute if order == sorted(order) else lambda arrays: compute([arrays[i] for i in order])


__all__ = ["Call", "Prediction"]
