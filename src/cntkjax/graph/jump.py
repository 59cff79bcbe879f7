"""Jumps of the 64-bit Mersenne Twister over any number of its numbers, in less than a second.

Its state after k numbers is A^k times the state before, for a matrix A over GF(2). With x^k modulo the characteristic
polynomial of A, a sum of lower powers of x, that is a sum of the next states.

Polynomials over GF(2) are integers here: bit i is the coefficient of x^i.

Source: Haramoto, Matsumoto, Nishimura, Panneton and L'Ecuyer, "Efficient jump ahead for F2-linear random number
generators", INFORMS J. Computing 20 (2008); Massey, "Shift-register synthesis and BCH decoding", IEEE Trans. Inf.
Theory 15 (1969).
"""

from __future__ import annotations

from functools import cache

import numpy as np

_SIZE, _MIDDLE = 312, 156
_UPPER, _LOWER, _TWIST = np.uint64(0xFFFFFFFF80000000), np.uint64(0x7FFFFFFF), np.uint64(0xB5026F5AA96619E9)
_DEGREE = 19937


def jumped(state: np.ndarray, number: int) -> np.ndarray:
    """The state after so many numbers. Shapes: uint64 [312] -> [312].

    The 31 bits of the first word that later numbers do not depend on may differ.
    """
    power = _power(number)
    words = _words(state, _DEGREE)
    result = np.zeros(_SIZE, np.uint64)
    for i in np.flatnonzero(_bits(power, _DEGREE)):
        result ^= words[i : i + _SIZE]
    return result


def _words(state: np.ndarray, number: int) -> np.ndarray:
    """The state, and the words of so many later ones. Shapes: [312] -> [312 + number]."""
    words = np.concatenate([state, np.empty(number, np.uint64)])
    for begin in range(0, number, _MIDDLE):  # so many do not depend on one another
        end = min(begin + _MIDDLE, number)
        x = (words[begin:end] & _UPPER) | (words[begin + 1 : end + 1] & _LOWER)
        words[_SIZE + begin : _SIZE + end] = (
            words[_MIDDLE + begin : _MIDDLE + end] ^ (x >> np.uint64(1)) ^ ((x & np.uint64(1)) * _TWIST)
        )
    return words


@cache
def _characteristic() -> int:
    """The characteristic polynomial, by the Berlekamp-Massey algorithm from one bit of the words."""
    words = _words(np.arange(1, _SIZE + 1, dtype=np.uint64), _SIZE + 2 * _DEGREE)[2 * _SIZE :]
    connection, before, shift, length, seen = 1, 1, 1, 0, 0
    for n, bit in enumerate((words & np.uint64(1)).tolist()):
        seen = seen << 1 | bit  # bit i is the one i steps ago
        if (connection & seen).bit_count() % 2 == 0:
            shift += 1
        elif 2 * length <= n:
            connection, before, shift, length = connection ^ before << shift, connection, 1, n + 1 - length
        else:
            connection ^= before << shift
            shift += 1
    assert length == _DEGREE
    return int(f"{connection:0{_DEGREE + 1}b}"[::-1], 2)


def _power(number: int) -> int:
    """x to this power, modulo the characteristic polynomial."""
    result = 1
    for bit in f"{number:b}":
        result = _rest(_squared(result) << (bit == "1"))
    return result


def _squared(polynomial: int) -> int:
    """Its square, which has its coefficients at even powers."""
    bits = np.zeros(2 * _DEGREE, np.uint8)
    bits[::2] = _bits(polynomial, _DEGREE)
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _bits(polynomial: int, number: int) -> np.ndarray:
    data = polynomial.to_bytes(-(-number // 8), "little")
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:number]


@cache
def _multiples() -> list[int]:
    """Multiples of the characteristic polynomial by their eight highest bits, of which bit 0 belongs to x^degree."""
    multiples = [0]
    for top in range(1, 256):
        multiple = _characteristic() << top.bit_length() - 1
        multiples.append(multiple ^ multiples[multiple >> _DEGREE ^ top])
    return multiples


def _rest(polynomial: int) -> int:
    """The rest of a division by the characteristic polynomial."""
    for place in range(8 * (max(polynomial.bit_length() - _DEGREE, 0) // 8), -1, -8):
        polynomial ^= _multiples()[polynomial >> _DEGREE + place] << place
    return polynomial


__all__ = ["jumped"]
