"""Writes CNTK text format."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from numbers import Number
from typing import Any

import numpy as np

from ..graph.arguments import public


@public
def sequence_to_cntk_text_format(seq_idx: int, alias_tensor_map: Mapping[str, Any]) -> str:
    """Format one sequence in CNTK text format: its rows, joined with newlines.

    Args:
        seq_idx: the sequence id
        alias_tensor_map: the samples of each stream, by its name in the file: an array for a dense stream, a list with
            a dict {index: value} for each step for a sparse one. Streams may differ in length

    Shapes: arrays [steps, *sample_shape].
    Errors: ValueError for other data, or if there is no stream.

    >>> print(sequence_to_cntk_text_format(7, {"x": np.array([[1, 2], [3, 4]]), "label": [{5: 1}]}))
    7	|label 5:1 |x 1 2
    7	|x 3 4
    """
    if not alias_tensor_map:
        raise ValueError("sequence_to_cntk_text_format: needs at least one stream; pass {name: samples}")
    columns = [
        [f"|{alias} {text}".rstrip() for text in _samples(data)] for alias, data in sorted(alias_tensor_map.items())
    ]
    return "\n".join(f"{int(seq_idx)}\t" + " ".join(s for s in row if s is not None) for row in zip_longest(*columns))


def _samples(data: Any) -> list[str]:
    if isinstance(data, list) and data and all(isinstance(sample, Mapping) for sample in data):
        return [" ".join(f"{index}:{value}" for index, value in sorted(sample.items())) for sample in data]
    if not _is_tensor(data) or (isinstance(data, np.ndarray) and data.ndim == 0):
        raise ValueError(f'expected a tensor (dense) or list of dicts (sparse), but got "{type(data)}"; pass an array '
            "[steps, *shape], or [{index: value}, ...]")
    return [" ".join(str(value) for value in np.ravel(sample)) for sample in data]


def _is_tensor(data: object) -> bool:
    """Whether this is an array, or a list of numbers or of such lists."""
    if isinstance(data, np.ndarray):
        return True
    return isinstance(data, list) and all(
        isinstance(d, Number) or (isinstance(d, list) and d and _is_tensor(d)) for d in data
    )
