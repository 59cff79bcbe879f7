"""Many numbers at once: from the bytes of a text to arrays, with a few operations for each character of the longest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_ZERO, _PLUS, _MINUS, _DOT, _E = np.frombuffer(b"0+-.e", np.uint8)
_POWERS = 10.0 ** np.arange(23)  # those that float64 has exactly
_BATCH = 1 << 15  # numbers at a time: intermediate arrays stay in the cache
_LONGEST = 512  # characters of a number; more is a damaged file


def parse_numbers(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decimal numbers ``[+-] digits [. [digits]] [e [+-] digits]``, as CTF has them: no leading point, no nan, no inf.

    Shapes: text uint8 [bytes]; begins, ends int [numbers] -> values float64 [numbers], valid bool [numbers]
    Units:  values are exact up to 15 digits, further digits count to about 1e-16 of the value.

    Example:
        >>> text = np.frombuffer(b"-1.25 3e2 .5", np.uint8)
        >>> values, valid = parse_numbers(text, np.array([0, 6, 10]), np.array([5, 9, 12]))
        >>> values[:2], valid
        (array([ -1.25, 300.  ]), array([ True,  True, False]))
    """
    with_exponent, at = _exponents(text, begins, ends)
    if len(with_exponent) == 0:
        values, valid, places = _decimals(text, begins, ends)
        return _scaled(values, -places), valid
    mantissa_ends = ends.copy()
    mantissa_ends[with_exponent] = at
    values, valid, places = _decimals(text, begins, mantissa_ends)
    exponents, is_number, exponent_places = _decimals(text, at + 1, ends[with_exponent])
    valid[with_exponent] &= is_number & (exponent_places == 0) & (text[ends[with_exponent] - 1] != _DOT)
    scale = -places.astype(np.float64)
    scale[with_exponent] += exponents
    return _scaled(values, scale), valid


def _exponents(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers have an e, and where the first one is."""
    e = np.flatnonzero((text | 32) == _E)
    number = np.searchsorted(begins, e, "right") - 1
    inside = number >= 0
    inside[inside] = e[inside] < ends[number[inside]]
    number, first = np.unique(number[inside], return_index=True)
    return number, e[inside][first]


def _scaled(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Times ten to the power of ``scale``; dividing by a power is exact where multiplying with its inverse is not."""
    if not scale.any():
        return values
    if (scale <= 0).all() and scale.min() > -len(_POWERS):
        return values / _POWERS[(-scale).astype(np.int8)]
    scale = np.clip(scale, -308, 308)  # beyond, everything is zero or infinite as float32
    with np.errstate(over="ignore"):
        return np.where(scale < 0, values / 10.0 ** np.maximum(-scale, 0), values * 10.0 ** np.maximum(scale, 0))


def parse_integers(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Digits only. Shapes: as ``parse_numbers``; values int64, meaningless where not valid.

    Example:
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
    """Numbers without exponent: the values as if they had no point, whether they are any, digits behind the point."""
    values, valid = np.zeros(len(begins)), np.zeros(len(begins), bool)
    places = np.zeros(len(begins), np.int16)
    for which, characters in _columns(text, begins, ends):
        for some, point in _by_point(characters == _DOT):
            where, these = (which, characters) if some is None else (which[some], characters[:, some])
            values[where], valid[where] = _digits(these if point < 0 else np.delete(these, point, 0), point)
            places[where] = len(these) - 1 - point if point >= 0 else 0
    return values, valid, places


def _by_point(dots: np.ndarray) -> Iterator[tuple[np.ndarray | None, int]]:
    """Groups of numbers of the same length with the point at the same place; None: all of them; -1: no point."""
    if not dots.any():
        yield None, -1
        return
    point = np.where(dots.any(0), dots.argmax(0), -1)
    for place in np.flatnonzero(np.bincount(point + 1)) - 1:
        some = np.flatnonzero(point == place)
        yield (None if len(some) == len(point) else some), int(place)


def _digits(characters: np.ndarray, point: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers with or without sign, of which the point was taken away; a point has a digit before it."""
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
    value = digits[0].astype(dtype)
    for digit in digits[1:]:
        value *= 10
        value += digit
    return value


def _columns(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Groups of numbers of equal length: which they are, and their characters, uint8 [length, numbers]."""
    for first in range(0, len(begins), _BATCH):
        begin = begins[first : first + _BATCH]
        lengths = ends[first : first + _BATCH] - begin
        for length in np.flatnonzero(np.bincount(np.clip(lengths, 0, _LONGEST + 1))):
            if 0 < length <= _LONGEST:
                which = np.flatnonzero(lengths == length)
                yield first + which, text[begin[which] + np.arange(length)[:, None]]
