"""Many numbers at once: from the bytes of a text to arrays, with a few operations for each character of the longest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_ZERO, _PLUS, _MINUS, _DOT, _E = np.frombuffer(b"0+-.e", np.uint8)
_BATCH = 1 << 14  # numbers at a time: intermediate arrays stay in the cache
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
    mantissa_ends, exponents = ends, np.zeros(len(begins))
    exponent_valid: np.ndarray | bool = True
    e = np.flatnonzero((text | 32) == _E)
    if len(e):
        at = np.searchsorted(e, begins)
        found = e[np.minimum(at, len(e) - 1)]
        has = (at < len(e)) & (found < ends)
        mantissa_ends = np.where(has, found, ends)
        exponents[has], is_integer, places = _decimals(text, found[has] + 1, ends[has])
        exponent_valid = np.ones(len(begins), bool)
        exponent_valid[has] = is_integer & (places < 0)
    values, valid, places = _decimals(text, begins, mantissa_ends)
    scale = exponents - np.maximum(places, 0)
    if scale.any():
        with np.errstate(over="ignore", invalid="ignore"):
            # Dividing by a power of ten is exact where multiplying with its inverse is not.
            values = np.where(scale < 0, values / 10.0**-scale, values * 10.0**scale)
    return values, valid & exponent_valid


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
    """Numbers without exponent: the value as if it had no point, whether it is one, digits behind the point or -1."""
    values, valid = np.zeros(len(begins)), np.zeros(len(begins), bool)
    places = np.full(len(begins), -1)
    for which, characters in _columns(text, begins, ends):
        digits = characters - _ZERO
        is_digit = digits < 10
        if is_digit.all():
            values[which], valid[which] = _horner(digits, np.float64), True
            continue
        negative, dots = characters[0] == _MINUS, characters == _DOT
        signed = negative | (characters[0] == _PLUS)
        legal = is_digit | dots
        legal[0] = is_digit[0] | signed
        if len(characters) > 1:
            legal[1] &= is_digit[1] | ~signed  # a digit before the point
        else:
            legal[0] = is_digit[0]
        value = np.zeros(len(negative))
        for digit, counts in zip(digits, is_digit, strict=True):
            value *= np.where(counts, 10.0, 1.0)
            value += np.where(counts, digit, 0)
        values[which] = np.where(negative, -value, value)
        valid[which] = legal.all(0) & (dots.sum(0) <= 1)
        places[which] = np.where(dots.any(0), len(dots) - 1 - dots.argmax(0), -1)
    return values, valid, places


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
