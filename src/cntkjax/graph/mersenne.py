"""CNTK's random numbers on the CPU: the same seed gives the same numbers as in CNTK.

CNTK 2.7 draws uniform numbers from the 64 bit Mersenne Twister of the C++ standard library, and normal numbers by the
ziggurat method with 128 strips. Both were inferred from the values of its parameters, which are equal bit by bit in
32 bits.

Sources: Nishimura, "Tables of 64-bit Mersenne twisters", ACM TOMACS 10 (2000); Marsaglia and Tsang, "The ziggurat
method for generating random variables", J. Stat. Software 5 (2000); Marsaglia, "Generating a variable from the tail of
the normal distribution", Technometrics 6 (1964).
"""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache, lru_cache

import numpy as np

from .._build_native import MERSENNE
from .jump import jumped

_VERSION = 1  # as in mersenne.c
_SIZE = 312  # numbers of state
PIECE = 2**15  # numbers drawn at once: intermediate results stay in the processor's cache
_FAR = 2**27  # numbers that take longer to draw than a jump over them
_TAIL = "3.442619855896652121432049"  # start of the tail
_AREA = "0.009912563035336461079069"  # of each strip
_REST = 64  # lookahead for the last number of a piece: more draws than any tail takes
_SPAN = 2.0**64
_UNSEEDED = np.random.SeedSequence(0)  # the state it gives is overwritten at once


@cache
def _library() -> ctypes.CDLL | None:
    """The library of `mersenne.c`, unless it is missing, or was built from another version of the source."""
    try:
        library = ctypes.CDLL(str(MERSENNE.path))
        version, draw = library.cntkjax_mersenne_version, library.cntkjax_mersenne_draw
    except (OSError, AttributeError):
        return None
    version.restype, draw.restype = ctypes.c_int64, None
    draw.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    return library if version() == _VERSION else None


def _drawing(state: np.ndarray) -> Callable[[int], np.ndarray]:
    """A function that draws the next numbers, by the library or else by `randomgen` (which is slow to import)."""
    library, place = _library(), np.array([_SIZE], np.int64)
    if library is None:
        from randomgen import MT64

        bits = MT64(_UNSEEDED)
        bits.state = bits.state | {"state": {"key": state, "pos": _SIZE}}
        return bits.random_raw

    def draw(number: int) -> np.ndarray:
        numbers = np.empty(number, np.uint64)
        library.cntkjax_mersenne_draw(state.ctypes.data, place.ctypes.data, numbers.ctypes.data, number)
        return numbers

    return draw


class MersenneTwister64:
    """A stream of random numbers. `offset`: how many of the first ones are left out.

    >>> MersenneTwister64(5489).raw(10000)[-1]  # the check of the C++ standard
    np.uint64(9981545732273789042)
    """

    def __init__(self, seed: int, offset: int = 0) -> None:
        state = [seed % 2**64]
        for place in range(1, _SIZE):
            state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + place) % 2**64)
        is_far = offset >= _FAR
        words = np.array(state, np.uint64)
        self._draw = _drawing(jumped(words, offset) if is_far else words)
        for left in range(0 if is_far else offset, 0, -PIECE):
            self._draw(min(left, PIECE))
        self._unread = np.empty(0, np.uint64)

    def raw(self, number: int) -> np.ndarray:
        """The next numbers of 64 bits, ``[number]``.

        >>> MersenneTwister64(1).raw(2) / 2**64
        array([0.13387664, 0.13640704])
        """
        read = self._ahead(number)[:number]
        self._unread = self._unread[number:]
        return read

    def uniform(self, number: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        """The next numbers, of 64 bits, from ``low`` to ``high``, ``[number]``."""
        numbers = np.empty(number)
        for begin in range(0, number, PIECE):
            piece = numbers[begin:begin + PIECE]
            piece[:] = self.raw(len(piece)) / _SPAN * (high - low) + low
        return numbers

    def normal(self, number: int, limit: float = math.inf) -> np.ndarray:
        """The next numbers of the standard normal distribution, without those beyond ±``limit``, ``[number]``.

        >>> MersenneTwister64(1).normal(3)
        array([-0.2277023 , -0.25937725, -0.61281863])
        """
        numbers = np.empty(number)
        filled = 0
        while filled < number:
            starts = min(PIECE, number - filled)
            values, read = _normals(self._ahead(starts + _REST), starts)
            if limit < math.inf:
                values = values[np.abs(values) <= limit]
            numbers[filled:filled + len(values)] = values
            filled += len(values)
            self._unread = self._unread[read:]
        return numbers

    def _ahead(self, number: int) -> np.ndarray:
        """The numbers of 64 bits that come next, at least this many; they stay unread."""
        missing = number - len(self._unread)
        if missing > 0:
            drawn = self._draw(missing)
            self._unread = np.concatenate([self._unread, drawn]) if len(self._unread) else drawn
        return self._unread


@lru_cache
def _strips() -> tuple[np.ndarray, np.ndarray]:
    """The widths of the strips below the bell curve, from the lowest, which has the tail too, and their heights."""
    def bell(x: Decimal) -> Decimal:
        return (-x * x / 2).exp()

    with localcontext(prec=40):  # each width comes from the one before: rounding errors grow by a factor of 300
        tail, area = Decimal(_TAIL), Decimal(_AREA)
        widths = [area / bell(tail), tail]
        while len(widths) < 128:
            widths.append((-2 * (area / widths[-1] + bell(widths[-1])).ln()).sqrt())
        widths.append(Decimal(0))
        return np.array(widths, float), np.array([bell(x) for x in widths], float)


@lru_cache
def _choices() -> tuple[np.ndarray, np.ndarray]:
    """What the lowest byte of a draw chooses, a strip and, by its last bit, a sign.

    That is the width of the strip, signed and for 56 bits of draw, and the part of it that lies below the bell curve.
    """
    width, _ = _strips()
    byte = np.arange(256)
    return np.where(byte % 2, 1, -1) * width[byte >> 1] / 2.0**56, width[(byte >> 1) + 1]


def _normals(raw: np.ndarray, starts: int) -> tuple[np.ndarray, int]:
    """The normal numbers whose first draw is among the first ``starts``, and how many draws they take."""
    (_, height), (scale, inner) = _strips(), _choices()
    byte = raw[:starts].astype(np.uint8)
    x = (raw[:starts] >> np.uint64(8)).astype(float) * scale[byte]
    kept = np.abs(x) < inner[byte]
    edge = np.flatnonzero(~kept)
    strip = byte[edge] >> 1
    low, high = height[strip], height[strip + 1]
    below = low + raw[edge + 1] / _SPAN * (high - low) < np.exp(-x[edge] * x[edge] / 2)
    in_tail = strip == 0
    kept[edge] = below | in_tail
    used: list[int] = []  # draws that the number before takes too
    free = 0
    for place, is_beyond in zip(edge.tolist(), in_tail.tolist(), strict=True):
        if place < free:
            continue
        free = place + 2
        if is_beyond:
            size, free = _tail(raw, place + 1)
            x[place] = math.copysign(size, x[place])
        used += range(place + 1, free)
    kept[[place for place in used if place < starts]] = False
    return x[kept], max(starts, free)


def _tail(raw: np.ndarray, place: int) -> tuple[float, int]:
    """A number beyond the strips from the draws at ``place``, and the place of the draw behind them."""
    tail = float(_TAIL)
    while True:
        x, y = -np.log1p(-(raw[place:place + 2] / _SPAN))
        place += 2
        if 2 * y > (x / tail) ** 2:
            return tail + x / tail, place
