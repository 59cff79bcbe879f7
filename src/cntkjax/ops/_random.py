"""Dropout and sampling of classes."""

from __future__ import annotations

from ..graph.seed import AUTO_SEED, resolve_seed
from ..primitives import random
from ._blocks import node
from ._operand import Operand, as_variable
from .functions import Function

__all__ = [
    "SentinelValueForAutoSelectRandomSeed", "dropout", "random_sample", "random_sample_inclusion_frequency",
]

SentinelValueForAutoSelectRandomSeed = AUTO_SEED


def dropout(x: Operand, dropout_rate: float = 0.0, seed: int = AUTO_SEED, name: str = "") -> Function:
    """In training, a share of the elements set to 0 and the others divided by ``1 - dropout_rate``; otherwise x itself.

    Errors: ValueError unless 0 <= dropout_rate < 1.

    >>> dropout([1, 2, 3], 0.5).eval()
    array([1., 2., 3.], dtype=float32)
    """
    if not 0.0 <= dropout_rate < 1.0:
        raise ValueError(f"dropout_rate must be in the interval [0,1), not {dropout_rate}")
    attributes = {"dropoutRate": float(dropout_rate), "rngSeed": resolve_seed(seed), "rngOffset": 0}
    return node(random.Dropout, [as_variable(x)], attributes, name)


def random_sample(
    weights: Operand, num_samples: int, allow_duplicates: bool, seed: int = AUTO_SEED, name: str = ""
) -> Function:
    """Random classes, as sparse one-hot rows; class i is drawn with a probability proportional to ``weights[i]``.

    Shapes: weights [n] -> [num_samples, n].
    Errors: ShapeError if as many different classes are asked for as there are, or more.

    >>> random_sample([1, 0, 0], 2, True).eval().toarray()
    array([[1., 0., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    return _sampled(random.RandomSample, weights, num_samples, allow_duplicates, seed, name)


def random_sample_inclusion_frequency(
    weights: Operand, num_samples: int, allow_duplicates: bool, seed: int = AUTO_SEED, name: str = ""
) -> Function:
    """How often each class is expected among the classes that `random_sample` draws.

    >>> random_sample_inclusion_frequency([1, 3], 2, True).eval()
    array([0.5, 1.5], dtype=float32)
    """
    return _sampled(random.RandomSampleInclusionFrequency, weights, num_samples, allow_duplicates, seed, name)


def _sampled(primitive: object, weights: Operand, n: int, duplicates: bool, seed: int, name: str) -> Function:
    attributes = {
        "numSamples": int(n), "allowDuplicates": bool(duplicates), "rngSeed": resolve_seed(seed), "rngOffset": 0,
    }
    return node(primitive, [as_variable(weights)], attributes, name)
