import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cntkjax.io._number_parsing import parse_integers, parse_numbers

NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
words = st.text("0123456789+-.eE", min_size=1, max_size=8) | st.from_regex(NUMBER, fullmatch=True).filter(
    lambda t: len(t) < 40
)


def laid_out(tokens: list[str]):
    text = np.frombuffer(" ".join(["|name", *tokens, "|"]).encode(), np.uint8)
    ends = 5 + np.cumsum([1 + len(t) for t in tokens])
    return text, ends - [len(t) for t in tokens], ends


@given(st.lists(words, min_size=1, max_size=30))
@example(
    [".5", "-.5", "+.5", ".", "-", "+", "-.", "5.", "-5.", "5.e3", "1e", "1e+", "e5", "1e5.", "1e5.5", "--1", "+-1"]
)
@example(["1.2.3", "1ee5", "1e5e", "1-2", "-0", "00012", "1e400", "1e-400", "123456789.123456789", "0.1", "1E+05"])
@example(["inf", "nan", "0x10", "1,5", "1_0", "1d5", "\v1", "９"])
def test_numbers_agree_with_the_grammar_and_with_float(tokens):
    values, valid = parse_numbers(*laid_out([t.encode("utf-8").decode("latin-1") for t in tokens]))
    assert valid.tolist() == [bool(NUMBER.fullmatch(t)) for t in tokens]
    with np.errstate(over="ignore"):
        expected = np.array([float(t) if ok else 0 for t, ok in zip(tokens, valid, strict=True)])
        np.testing.assert_array_equal(values[valid].astype(np.float32), expected[valid].astype(np.float32))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float32_round_trips(numbers):
    values, valid = parse_numbers(*laid_out([repr(x) for x in numbers]))
    assert valid.all()
    assert values.astype(np.float32).tolist() == numbers


@given(st.lists(st.text("0123456789+-. ", min_size=1, max_size=5).filter(str.strip).map(str.strip), min_size=1))
def test_integers_are_digits_only(tokens):
    tokens = [t.replace(" ", "") for t in tokens]
    values, valid = parse_integers(*laid_out(tokens))
    assert valid.tolist() == [t.isdigit() for t in tokens]
    assert values[valid].tolist() == [int(t) for t in tokens if t.isdigit()]


def test_a_number_longer_than_the_limit_is_invalid():
    text = np.full(10_000, ord("1"), np.uint8)
    assert not parse_numbers(text, np.array([0]), np.array([10_000]))[1][0]


def test_more_numbers_than_fit_into_a_batch():
    numbers = np.random.default_rng(0).integers(-10_000, 10_000, 100_000) / 8
    values, valid = parse_numbers(*laid_out([str(x) for x in numbers]))
    assert valid.all()
    np.testing.assert_array_equal(values, numbers)


@pytest.mark.parametrize(
    "text, value", [("0.12345678901234567890", 0.12345678901234568), ("1.17549435e-38", 1.17549435e-38)]
)
def test_long_and_small_numbers(text, value):
    assert parse_numbers(*laid_out([text]))[0][0] == pytest.approx(value, rel=1e-15)
