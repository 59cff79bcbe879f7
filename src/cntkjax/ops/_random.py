"""Dropout and sampling of classes."""

from __future__ import annotations

from .._typing import Seed
from ..graph.arguments import public_operation
from ..graph.seed import AUTO_SEED, resolve_seed
from ..primitives import random
from ._blocks import node
from ._operand import Operand, as_variable
from .functions import Function

__all__ = [
    "SentinelValueForAutoSelectRandomSeed", "dropout", "random_sample", "random_sample_inclusion_frequency",
]

SentinelValueForAutoSelectRandomSeed = AUTO_SEED


@public_operation
def dropout(x: Operand, dropout_rate: float = 0.0, seed: Seed = AUTO_SEED, name: str = "") -> Function:
    """Dropout: in training, elements are zeroed with the probability `dropout_rate` and the others scaled accordingly.

    The elements that are kept are divided by ``1 - dropout_rate``. In evaluation the result is x.

    Shapes: [*shape] -> [*shape].
    Errors: ValueError unless 0 <= dropout_rate < 1.

    >>> dropout([1, 2, 3], 0.5).eval()
    array([1., 2., 3.], dtype=float32)
    """
    if not 0.0 <= dropout_rate < 1.0:
        raise ValueError(f"dropout_rate must be in the interval [0,1), got {dropout_rate}")
    attributes = {"dropoutRate": float(dropout_rate), "rngSeed": resolve_seed(seed), "rngOffset": 0}
    return node(random.Dropout, [as_variable(x)], attributes, name)


@public_operation
def random_sample(
    weights: Operand, num_samples: int, allow_duplicates: bool, seed: Seed = AUTO_SEED, name: str = ""
) -> Function:
    """Sample classes as sparse one-hot rows; class i has a probability proportional to ``weights[i]``.

    Shapes: weights [n] -> [num_samples, n].
    Errors: ShapeError unless num_samples < n, if duplicates are not allowed.

    >>> random_sample([1, 0, 0], 2, True).eval().toarray()
    array([[1., 0., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    return _sampled(random.RandomSample, weights, num_samples, allow_duplicates, seed, name)


@public_operation
def random_sample_inclusion_frequency(
    weights: Operand, num_samples: int, allow_duplicates: bool, seed: Seed = AUTO_SEED, name: str = ""
) -> Function:
    """The expected number of occurrences of each class in a sample drawn by `random_sample`.

    Shapes: weights [n] -> [n].

    >>> random_sample_inclusion_frequency([1, 3], 2, True).eval()
    array([0.5, 1.5], dtype=float32)
    """
    return _sampled(random.RandomSampleInclusionFrequency, weights, num_samples, allow_duplicates, seed, name)


def _sampled(primitive: object, weights: Operand, n: int, duplicates: bool, seed: Seed, name: str) -> Function:
    attributes = {
        "numSamples": int(n), "allowDuplicates": bool(duplicates), "rngSeed": resolve_seed(seed), "rngOffset": 0,
    }
    return node(primitive, [as_variable(weights)], attributes, name)
