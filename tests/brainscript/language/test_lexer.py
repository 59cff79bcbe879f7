"""Tokens of BrainScript: their kinds, and what is said about characters that begin none."""

import pytest

from cntkjax.brainscript.language.lexer import tokens
from cntkjax.configuration.source import ConfigError, Text


def kinds_and_texts(content):
    return [(token.kind, token.text) for token in tokens(Text("net.bs", content))]


@pytest.mark.parametrize(("content", "expected"), [
    ("x1 = 2", [("name", "x1"), ("symbol", "="), ("number", "2")]),
    ("1.5e-3 .5 2.", [("number", "1.5e-3"), ("number", ".5"), ("number", "2.")]),
    ("1..3", [("number", "1"), ("symbol", ".."), ("number", "3")]),
    ("a.*b.c", [("name", "a"), ("symbol", ".*"), ("name", "b"), ("symbol", "."), ("name", "c")]),
    ("if iffy", [("keyword", "if"), ("name", "iffy")]),
    ("'a\"b' \"c'd\"", [("string", "'a\"b'"), ("string", "\"c'd\"")]),
    ("x=>y == !z && a||b", [
        ("name", "x"), ("symbol", "=>"), ("name", "y"), ("symbol", "=="), ("symbol", "!"), ("name", "z"),
        ("symbol", "&&"), ("name", "a"), ("symbol", "||"), ("name", "b"),
    ]),
    ("[|1|]**2", [("symbol", "[|"), ("number", "1"), ("symbol", "|]"), ("symbol", "**"), ("number", "2")]),
    ("a # b\nc // d\n/* e\nf */ g", [("name", "a"), ("name", "c"), ("name", "g")]),
    ("", []),
])
def test_a_text_has_these_tokens_and_an_end(content, expected):
    assert kinds_and_texts(content) == [*expected, ("end", "")]


def test_tokens_know_whether_they_begin_a_line():
    assert [t.begins_line for t in tokens(Text("net.bs", "a b\n c # d\ne"))] == [True, False, True, True, True]


@pytest.mark.parametrize(("content", "says"), [
    ("a = 'b", "this string has no end: a second ' is missing"),
    ("a /* b", r"this comment has no end: '\*/' is missing"),
    ("a = ‘b’", "'‘' has no meaning in BrainScript; quotes are"),
    ("a = $b$", "'\\$' has no meaning in BrainScript; \\$name\\$ stands for a value of the configuration"),
    ("a ~ b", "'~' has no meaning in BrainScript"),
])
def test_characters_that_begin_no_token_are_errors(content, says):
    with pytest.raises(ConfigError, match=says):
        tokens(Text("net.bs", content))
