"""What is computed in one way on a CPU and in another on a GPU: one table, `LOWERINGS`, with the reasons.

A CPU core is bound by memory and by handing work to threads, a GPU by kernel launches, host waits and bytes. The
figures for GPUs are kernels and bytes of programs compiled for an H100 (`python -m benchmarks gpu-programs`; all are in
docs/measurements.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

import jax

from ...graph.settings import Settings
from ..convolutions.library import library
from ..onednn import registration as onednn
from .versions import option


@dataclass(frozen=True)
class Lowering:
    """The choices for one platform; both values of each compute the same.

    `loop_unroll`: steps of a loop in one iteration, at most. On a GPU each iteration launches kernels for what it
    slices and stores: a step of LSTMs launches 1,145 kernels, 449 with iterations of 8 steps. Longer ones take longer
    to compile (`lower/scans.py`). On a CPU a loop costs next to nothing, and copies of its body take long to compile.

    `joined_residuals`: what a loop stores in each step, for its backward pass or after it, is one array of each type
    instead of many: 773 instead of 1,145 kernels, with unrolling by 8 394. On a CPU joining is one copy more.

    `loops_side_by_side`: independent loops of one structure, as the two directions of a layer, are one loop of batched
    operations: 1,176 instead of 1,925 kernels in three bi-directional LSTMs. On a CPU nothing is gained
    (docs/measurements.md).

    `separate_products`: products in loops are not joined with the sums that they are part of. cuBLAS adds to an array
    of its own only, so slices of the inputs of a loop are copied first, which element-wise kernels read in place: 358
    instead of 366 kernels in a step of LSTMs. XLA:CPU does not join them anyway.

    `joined_products`: products of one vector with several weights, in loops, are one product. XLA:GPU joins them
    anyway, but then copies the parts of the result: 40 kernels of attention, and 40 more in the backward pass.

    `deferred_elements`: gradients of values that all steps of a loop share are computed after it, where that takes
    little that is not stacked anyway (`lower/partial_eval.py`), instead of summed in every step: 34 kernels of
    attention. XLA may store an array for all steps at once there, so none of more elements. On a CPU the operands of a
    step are in its cache.

    `pooling_in_one_pass`: the maximum of all cells of a window at once, instead of one axis after another, moves 264 MB
    instead of 407 in AlexNet, in 39 kernels instead of 48: its gradient is one sum, which fuses with the sum for the
    bias. On a CPU that reads each cell more often: n x n instead of n + n times.

    `native_groups`: convolutions in groups as one call of cuDNN instead of one a group: 5 calls instead of 160. XLA:CPU
    takes 327 ms for the gradients of four groups on [8, 32, 32, 64], and 7 if each group is a convolution of its own.

    `statistics_in_one_pass`: mean and variance of a minibatch from one pass over the data, shifted by the first
    sample so that nothing cancels: 963 instead of 1,148 kernels in ResNet-56. On a CPU the second pass costs little.

    `matmul_sums`: sums over leading axes of long rows as products with ones; XLA:CPU sums column by column, 4.5 ms for
    [32, 32768] instead of 0.16. GPUs have kernels for it.

    `message_bytes`, `messages`: the most bytes of gradients that travel between devices as one message, and the fewest
    messages for all of them. On a CPU, where nothing else runs meanwhile, few messages are best. On a GPU they are on
    their way while the backward pass computes others. `local_message_bytes`: the same between devices of one process.
    On a CPU a message costs nothing there, and joining copies: with 2^24 FCN5 takes two devices 249 ms instead of 208.

    `exchanged_pairs`: two devices of a process send each other their gradients, and both add them, instead of an
    all-reduce. That is as many bytes; for 55 MB it takes two devices of a CPU 12 ms with the addition, an all-reduce
    18. NCCL's all-reduce is best.

    `convolutions_by_planes`: 3-d convolutions as 2-d ones with more channels, unless a library computes them: 2.5 ms
    instead of 23 on a CPU.

    `padded_convolutions`: operands with fewer cells than the filters are padded first, as XLA:CPU computes their
    convolutions in slow loops (`primitives/convolution.py`): 7 instead of 66 ms. cuDNN has kernels for them.

    `transposed_by_phases`: transposed convolutions as convolutions with a channel for each place between two strides:
    0.8 instead of 1.7 ms for 8x8 with strides of 4 on [8, 8, 8, 32]. cuDNN has kernels for them.

    `argmax_in_blocks`: the first maximum of a long axis is found in a block of it, after the maxima of all blocks:
    XLA:CPU computes maxima with vector instructions, but argmax element by element, 659 µs for [256, 1000] instead of
    178. A GPU has a kernel for it.

    `joined_transfers`: what the host sends with a step is joined to at most three arrays instead of 8 to 14
    (`engine/run/transfers.py`). A CPU's programs read NumPy arrays in place, and joining would only copy.

    `joined_siblings`: the updates of parameters of one shape, and those of scalars, are one kernel instead of one each
    (`sibling_kernels.py`): 822 kernels instead of 1,018 in ResNet-56. On a CPU a kernel costs next to nothing.

    `compared_indices`: this many looked-up rows of an embedding, or fewer, are made distinct by comparing all pairs, in
    three kernels; sorting takes ten. At this limit these are 67 million comparisons, which take a CPU longer than
    sorting.

    `stacked_weights`: many equal layers are one loop even if their weights, which are copied for it, are large, as long
    as a layer computes more numbers than it has weights. The 24 layers of a Transformer (`benchmarks/deep.py`) compile
    in half the time, and a step takes 41 instead of 48 ms. GPUs launch kernels for the copies; that was not measured.

    `hidden_places`: the gradients of equal layers' weights are read from places that XLA does not know, so that their
    updates are equal kernels, which are compiled once. GPUs read slices at known places within another kernel.

    `convolutions`: what computes convolutions of single precision. "native": a library in C with XLA's threads
    (`engine/convolutions`), on processors with AVX2 or AVX-512, where it was built: 128 samples of [16, 32, 32] with
    16 filters of 3x3 take 3.3 ms instead of 5.8, the gradient of the filters 3.9 instead of 10.6. "onednn": oneDNN
    (`engine/onednn`), if `CNTKJAX_ONEDNN=1` asks for it, whose threads wait for each other. "xla": XLA's own.

    `step_cost`: what a step of a loop costs besides its rows, as a number of rows, which decides on how sequences are
    packed. An LSTM of 300 cells takes two cores 97 µs a step and 11 µs a row, forward and backward together, since the
    weights are read once a step. On a GPU a step launches about four kernels, one after the other, while all rows of a
    minibatch take less time than one launch: sequences share rows only where most of the grid would be padding.
    """

    loop_unroll: int
    joined_residuals: bool
    loops_side_by_side: bool
    pooling_in_one_pass: bool
    native_groups: bool
    statistics_in_one_pass: bool
    matmul_sums: bool
    convolutions_by_planes: bool
    padded_convolutions: bool
    transposed_by_phases: bool
    argmax_in_blocks: bool
    joined_transfers: bool
    message_bytes: int
    local_message_bytes: int
    messages: int
    exchanged_pairs: bool
    joined_siblings: bool
    separate_products: bool
    joined_products: bool
    deferred_elements: int
    compared_indices: int
    stacked_weights: bool
    hidden_places: bool
    convolutions: str
    step_cost: int


def _convolutions() -> str:
    return "onednn" if onednn.is_chosen() else "native" if library() else "xla"


LOWERINGS = {
    "cpu": Lowering(
        loop_unroll=1, joined_residuals=False, loops_side_by_side=False, pooling_in_one_pass=False,
        native_groups=False, statistics_in_one_pass=False, matmul_sums=True, convolutions_by_planes=True,
        padded_convolutions=True, transposed_by_phases=True, argmax_in_blocks=True, joined_transfers=False,
        message_bytes=1 << 24, local_message_bytes=1 << 16, messages=1, exchanged_pairs=True, joined_siblings=False,
        separate_products=False, joined_products=False, deferred_elements=0, compared_indices=0,
        stacked_weights=True, hidden_places=True, convolutions=_convolutions(), step_cost=8,
    ),
    "gpu": Lowering(
        loop_unroll=16, joined_residuals=True, loops_side_by_side=True, pooling_in_one_pass=True,
        native_groups=True, statistics_in_one_pass=True, matmul_sums=False, convolutions_by_planes=False,
        padded_convolutions=False, transposed_by_phases=False, argmax_in_blocks=False, joined_transfers=True,
        message_bytes=1 << 22, local_message_bytes=1 << 22, messages=4, exchanged_pairs=False, joined_siblings=True,
        separate_products=True, joined_products=True, deferred_elements=1 << 24,
        compared_indices=1 << 13, stacked_weights=False, hidden_places=False, convolutions="xla", step_cost=256,
    ),
}

_forced: ContextVar[str | None] = ContextVar("platform", default=None)
_library: ContextVar[str] = ContextVar("library", default="xla")


def platform() -> str:
    """The platform of the device in use (`cntk.device.try_set_default_device` sets it): a key of `LOWERINGS`."""
    if forced := _forced.get():
        return forced
    device = option("jax_default_device")
    name = jax.default_backend() if device is None else getattr(device, "platform", device)
    return "cpu" if name == "cpu" else "gpu"


def lowering() -> Lowering:
    """The choices for the platform in use, read when a program is traced or fed."""
    return LOWERINGS[platform()]


def matmul_precision() -> AbstractContextManager[object]:
    """A scope in which float32 products and convolutions have the precision that the user has chosen.

    CPUs compute in full precision anyway; GPUs since Ampere round operands to 10 bits (TF32) unless they are told not
    to. jax's own `jax_default_matmul_precision` comes first.
    """
    if platform() == "cpu" or option("jax_default_matmul_precision") is not None:
        return nullcontext()
    return jax.default_matmul_precision(Settings.matmul_precision)


@contextmanager
def lowering_for(name: str) -> Iterator[None]:
    """A scope in which programs are traced as for another platform: for tests, and to compile ahead of time.

    >>> with lowering_for("gpu"):
    ...     lowering().native_groups
    True
    """
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def convolutions_by(library: str) -> Iterator[None]:
    """A scope in which programs are traced whose convolutions this library computes: see `Lowering.convolutions`."""
    token = _library.set(library)
    try:
        yield
    finally:
        _library.reset(token)


def computes_convolutions(name: str) -> bool:
    """Whether this library computes what is being traced; not for what is exported, or runs on several devices."""
    return _library.get() == name


__all__ = [
    "LOWERINGS", "Lowering", "computes_convolutions", "convolutions_by", "lowering", "lowering_for", "matmul_precision",
    "platform",
]
