"""Vectorized parsing of numbers: a few array operations for each character of the longest number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_ZERO, _PLUS, _MINUS, _DOT, _E = np.frombuffer(b"0+-.e", np.uint8)
POWERS_OF_TEN = np.array([float(f"1e{n}") for n in range(309)])
"""The float64 numbers that are next to 1, 10, 100, ..."""
_BATCH = 1 << 15  # numbers at a time, so that intermediate arrays stay in the cache
_LONGEST = 512  # characters of a number; a longer one means a damaged file


def parse_numbers(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parse decimal numbers of CTF files: ``[+-] digits [. [digits]] [e [+-] digits]``, no leading point, nan or inf.

    Shapes: text uint8 [bytes]; begins, ends int [numbers] -> values float64 [numbers], valid bool [numbers]
    Units:  values are exact up to 15 digits; beyond, the relative error is about 1e-16.

    >>> text = np.frombuffer(b"-1.25 3e2 .5", np.uint8)
    >>> values, valid = parse_numbers(text, np.array([0, 6, 10]), np.array([5, 9, 12]))
    >>> values[:2], valid
    (array([ -1.25, 300.  ]), array([ True,  True, False]))
    """
    with_exponent, positions = _exponents(text, begins, ends)
    if len(with_exponent) == 0:
        values, valid, places = _decimals(text, begins, ends)
        return _scaled(values, -places), valid
    mantissa_ends = ends.copy()
    mantissa_ends[with_exponent] = positions
    values, valid, places = _decimals(text, begins, mantissa_ends)
    exponents, is_number, exponent_places = _decimals(text, positions + 1, ends[with_exponent])
    valid[with_exponent] &= is_number & (exponent_places == 0) & (text[ends[with_exponent] - 1] != _DOT)
    scale = -places.astype(np.float64)
    scale[with_exponent] += exponents
    return _scaled(values, scale), valid


def _exponents(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers have an exponent, and the position of the first e in each."""
    e = np.flatnonzero((text | 32) == _E)
    number = np.searchsorted(begins, e, "right") - 1
    inside = number >= 0
    inside[inside] = e[inside] < ends[number[inside]]
    number, first = np.unique(number[inside], return_index=True)
    return number, e[inside][first]


def _scaled(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """``values * 10**scale``. Division by a power of ten is exact where multiplication by its inverse is not."""
    if not scale.any():
        return values
    powers = np.clip(scale, -308, 308).astype(np.int16)  # beyond, everything is zero or infinite in float32
    with np.errstate(over="ignore"):
        return np.where(
            powers < 0, values / POWERS_OF_TEN[np.maximum(-powers, 0)], values * POWERS_OF_TEN[np.maximum(powers, 0)]
        )


def parse_decimal(text: str, limit: int = 2**63 - 1) -> int | None:
    """The number that ASCII digits denote; None for any other text, and for numbers above the limit.

    >>> parse_decimal("007"), parse_decimal("-7"), parse_decimal("7" * 5000)
    (7, None, None)
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(limit)):  # Python converts thousands of digits slowly, or refuses to
        return None
    number = int(digits)
    return number if number <= limit else None


def parse_integers(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parse numbers that consist of digits only.

    Shapes: as ``parse_numbers``; values int64 [numbers], undefined where not valid.

    >>> parse_integers(np.frombuffer(b"12 +3", np.uint8), np.array([0, 3]), np.array([2, 5]))[1]
    array([ True, False])
    """
    values, valid = np.zeros(len(begins), np.int64), np.zeros(len(begins), bool)
    for which, characters in _columns(text, begins, ends):
        digits = characters - _ZERO
        valid[which] = (digits < 10).all(0) & (len(digits) <= 18)
        values[which] = _horner(digits, np.int64)
    return values, valid


def _decimals(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers without exponent: values without the point, whether they are valid, and digits after the point."""
    values, valid = np.zeros(len(begins)), np.zeros(len(begins), bool)
    places = np.zeros(len(begins), np.int16)
    for which, characters in _columns(text, begins, ends):
        for group, point in _by_point(characters == _DOT):
            numbers, columns = (which, characters) if group is None else (which[group], characters[:, group])
            values[numbers], valid[numbers] = _digits(columns if point < 0 else np.delete(columns, point, 0), point)
            places[numbers] = len(columns) - 1 - point if point >= 0 else 0
    return values, valid, places


def _by_point(dots: np.ndarray) -> Iterator[tuple[np.ndarray | None, int]]:
    """Groups of equally long numbers by the position of the point (-1: no point); None means all of them."""
    if not dots.any():
        yield None, -1
        return
    point = np.where(dots.any(0), dots.argmax(0), -1)
    for place in np.flatnonzero(np.bincount(point + 1)) - 1:
        group = np.flatnonzero(point == place)
        yield (None if len(group) == len(point) else group), int(place)


def _digits(characters: np.ndarray, point: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers with or without sign. A point was removed from this position; it needs a digit before it."""
    digits = characters - _ZERO
    is_digit = digits < 10
    if point == 0 or len(digits) == 0:
        return np.zeros(digits.shape[1]), np.zeros(digits.shape[1], bool)
    if is_digit.all():
        return _horner(digits, np.float64), np.ones(digits.shape[1], bool)
    negative = characters[0] == _MINUS
    signed = (negative | (characters[0] == _PLUS)) & (len(digits) > 1) & (point != 1)
    digits[0, signed] = 0
    value = _horner(digits, np.float64)
    return np.where(negative, -value, value), (is_digit[0] | signed) & is_digit[1:].all(0)


def _horner(digits: np.ndarray, dtype: type) -> np.ndarray:
    """Numbers from their digits. Shapes: uint8 [digits, numbers] -> [numbers]."""
    value = digits[0].astype(dtype)
    with np.errstate(over="ignore"):
        for digit in digits[1:]:
            value *= 10
            value += digit
    return value


def _columns(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Groups of equally long numbers: their indices, and their characters, uint8 [length, numbers]."""
    for first in range(0, len(begins), _BATCH):
        begin = begins[first : first + _BATCH]
        lengths = ends[first : first + _BATCH] - begin
        for length in np.flatnonzero(np.bincount(np.clip(lengths, 0, _LONGEST + 1))):
            if 0 < length <= _LONGEST:
                which = np.flatnonzero(lengths == length)
                yield first + which, text[begin[which] + np.arange(length)[:, None]]
