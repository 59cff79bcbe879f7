"""Axes of variables: static (an index), dynamic (a name, ordered or not) and the special ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from .errors import AxisError

AxisLike: TypeAlias = "Axis | int"
AxesLike: TypeAlias = "Axis | Sequence[Axis] | None"
_NAMES: dict[str, int] = {}  # names in use: the number of unique axes that were derived from each


class Answer(int):
    """True or False, as a value and as a method that returns it.

    >>> Answer(True), Answer(False)()
    (True, False)
    """

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class Axis:
    """An axis of a variable.

    ``Axis(i)`` is the static axis ``i`` of the sample shape (negative counts from the end), ``Axis('name')`` a dynamic
    axis; the batch axis and the default sequence axis come from the class methods.

    >>> Axis(1), Axis.default_batch_axis()
    (Axis('staticAxisIdx=1'), Axis('defaultBatchAxis'))
    >>> Axis('words').is_sequence_axis
    True
    """

    __slots__ = ("_index", "_lengths", "_name", "_ordered")

    def __init__(self, axis: int | str | Axis, is_ordered: bool = True) -> None:
        self._index: int | None = None
        self._name: str | None = None
        self._lengths: str | None = None
        self._ordered: bool = True
        if isinstance(axis, Axis):
            self._index, self._name, self._ordered = axis._index, axis._name, axis._ordered
            self._lengths = axis._lengths
        elif isinstance(axis, str):
            self._name, self._ordered = axis, is_ordered
            _NAMES.setdefault(axis, 0)
        else:
            self._index = int(axis)

    def with_lengths(self, source: str) -> Axis:
        """The axis of that name whose sequences have the lengths of `source`, distinct from those of other lengths."""
        axis = Axis(self)
        axis._lengths = source
        return axis

    @property
    def name(self) -> str:
        """CNTK's name of the axis; static axes are named by their index."""
        return self._name if self._name is not None else f"staticAxisIdx={self._index}"

    @property
    def is_ordered(self) -> bool:
        """True for static axes and sequence axes."""
        return self._ordered

    @property
    def is_static_axis(self) -> bool:
        """True for an axis of the sample shape."""
        return self._index is not None

    @property
    def is_dynamic_axis(self) -> Answer:
        """True for the batch axis and sequence axes. In CNTK it is a method, so it can be called too."""
        return Answer(self._is_dynamic)

    @property
    def _is_dynamic(self) -> bool:
        return self._name is not None and self._name not in _SPECIAL_NAMES

    @property
    def is_sequence_axis(self) -> bool:
        """True for an ordered dynamic axis."""
        return self._ordered and self._is_dynamic

    @property
    def is_batch_axis(self) -> bool:
        """True for a dynamic axis without order."""
        return not self._ordered and self._is_dynamic

    def static_axis_index(self, checked: bool = True) -> int:
        """The index of a static axis; for others AxisError, or the largest 32-bit integer if not `checked`."""
        if self._index is None:
            if checked:
                raise AxisError(f"{self!r} is not a static axis, so it has no index: check is_static_axis first")
            return 2**31 - 1
        return self._index

    @staticmethod
    def default_batch_axis() -> Axis:
        """The axis of the samples (or sequences) of a minibatch."""
        return BATCH

    @staticmethod
    def default_dynamic_axis() -> Axis:
        """The default sequence axis."""
        return SEQUENCE

    @staticmethod
    def default_input_variable_dynamic_axes() -> tuple[Axis, ...]:
        """Batch and sequence axis. As in CNTK, and despite the name, input_variable has the batch axis only."""
        return BATCH, SEQUENCE

    @staticmethod
    def unknown_dynamic_axes() -> tuple[Axis, ...]:
        """The dynamic axes of a placeholder, which are still to be inferred."""
        return UNKNOWN_AXES

    @staticmethod
    def all_axes() -> Axis:
        """All static and dynamic axes together."""
        return ALL_AXES

    @staticmethod
    def all_static_axes() -> Axis:
        """All static axes together."""
        return ALL_STATIC

    @staticmethod
    def end_static_axis() -> Axis:
        """One past the static axes in CNTK's order, which is that of Python reversed: a new axis in front."""
        return END_STATIC

    new_leading_axis = end_static_axis

    @staticmethod
    def operand_sequence_axis() -> Axis:
        """An ordered axis by whose name files mean the sequence axis of an operand."""
        return Axis("__operandSequenceAxis")

    @staticmethod
    def new_unique_dynamic_axis(name: str) -> Axis:
        """A new sequence axis, distinct from all others: of that name, with a number appended if the name is in use.

        >>> first, second = Axis.new_unique_dynamic_axis('question'), Axis.new_unique_dynamic_axis('question')
        >>> first == second, second.name.startswith('question')
        (False, True)
        """
        unique = name
        while unique in _NAMES:
            _NAMES[name] += 1
            unique = f"{name}{_NAMES[name]}"
        return Axis(unique)

    def __eq__(self, other: object) -> bool:
        mine = (self._index, self._name, self._lengths)
        return isinstance(other, Axis) and mine == (other._index, other._name, other._lengths)

    def __hash__(self) -> int:
        return hash((self._index, self._name, self._lengths))

    def __repr__(self) -> str:
        """As it is printed."""
        return f"Axis('{self.name}')"

    as_string = __repr__


BATCH = Axis("defaultBatchAxis", is_ordered=False)
SEQUENCE = Axis("defaultDynamicAxis")
UNKNOWN = Axis("UnknownAxes", is_ordered=False)
ALL_AXES = Axis("AllAxes", is_ordered=False)
ALL_STATIC = Axis("AllStaticAxes", is_ordered=False)
END_STATIC = Axis(2**31 - 4)  # CNTK's number
UNKNOWN_AXES = (UNKNOWN,)
_SPECIAL_NAMES = frozenset(axis.name for axis in (UNKNOWN, ALL_AXES, ALL_STATIC))


def axes_text(axes: Iterable[Axis]) -> str:
    """``[#, *]``, as CNTK prints dynamic axes."""
    signs = {BATCH: "#", SEQUENCE: "*", UNKNOWN: "???"}
    return "[%s]" % ", ".join(signs.get(a, a.name) for a in axes)
