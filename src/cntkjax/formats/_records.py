"""Entries of dictionaries from files, which have to be there and of the right type before they are believed."""

from __future__ import annotations

from typing import Any

from .dictionary import FormatError

_MAY_LACK = {"name": "", "attributes": {}}


def take(record: Any, key: str, kind: type, where: str) -> Any:
    """An entry of a record, which has to be there and of that type; names and attributes may be left out."""
    if not isinstance(record, dict):
        raise FormatError(f"{where} is {record!r}, not a dictionary")
    value = record.get(key, _MAY_LACK.get(key))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        there = f"of type {type(value).__name__}, not {kind.__name__}" if key in record else "missing"
        raise FormatError(f"{where}: {key} is {there}")
    return value


def texts(record: dict[str, Any], key: str, where: str) -> list[str]:
    items = take(record, key, list, where)
    if not all(isinstance(item, str) for item in items):
        raise FormatError(f"{where}: {key} lists something else than names")
    return items


def check_version(record: Any, newest: int, where: str, key: str = "version") -> None:
    version = take(record, key, int, where)
    if version > newest:
        raise FormatError(f"{where} has version {version}; the newest that CNTK 2.7 has is {newest}")
