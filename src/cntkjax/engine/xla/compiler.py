"""With what options XLA compiles programs, and why.

Both concern the CPU only. They are experimental in XLA and change with its versions; one that is not known is left out.
"""

from __future__ import annotations

from functools import cache

import jax

from .cache import persistent

OPTIONS = {
    # Barriers stay in until after fusion: without this, `materialize.materialized` does nothing.
    "xla_disable_hlo_passes": "cse_barrier_expander",
    # Convolutions go to Eigen, products and sums to YNNPACK, which is where all three go by default. On two cores of an
    # Intel Xeon (AVX-512, jax 0.10) YNNPACK takes 96 ms for the weight gradient of a 5x5 convolution from 32 to 32
    # channels (batch 256, 15x15) and Eigen 24, 26 and 17 ms for the convolution itself; a product goes the other way.
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
