"""`Dictionary` and `DictionaryValue`, the classes of CNTK's compiled module that scripts use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..graph.errors import explain
from . import files
from .dictionary import buffers, decode, decode_value, encode_value, kind_of


class Dictionary(dict):
    """Named values that can be written to a file; models, checkpoints and configurations are Dictionaries.

    >>> Dictionary(a=1, b=[2.5, "x"]).size()
    2
    """

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the values of another dictionary, which replace those of the same names."""
        self.update(other)

    def contains(self, key: str) -> bool:
        """Whether the dictionary has a value of that name."""
        return key in self

    def size(self) -> int:
        """The number of values."""
        return len(self)

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write the dictionary to a file. Errors: TypeError for a value that the format cannot hold."""
        files.write((filename, buffers(self)))

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> Dictionary:
        """Read a dictionary from a file. Errors: FormatError if it is damaged; ValueError if it does not exist."""
        return Dictionary(decode(*files.read(filename, "dictionary")))


class DictionaryValue:
    """One value of a dictionary: a number, text, array, list or dict.

    >>> DictionaryValue([1, "a"]) == DictionaryValue([1, "a"])
    True
    """

    (Type__none, Type_Bool, Type_Int, Type_SizeT, Type_Float, Type_Double, Type_String, Type_NDShape, Type_Axis,
     Type_Vector, Type_Dictionary, Type_NDArrayView) = range(12)

    def __init__(self, value: object = None) -> None:
        self.value = unwrap_values(value)
        encode_value(self.value)  # raises the TypeError for a value that the format cannot hold

    def has_value(self) -> bool:
        """Whether the value is not None."""
        return self.value is not None

    def value_type(self) -> int:
        """The number of the value's type, such as ``DictionaryValue.Type_Int``."""
        return kind_of(self.value)

    @staticmethod
    def type_name(value_type: int) -> str:
        """The name of a type by its number. Errors: RuntimeError for an unknown one.

        >>> DictionaryValue.type_name(DictionaryValue(2.5).value_type())
        'Double'
        """
        names = {number: name for name, number in vars(DictionaryValue).items() if name.startswith("Type_")}
        if value_type not in names:
            raise RuntimeError(explain(
                f"DictionaryValue: there is no type {value_type!r}",
                fix=f"pass one of the numbers DictionaryValue.Type_..., 0 to {max(names)}",
            ))
        return names[value_type].removeprefix("Type_").replace("_none", "None")

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write the value to a file."""
        files.write((filename, [encode_value(self.value)]))

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> DictionaryValue:
        """Read a value from a file. Errors: FormatError if it is damaged; ValueError if it does not exist."""
        return DictionaryValue(decode_value(*files.read(filename, "value")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictionaryValue) and encode_value(self.value) == encode_value(other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DictionaryValue({self.value!r})"


def to_dictionary_value(value: object) -> DictionaryValue:
    """A value wrapped in a DictionaryValue; a DictionaryValue is returned unchanged.

    Errors: TypeError for a value that the format cannot hold.

    >>> to_dictionary_value(3)
    DictionaryValue(3)
    """
    return value if isinstance(value, DictionaryValue) else DictionaryValue(value)


def unwrap_values(value: Any) -> Any:
    """The plain values that DictionaryValues wrap, also inside lists and dicts.

    >>> unwrap_values({"a": [DictionaryValue(3)], "b": 1.5})
    {'a': [3], 'b': 1.5}
    """
    if isinstance(value, DictionaryValue):
        return unwrap_values(value.value)
    if isinstance(value, Mapping):
        return {k: unwrap_values(v) for k, v in value.items()}
    return [unwrap_values(v) for v in value] if isinstance(value, list) else value


__all__ = ["Dictionary", "DictionaryValue", "to_dictionary_value", "unwrap_values"]
