"""Dictionaries and values as objects of their own, as scripts take them from CNTK's compiled module."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _files
from .dictionary import buffers, decode, decode_value, encode_value, kind_of


class Dictionary(dict):
    """Named values that can be written to a file: what a model, a checkpoint or a configuration is made of.

    Example:
        >>> Dictionary(a=1, b=[2.5, "x"]).size()
        2
    """

    def add(self, other: Mapping[str, Any]) -> None:
        """Take over the values of another one."""
        self.update(other)

    def contains(self, key: str) -> bool:
        """Whether there is a value of that name."""
        return key in self

    def size(self) -> int:
        """How many values there are."""
        return len(self)

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write it to a file. Errors: TypeError for a value that the format cannot hold."""
        _files.write((filename, buffers(self)))

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> Dictionary:
        """Read it from a file. Errors: FormatError if that is damaged; ValueError if there is none."""
        return Dictionary(decode(*_files.read(filename, "dictionary")))


class DictionaryValue:
    """One value of a dictionary: a number, text, array, list or dict.

    Example:
        >>> DictionaryValue([1, "a"]) == DictionaryValue([1, "a"])
        True
    """

    (Type__none, Type_Bool, Type_Int, Type_SizeT, Type_Float, Type_Double, Type_String, Type_NDShape, Type_Axis,
     Type_Vector, Type_Dictionary, Type_NDArrayView) = range(12)  # fmt: skip

    def __init__(self, value: Any = None) -> None:
        self.value = bare(value)
        encode_value(self.value)  # a TypeError says what the format cannot hold

    def has_value(self) -> bool:
        """Whether there is anything in it."""
        return self.value is not None

    def value_type(self) -> int:
        """The number of its type, as ``DictionaryValue.Type_Int``."""
        return kind_of(self.value)

    @staticmethod
    def type_name(value_type: int) -> str:
        """The name of a type by its number. Errors: RuntimeError for an unknown one.

        >>> DictionaryValue.type_name(DictionaryValue(2.5).value_type())
        'Double'
        """
        names = {number: name for name, number in vars(DictionaryValue).items() if name.startswith("Type_")}
        if value_type not in names:
            raise RuntimeError(f"DictionaryValue: there is no type {value_type!r}")
        return names[value_type].removeprefix("Type_").replace("_none", "None")

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        _files.write((filename, [encode_value(self.value)]))

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> DictionaryValue:
        """Read it from a file. Errors: FormatError if that is damaged; ValueError if there is none."""
        return DictionaryValue(decode_value(*_files.read(filename, "value")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictionaryValue) and encode_value(self.value) == encode_value(other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DictionaryValue({self.value!r})"


def to_dictionary_value(value: Any) -> DictionaryValue:
    """A value as an object of its own; one that is already stays.

    Errors: TypeError for what the format cannot hold.

    Example:
        >>> to_dictionary_value(3)
        DictionaryValue(3)
    """
    return value if isinstance(value, DictionaryValue) else DictionaryValue(value)


def bare(value: Any) -> Any:
    """What an object like that holds, also inside of lists and dicts.

    Example:
        >>> bare({"a": [DictionaryValue(3)], "b": 1.5})
        {'a': [3], 'b': 1.5}
    """
    if isinstance(value, DictionaryValue):
        return bare(value.value)
    if isinstance(value, Mapping):
        return {k: bare(v) for k, v in value.items()}
    return [bare(v) for v in value] if isinstance(value, list) else value


__all__ = ["Dictionary", "DictionaryValue", "bare", "to_dictionary_value"]
