"""Attributes of operations in the form in which CNTK presents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats.attributes import axis_record, dtype_number
from ..formats.dictionary import SizeT
from ..graph.axis import Axis


def shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Axes as tuples, with static axes counted from the last one as in model files; per-axis flags in axis order.

    Numbers are Python's own, which json writes.

    >>> shown({'axis': Axis(-1), 'autoPadding': [True, False], 'strides': (1, 2)})
    {'axis': ('ordered', 'static', 0), 'autoPadding': [False, True], 'strides': (1, 2)}
    """
    return {name: _shown(value) for name, value in attributes.items()}


def _shown(value: object) -> object:
    if isinstance(value, Axis):
        order = "ordered" if value.is_ordered else "unordered"
        return (order, "static", axis_record(value).number) if value.is_static_axis else (order, "dynamic", value.name)
    if isinstance(value, list):
        items = [_shown(v) for v in value]
        return items[::-1] if items and all(isinstance(v, bool) for v in items) else items
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, type):
        value = dtype_number(value)
    return int(value) if isinstance(value, SizeT) else value
