"""The options with which XLA compiles programs, and the reasons for them.

All are for one platform only. They are experimental and differ between versions of XLA; unknown ones are omitted.
"""

from __future__ import annotations

from functools import cache

import jax

from .cache import store
from .descriptions import digest
from .environment import environment
from .platform import platform

# Keeps barriers until after fusion: without it, `materialize.materialized` has no effect.
KEPT_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}

OPTIONS = KEPT_BARRIERS | {
    # Convolutions are computed by Eigen, products and sums by YNNPACK, the default for all three. On two cores of an
    # Intel Xeon (AVX-512, jax 0.10) YNNPACK takes 96 ms for the weight gradient of a 5x5 convolution from 32 to 32
    # channels (batch 256, 15x15), Eigen 24; for the convolution itself 26 and 17 ms. For products YNNPACK is faster.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
}

# Where YNNPACK computes a sum of products, of which one factor is repeated along the first axis, together with an
# element-wise operation after it, the results from 32,768 on are wrong (jax 0.10): `sum(w[None] * x[:, None], -1) * 2`
# of w [50, 10] and x [2000, 10]. So programs with sums of many results leave sums to XLA. Others keep YNNPACK, which
# takes 1 ms instead of 18 for the sum of 2.5 million squares, and 2 instead of 17 for batch normalization.
LARGE_SUM = 2**14  # results
LARGE_SUM_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}

# XLA of jax 0.12 makes one kernel of a small loop, and does not compile a barrier there. Which loops it takes for small
# is left to it in programs without barriers in loops.
LOOP_BARRIER_OPTIONS = {name: f"{passes},small-while-loop-hoisting" for name, passes in KEPT_BARRIERS.items()}

# XLA has two code generators. The older one, which emits LLVM directly, compiles small programs in 0.6 of the time,
# and what it compiles takes 0 to 6 percent longer to run: the training step of a small LSTM tagger compiles in 0.96
# instead of 1.5 seconds of processor time, that of a small convolutional network in 0.86 instead of 1.7. For deep
# networks it is the slower one: ResNet-56 compiles in 9.1 instead of 5.4, and runs 1.1 times as long (Xeon, jax 0.10).
SMALL_OPTIONS = {"xla_cpu_use_fusion_emitters": "False", "xla_backend_optimization_level": "2"}

# Evaluations with fixed parameters have no gradients, and mostly few samples. There XLA's own choice, YNNPACK for
# convolutions too, is as fast or faster: two residual networks (benchmarks/inference.py) take 12 instead of 15 ms for
# one sample and 22 instead of 44, 73 instead of 151 for eight, an AlexNet as long as with Eigen (Xeon, jax 0.10).
PREDICTION_OPTIONS = KEPT_BARRIERS

# A program of a few operations compiles in 13 ms of processor time instead of 45, that of an LSTM in 46 instead of 290
# (Intel Xeon, jax 0.10). It takes up to 1.2 times as long to run on a few numbers, and 2 to 10 times on many.
QUICK_OPTIONS = {
    "xla_cpu_use_fusion_emitters": "False",  # those that emit LLVM directly; half of the time saved
    "xla_backend_optimization_level": "0",
    "xla_cpu_parallel_codegen_split_count": "1",
}

# Training steps on several GPUs. XLA would join all-reduces of up to 30 MB, which then begin after the backward pass,
# and let one wait for another. Of FCN5's 33 MB one begins before the last 7 kernels of the backward pass, and they run
# meanwhile (`python -m benchmarks gpu-scaling`).
COLLECTIVE_OPTIONS = {
    "xla_gpu_all_reduce_combine_threshold_bytes": "0",  # `Lowering.message_bytes` says what travels together
    "xla_gpu_experimental_parallel_collective_overlap_limit": "8",
}


def compiler_options() -> dict[str, str]:
    """The options of all programs on the platform in use."""
    return _options() if platform() == "cpu" else {}


def small_options() -> dict[str, str]:
    """Options for programs that compute little, for which compiling takes longer than running."""
    return _small_options() if platform() == "cpu" else {}


def prediction_options() -> dict[str, str]:
    """Options for evaluations with fixed parameters."""
    return _prediction_options() if platform() == "cpu" else {}


def quick_options() -> dict[str, str]:
    """Options for programs that compile in a fraction of the time and run more slowly; empty if there are none."""
    return _quick_options() if platform() == "cpu" else {}


def large_sum_options() -> dict[str, str]:
    """Options in place of others of the same names, for programs with sums of more than `LARGE_SUM` results."""
    return _large_sum_options() if platform() == "cpu" else {}


def loop_barrier_options() -> dict[str, str]:
    """Options in place of others of the same names, for programs with values that are stored in loops."""
    return _loop_barrier_options() if platform() == "cpu" else {}


def collective_options() -> dict[str, str]:
    """Further options for programs that compute while devices exchange what they have computed."""
    return {} if platform() == "cpu" else _collective_options()


@cache
def _collective_options() -> dict[str, str]:
    return known(COLLECTIVE_OPTIONS)


@cache
def _large_sum_options() -> dict[str, str]:
    return known(LARGE_SUM_OPTIONS)


@cache
def _loop_barrier_options() -> dict[str, str]:
    return known(LOOP_BARRIER_OPTIONS)


@cache
def _options() -> dict[str, str]:
    return known(OPTIONS)


@cache
def _small_options() -> dict[str, str]:
    return _options() | known(SMALL_OPTIONS)


@cache
def _prediction_options() -> dict[str, str]:
    return known(PREDICTION_OPTIONS)


@cache
def _quick_options() -> dict[str, str]:
    quick = known(QUICK_OPTIONS)
    return _options() | quick if quick else {}


def known(options: dict[str, str]) -> dict[str, str]:
    """Those of the options that XLA knows on the device in use."""
    if _are_known(options):
        return options
    return {name: value for name, value in options.items() if _are_known({name: value})}


def _are_known(options: dict[str, str]) -> bool:
    entries, key = store(), digest("options", options, environment())
    answer = entries.read(key) if entries is not None else None
    if answer is None:
        answer = b"known" if _compile(options) else b"unknown"
        if entries is not None:
            entries.write(key, answer)
    return answer == b"known"


def _compile(options: dict[str, str]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
