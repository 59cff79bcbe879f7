"""Access to the entries of dictionaries from files, whose presence and types are checked first."""

from __future__ import annotations

from typing import TypeVar

from .dictionary import FormatError

_OPTIONAL: dict[str, object] = {  # what some files of CNTK lack, those of its earlier versions above all
    "name": "", "attributes": {}, "state": {}, "Version": 1, "DistributedState": {}, "noise_injection_seed": 0,
}

T = TypeVar("T")


def take(record: object, key: str, kind: type[T], where: str) -> T:
    """An entry of a record; some entries are optional. ``where`` names the record in errors.

    Errors: FormatError if the entry is missing or of another type, or if ``record`` is no dictionary.
    """
    if not isinstance(record, dict):
        raise FormatError(f"{where} is {record!r}, not a dictionary")
    value = record.get(key, _OPTIONAL.get(key))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        problem = f"of type {_name(type(value))}, not {_name(kind)}" if key in record else "missing"
        raise FormatError(f"{where}: {key} is {problem}")
    return value


def _name(kind: type) -> str:
    """What users call a type: a shape in a file is a shape."""
    return kind.__name__.removeprefix("Stored")


def take_names(record: object, key: str, where: str) -> list[str]:
    """An entry that is a list of names. Errors: FormatError if it is missing or has other items."""
    items = take(record, key, list, where)
    if not all(isinstance(item, str) for item in items):
        raise FormatError(f"{where}: {key} has entries that are not names")
    return items


def check_version(record: object, newest: int, where: str, key: str = "version") -> int:
    """The version of a record. Errors: FormatError if it is missing, or later than the ``newest`` known one."""
    version = take(record, key, int, where)
    if version > newest:
        raise FormatError(
            f"{where} has version {version}; the newest that CNTK 2.7 has is {newest}", fix="save it with CNTK 2.7"
        )
    return version
