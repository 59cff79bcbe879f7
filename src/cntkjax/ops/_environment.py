"""What a graph knows of its use."""

from __future__ import annotations

import numpy as np

from .._typing import ElementType
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import public
from ..graph.dtypes import as_dtype
from ..primitives.legacy import EnvironmentInput
from ._blocks import node
from .functions import Function

__all__ = ["is_training"]


@public
def is_training(
    dtype: ElementType | default_override_or | None = default_override_or(np.float32), name: str = ""
) -> Function:
    """1 in training, 0 in evaluations and tests. Not in CNTK's Python API, whose other operations see a constant.

    CNTK 2 cannot load models that have it.

    Shapes: -> [], without dynamic axes.
    Source: ``EnvironmentInput ('isTraining')`` of BrainScript.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, needs_gradient=True)
    >>> z = C.element_select(is_training(), 3 * x, x)
    >>> z.eval({x: [[1, 1]]}), z.grad({x: [[1, 1]]})
    (array([[1., 1.]], dtype=float32), array([[3., 3.]], dtype=float32))
    """
    element_type = as_dtype(get_default_override(is_training, dtype=dtype) or np.float32)
    return node(EnvironmentInput, [], {"propertyName": "isTraining", "newDataType": element_type}, name)
