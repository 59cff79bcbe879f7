"""What a program computed for variables, with padding and layout until the data are needed in another form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..._typing import AnyArray, Shape
from ...graph.variable import Edge
from ..data.interchange import ragged_from_grid
from ..data.ragged import Ragged, SparseRows
from ..data.sparse import Sparse, dense
from ..plan.plan import Plan
from .minibatch import PackedMinibatch

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LayoutArrays: TypeAlias = "tuple[AnyArray, AnyArray, AnyArray]"  # row, start and length of each sequence


@dataclass(frozen=True)
class Result:
    """The value of one variable.

    Shapes: data as in `Traced` with a layout; `layout` holds row, start, length, or None without a sequence axis.
    """

    variable: Edge
    data: AnyArray | Sparse
    count: int
    layout: LayoutArrays | None
    by_rows: bool = False  # the gradient of a parameter that is only looked up: most rows are zero

    @cached_property
    def host(self) -> np.ndarray:
        """The data on the host, padding included."""
        return np.asarray(dense(self.data))

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.count if self.layout is None else int(np.asarray(self.layout[2])[: self.count].sum())

    def sequences(self) -> list[np.ndarray]:
        """One array [steps, *shape] for each sequence."""
        assert self.layout is not None
        row, start, length = (np.asarray(a) for a in self.layout)
        return [self.host[start[i] : start[i] + length[i], row[i]] for i in range(self.count)]

    def numpy(self) -> np.ndarray | csr_matrix | list[np.ndarray | csr_matrix]:
        """The data as users get them: arrays of their own, sparse matrices as SciPy's CSR matrices.

        Shapes: a list of sequences [steps, *shape]; [samples, *shape] without a sequence axis; [*shape] without dynamic
                axes.
        """
        if self.layout is not None:
            return [self._dense_or_csr(s) for s in self.sequences()]
        return self._dense_or_csr(self.host[: self.count] if self.variable.dynamic_axes else self.host)

    def _dense_or_csr(self, array: np.ndarray) -> np.ndarray | csr_matrix:
        if not isinstance(self.data, Sparse) or array.ndim != 2:
            return array.copy()  # the program's own memory is read-only, and a `Value` may still hold it
        from scipy.sparse import csr_matrix  # slow to import, and most scripts never need it

        return csr_matrix(array)

    def sample_shape(self, lead: int) -> Shape:
        """Shape of one sample; `lead`: how many dimensions before it are dynamic."""
        return tuple(self.data.shape if isinstance(self.data, Sparse) else self.data.shape[lead:])

    def ragged(self) -> Ragged | AnyArray:
        """The data in a form that can be fed; they stay on the device."""
        if isinstance(self.data, Sparse) and not self.variable.dynamic_axes and self.host.ndim == 2:
            return Ragged(SparseRows.from_dense(self.host), None)
        if self.by_rows:
            return Ragged(SparseRows.from_dense(self.host.reshape(1, -1)), None)
        return ragged_from_grid(self.data, self.count, self.layout) if self.variable.dynamic_axes else dense(self.data)


def collect_results(
    variables: Sequence[Edge], plan: Plan, minibatch: PackedMinibatch, data: Sequence[AnyArray | Sparse | None],
    layouts: Mapping[int, LayoutArrays],
) -> list[Result]:
    """Results with the data of a program's outputs, except those whose data are None.

    `plan`: the one that the program was compiled for; `variables` are the outputs of the caller's. `layouts`: of axes
    that are created in the program, by the place of the output.
    """
    results = []
    for i, (variable, output, array) in enumerate(zip(variables, plan.outputs, data, strict=True)):
        if array is None:
            continue
        axis = output.sequence_axis
        layout: LayoutArrays | None = None
        if axis is not None:
            grid = minibatch.grids.get(axis)
            layout = layouts[i] if grid is None else (grid.row, grid.start, grid.length)
        count = minibatch.count
        if plan.needs_exact_batch and output.dynamic_axes:  # no padding, whatever the size of the batch
            count = len(array.indices if isinstance(array, Sparse) else array) if layout is None else len(layout[2])
        results.append(Result(variable, array, count, layout))
    return results


__all__ = ["LayoutArrays", "Result", "collect_results"]
