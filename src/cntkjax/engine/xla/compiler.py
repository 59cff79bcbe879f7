"""The options with which XLA compiles programs, and the reasons for them.

Both are for the CPU only. They are experimental and differ between versions of XLA; unknown ones are omitted.
"""

from __future__ import annotations

from functools import cache

import jax

from .cache import persistent

OPTIONS = {
    # Keeps barriers until after fusion: without it, `materialize.materialized` has no effect.
    "xla_disable_hlo_passes": "cse_barrier_expander",
    # Convolutions are computed by Eigen, products and sums by YNNPACK, the default for all three. On two cores of an
    # Intel Xeon (AVX-512, jax 0.10) YNNPACK takes 96 ms for the weight gradient of a 5x5 convolution from 32 to 32
    # channels (batch 256, 15x15), Eigen 24; for the convolution itself 26 and 17 ms. For products YNNPACK is faster.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
}


@cache
def compiler_options() -> dict[str, str]:
    """The options of all programs on the platform in use."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in OPTIONS.items() if _is_known(name, value)}


def _is_known(name: str, value: str) -> bool:
    try:
        with persistent():
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
