"""Names of parameters in dictionaries."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph.arguments import public
from ..graph.names import numbered
from ..graph.variable import Leaf, kind_of


@public
def leaf_names(leaves: Iterable[Leaf]) -> dict[str, Leaf]:
    """Parameters or constants by name, in their order; repeated names are numbered, ``W``, ``W_1``, ...

    A leaf without a name has that of its kind. The names depend on the graph alone.

    >>> import cntkjax as C
    >>> list(leaf_names([C.parameter(1, name='W'), C.parameter(1), C.parameter(1, name='W')]))
    ['W', 'Parameter', 'W_1']
    """
    named: dict[str, Leaf] = {}
    for leaf in leaves:
        named[numbered(leaf.name or kind_of(leaf).name, named)] = leaf
    return named
