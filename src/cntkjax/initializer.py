"""Initializers of parameters.

The axes of a parameter are ``[*inputs, *outputs, *filter]``, with ``output_rank`` axes for the outputs and
``filter_rank`` for the filter. With a negative ``output_rank`` the outputs come first, as in the weights of a
convolution: ``[*outputs, *inputs, *filter]``. With ``fan_in`` = inputs × filter, ``fan_out`` = outputs × filter
(products of their sizes) and s = ``scale``:

| initializer | distribution |
|---|---|
| ``uniform`` | uniform in ±s |
| ``normal`` | standard deviation s |
| ``truncated_normal`` | standard deviation s, values beyond ±2s are redrawn |
| ``xavier`` | uniform in ±s √(3 / fan_in) |
| ``glorot_uniform`` | uniform in ±s √(6 / (fan_in + fan_out)) |
| ``glorot_normal`` | standard deviation s √(2 / (fan_in + fan_out)) |
| ``he_uniform`` | uniform in ±s √(6 / fan_in) |
| ``he_normal`` | standard deviation s √(2 / fan_in) |
| ``bilinear`` | bilinear interpolation filter for a transposed convolution |

For the same seed the values are those that CNTK 2.7 draws on a CPU; in float32 they are bit-identical.

Source: distributions measured on CNTK 2.7 for 48 combinations of shape and ranks.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from ._typing import Seed
from .formats.containers import Dictionary
from .graph.arguments import public
from .graph.mersenne import MersenneTwister64
from .graph.seed import AUTO_SEED, resolve_seed

__all__ = ["DefaultParamInitScale", "SentinelValueForAutoSelectRandomSeed", "SentinelValueForInferParamInitRank",
           "bilinear", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "initializer_with_rank", "normal",
           "truncated_normal", "uniform", "xavier"]

DefaultParamInitScale = 1
SentinelValueForAutoSelectRandomSeed = AUTO_SEED
SentinelValueForInferParamInitRank = 2**31 - 1

Shape: TypeAlias = Sequence[int]


class Initializer(Dictionary):
    """The description of an initializer, with the keys of CNTK's model format; ``sample`` draws values from it.

    Errors: ValueError for an unknown kind or a scale that is not positive.

    >>> dict(normal(0.5, seed=1))["initializerType"]
    'normal'
    >>> normal(0.5, seed=1).sample((2, 3), np.float32).shape
    (2, 3)
    """

    def __init__(self, **description: Any) -> None:
        super().__init__(description)
        kind, scale = description.get("initializerType"), description.get("scale", 1)
        if kind not in _SAMPLERS:
            raise ValueError(f"unknown initializer {kind!r}: use one of {', '.join(_SAMPLERS)}")
        if not scale > 0:
            raise ValueError(f"initializer {kind!r}: the scale must be positive, not {scale}")

    def __repr__(self) -> str:
        return f"Initializer({', '.join(f'{key}={value!r}' for key, value in self.items())})"

    def seeded(self) -> Initializer:
        """The initializer with a fixed seed; parameters fix it on creation, because their shape may be inferred later.

        >>> a = uniform(1).seeded()
        >>> bool((a.sample((3,), np.float32) == a.sample((3,), np.float32)).all())
        True
        """
        if "randomSeed" not in self:
            return self
        return self._but(randomSeed=resolve_seed(self["randomSeed"]))

    def sample(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Draw the initial values of a parameter. A fixed seed reproduces them; an automatic one is chosen now.

        Shapes: the result is [*shape].

        Errors: ValueError if the shape has fewer axes than ``output_rank`` and ``filter_rank`` require; RuntimeError if
                it does not fit the kernel of ``bilinear``.
        """
        return _SAMPLERS[self["initializerType"]](self.seeded(), tuple(shape), np.dtype(dtype))

    def with_rank(self, output_rank: int | None, filter_rank: int | None) -> Initializer:
        """The initializer with the given ranks; see ``initializer_with_rank``."""
        ranks = {"outputRank": output_rank, "filterRank": filter_rank}
        ranks = {key: rank for key, rank in ranks.items() if rank is not None and key in self}
        for key, rank in ranks.items():
            if self[key] not in (SentinelValueForInferParamInitRank, rank):
                raise ValueError(f"initializer {self['initializerType']!r}: {key} is {self[key]} already, "
                                 f"so it cannot become {rank}: omit it when you create the initializer")
        return self._but(**ranks)

    def fans(self, shape: Shape) -> tuple[int, int]:
        """``fan_in`` and ``fan_out`` of a parameter of the given shape.

        Errors: ValueError if the shape has fewer axes than the ranks require.

        >>> glorot_uniform(output_rank=-1, filter_rank=2).fans((32, 3, 5, 5))
        (75, 800)
        >>> glorot_uniform().fans((784, 10))
        (784, 10)
        """
        out, filters = (default if self[key] == SentinelValueForInferParamInitRank else self[key]
                        for key, default in (("outputRank", 1), ("filterRank", 0)))
        if filters < 0 or abs(out) + filters > len(shape):
            raise ValueError(f"initializer {self['initializerType']!r}: output rank {out} and filter rank {filters} "
                             f"need a parameter with at least {abs(out) + max(filters, 0)} axes, not {shape}")
        map_rank = len(shape) - filters
        outputs = shape[map_rank - out:map_rank] if out >= 0 else shape[:-out]
        total, fan_out = math.prod(shape), math.prod(outputs) * math.prod(shape[map_rank:])
        return total // max(math.prod(outputs), 1), fan_out

    def _but(self, **changes: Any) -> Initializer:
        return Initializer(**{**self, **changes})


def _random(draw: Callable[[MersenneTwister64, int, float], np.ndarray],
            factor: Callable[[Initializer, Shape], float]) -> Callable[[Initializer, Shape, np.dtype], np.ndarray]:
    """A sampler that calls ``draw`` with a generator, the number of values, and ``scale`` times ``factor``.

    As in CNTK, these two are multiplied in the element type of the parameter, and the values are drawn in float64.
    """
    def sample(init: Initializer, shape: Shape, dtype: np.dtype) -> np.ndarray:
        scale = float(dtype.type(init["scale"]) * dtype.type(factor(init, shape)))
        values = draw(MersenneTwister64(init["randomSeed"]), math.prod(shape), scale)
        return values.astype(dtype, copy=False).reshape(shape)
    return sample


def _uniform(rng: MersenneTwister64, number: int, scale: float) -> np.ndarray:
    return rng.uniform(number, -scale, scale)


def _normal(rng: MersenneTwister64, number: int, scale: float) -> np.ndarray:
    return rng.normal(number) * scale


def _truncated_normal(rng: MersenneTwister64, number: int, scale: float) -> np.ndarray:
    return rng.normal(number, limit=2) * scale


def _bilinear(init: Initializer, shape: Shape, dtype: np.dtype) -> np.ndarray:
    height, width = init["kernelHeight"], init["kernelWidth"]
    if height != width:
        raise RuntimeError(f"initializer 'bilinear': the filter must be square, not {height} x {width}")
    if len(shape) != 4 or shape[0] != shape[1] or shape[2:] != (height, width):
        raise RuntimeError(f"initializer 'bilinear': the parameter must have the shape (channels, channels, {height}, "
                           f"{width}) with as many input as output channels, not {shape}")
    factor = (width + 1) // 2
    weights = 1 - np.abs(np.arange(width) - (width - 1) / 2) / factor
    return (np.eye(shape[0])[:, :, None, None] * np.outer(weights, weights)).astype(dtype)


_SAMPLERS: dict[str, Callable[[Initializer, Shape, np.dtype], np.ndarray]] = {
    "uniform1": _random(_uniform, lambda init, shape: 1),
    "normal": _random(_normal, lambda init, shape: 1),
    "TruncNormal": _random(_truncated_normal, lambda init, shape: 1),
    "xavier": _random(_uniform, lambda init, shape: math.sqrt(3 / max(init.fans(shape)[0], 1))),
    "glorotUniform": _random(_uniform, lambda init, shape: math.sqrt(6 / max(sum(init.fans(shape)), 1))),
    "glorotNormal": _random(_normal, lambda init, shape: math.sqrt(2 / max(sum(init.fans(shape)), 1))),
    "heUniform": _random(_uniform, lambda init, shape: math.sqrt(6 / max(init.fans(shape)[0], 1))),
    "heNormal": _random(_normal, lambda init, shape: math.sqrt(2 / max(init.fans(shape)[0], 1))),
    "bilinear": _bilinear,
    "constant": lambda init, shape, dtype: np.full(shape, init["value"], dtype),
}


def _seed(seed: Seed | None) -> int:
    return SentinelValueForAutoSelectRandomSeed if seed is None else seed


def _ranked(kind: str, scale: float, output_rank: int, filter_rank: int, seed: Seed | None) -> Initializer:
    return Initializer(initializerType=kind, scale=float(scale), outputRank=output_rank, filterRank=filter_rank,
                       randomSeed=_seed(seed))


@public
def uniform(scale: float, seed: Seed | None = None) -> Initializer:
    """Uniform distribution between -scale and scale.

    >>> bool(np.abs(uniform(0.1).sample((100,), np.float32)).max() <= 0.1)
    True
    """
    return Initializer(initializerType="uniform1", scale=float(scale), randomSeed=_seed(seed))


@public
def normal(scale: float, output_rank: int = SentinelValueForInferParamInitRank,
           filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """Normal distribution with mean 0 and standard deviation ``scale``; the ranks have no effect.

    >>> normal(0.01, seed=1).sample((2, 3), np.float64).shape
    (2, 3)
    """
    return _ranked("normal", scale, output_rank, filter_rank, seed)


@public
def truncated_normal(stdev: float, seed: Seed | None = None) -> Initializer:
    """Normal distribution with mean 0 and standard deviation ``stdev``; values beyond ±2 ``stdev`` are redrawn.

    >>> bool(np.abs(truncated_normal(0.5).sample((1000,), np.float32)).max() <= 1)
    True
    """
    return Initializer(initializerType="TruncNormal", scale=float(stdev), randomSeed=_seed(seed))


@public
def xavier(scale: float = DefaultParamInitScale, output_rank: int = SentinelValueForInferParamInitRank,
           filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """Xavier initialization: uniform in ±scale √(3 / fan_in).

    >>> bool(np.abs(xavier().sample((300, 10), np.float32)).max() <= 0.1)
    True
    """
    return _ranked("xavier", scale, output_rank, filter_rank, seed)


@public
def glorot_uniform(scale: float = DefaultParamInitScale, output_rank: int = SentinelValueForInferParamInitRank,
                   filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """Glorot initialization: uniform in ±scale √(6 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010, equation 16.

    >>> bool(np.abs(glorot_uniform().sample((590, 10), np.float32)).max() <= 0.1)
    True
    """
    return _ranked("glorotUniform", scale, output_rank, filter_rank, seed)


@public
def glorot_normal(scale: float = DefaultParamInitScale, output_rank: int = SentinelValueForInferParamInitRank,
                  filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """Glorot initialization: normal with standard deviation scale √(2 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010, equation 12.

    >>> glorot_normal(output_rank=2).sample((4, 2, 3), np.float32).shape
    (4, 2, 3)
    """
    return _ranked("glorotNormal", scale, output_rank, filter_rank, seed)


@public
def he_uniform(scale: float = DefaultParamInitScale, output_rank: int = SentinelValueForInferParamInitRank,
               filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """He initialization: uniform in ±scale √(6 / fan_in).

    Source: He, Zhang, Ren and Sun 2015, section 2.2.

    >>> bool(np.abs(he_uniform().sample((600, 10), np.float32)).max() <= 0.1)
    True
    """
    return _ranked("heUniform", scale, output_rank, filter_rank, seed)


@public
def he_normal(scale: float = DefaultParamInitScale, output_rank: int = SentinelValueForInferParamInitRank,
              filter_rank: int = SentinelValueForInferParamInitRank, seed: Seed | None = None) -> Initializer:
    """He initialization: normal with standard deviation scale √(2 / fan_in).

    Source: He, Zhang, Ren and Sun 2015, section 2.2.

    >>> he_normal(output_rank=-1, filter_rank=2).sample((8, 3, 5, 5), np.float32).shape
    (8, 3, 5, 5)
    """
    return _ranked("heNormal", scale, output_rank, filter_rank, seed)


@public
def bilinear(kernel_width: int, kernel_height: int) -> Initializer:
    """Bilinear interpolation weights for a transposed convolution.

    Shapes: [channels, channels, kernel_height, kernel_width] with kernel_height = kernel_width.

    >>> bilinear(3, 3).sample((1, 1, 3, 3), np.float32)[0, 0].tolist()
    [[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]]
    """
    return Initializer(initializerType="bilinear", kernelWidth=kernel_width, kernelHeight=kernel_height)


@public
def initializer_with_rank(initializer: Initializer, output_rank: int | None = None,
                          filter_rank: int | None = None) -> Initializer:
    """The initializer with its ranks set, if it has ranks. Used by layers, which know the meaning of their axes.

    Errors: TypeError for anything but an initializer; ValueError if it has another rank already.

    >>> initializer_with_rank(he_normal(), output_rank=-1, filter_rank=2)["outputRank"]
    -1
    """
    if not isinstance(initializer, Initializer):
        raise TypeError(f"initializer_with_rank() needs an initializer such as he_normal(), not {initializer!r}")
    return initializer.with_rank(output_rank, filter_rank)


