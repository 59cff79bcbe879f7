"""Layered files and arguments, blocks and values, as CNTK's pages describe them; and what bad ones say."""

import time

import pytest

from cntkjax.brainscript.configuration import load
from cntkjax.sgd import ConfigError


def read(tmp_path, text, *arguments):
    path = tmp_path / "a.cntk"
    path.write_text(text)
    return load([f"configFile={path}", *arguments])


def test_values_of_all_kinds(tmp_path):
    root = read(tmp_path, """
        # a comment
        number = 3 ; text = "a b"  # another
        array = 1:2*3:"c d"
        files = (;c:/x;c:/y)
        infinite = 1#INF
        train = [ id=1; size=256
            inner = { flag = true, other = No } ]
    """)
    assert (root.integer("NUMBER"), root.text("text"), root.number("infinite", 0)) == (3, "a b", float("inf"))
    assert root.array("array") == ["1", "2", "2", "2", "c d"] and root.array("files") == ["c:/x", "c:/y"]
    inner = root.block("train").block("inner")
    assert (inner.flag("Flag", False), inner.flag("other", True), inner.flag("absent", True)) == (True, False, True)
    assert inner.integer("size") == 256 and inner.integer("number") == 3  # of the blocks around


def test_the_last_value_counts_and_blocks_are_merged(tmp_path):
    root = read(tmp_path, "p=[a=1;b=2;c=3]\np=[c=5;d=[x=1;y=2]]\np=[d=[y=7]]\nv=1:2\nv=3",
                "P=[e=8]", "p=[b=9,d=[z=4]]", "[v=4:5]")
    block = root.block("p")
    assert [block.integer(name) for name in "abce"] == [1, 9, 5, 8]
    assert [block.block("d").integer(name) for name in "xyz"] == [1, 7, 4]
    assert root.array("v") == ["4", "5"]


def test_files_are_layered_and_included_once(tmp_path):
    (tmp_path / "base.cntk").write_text("x = base\ny = base\nz = base")
    (tmp_path / "more.cntk").write_text(f"include={tmp_path}/base.cntk\ny = more\ninclude = base.cntk")
    (tmp_path / "last.cntk").write_text("z = last")
    root = load([f"configFile={tmp_path}/more.cntk+{tmp_path}/last.cntk", "w=1", f"configFile={tmp_path}/last.cntk"])
    assert [root.text(name) for name in "xyzw"] == ["base", "more", "last", "1"]


def test_names_are_replaced_where_they_are_used(tmp_path):
    text = 'root=".."\nmodels="$Root$/$name$"\na=$b$\nb=$c$\nname=outer\nt=[name=inner;path="$models$/$name$"]'
    root = read(tmp_path, text, "root=/data", "c=hello")
    assert read(tmp_path, "n = 3   # three\nt = [ x = $n$4 ]").block("t").text("x") == "34"
    assert root.text("models") == "/data/outer" and root.text("a") == "hello"
    assert root.block("t").text("path") == "/data/outer/inner"


@pytest.mark.parametrize(("text", "place", "message"), [
    ("a = [ b = 1", "line 1, column 5", "[ is not closed; add ]"),
    ("a = [ b = 1\n}", "line 2, column 1", "} closes [ of line 1; expected ]"),
    ("a = 1\n]\nb = 2", "line 2, column 1", "] closes nothing"),
    ("a = 1\n b c", "line 2, column 2", "expected key = value, not 'b c'"),
    ("value = $valeu$", "line 1, column 9", "$valeu$ is not defined; did you mean $value$?"),
    ("value = $a$\na = x$a$", "line 2, column 5", "$a$ refers to itself"),
    ("value = $b$\nb = $a$\na = $b$", "line", "refers to itself"),
    ("value = 'x", "line 1, column 9", "the quote ' is not closed"),
    ("include = nowhere.cntk", "line 1, column 1", "there is no file nowhere.cntk"),
])
def test_mistakes_are_shown_with_their_place(tmp_path, text, place, message):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text).text("value")
    shown = str(error.value)
    assert place in shown and message in shown and str(tmp_path) in shown and shown.splitlines()[2].strip() == "^"


def test_errors_name_the_includes(tmp_path):
    (tmp_path / "inner.cntk").write_text("x = [")
    with pytest.raises(ConfigError, match=r"inner.cntk, line 1, column 5.*\n.*\n.*\n.*included at .*a.cntk, line 2"):
        read(tmp_path, "\ninclude = inner.cntk")


def test_closing_brackets_too_many_at_the_end_count_for_nothing(tmp_path):
    (tmp_path / "a.cntk").write_text("a = [ b = 1 ]\n]\n} ")
    block = load([f"configFile={tmp_path}/a.cntk"]).block("a")
    assert block.integer("b") == 1


@pytest.mark.parametrize("text", [
    "value = 1*1000000000",
    "value = $a0$\n" + "".join(f"a{i} = $a{i + 1}$$a{i + 1}$\n" for i in range(60)) + "a60 = xx",
    "value = " + "(" * 100_000, "value = [" * 5000, "value = 1:" * 100_000 + "\n]\nb = 1",
])
def test_hostile_texts_are_refused_within_a_second(tmp_path, text):
    start = time.process_time()
    with pytest.raises(ConfigError):
        read(tmp_path, text).array("value")
    assert time.process_time() - start < 5  # much less on an idle machine


def test_values_of_another_type_are_refused(tmp_path):
    root = read(tmp_path, "n = 3.5\nf = maybe\nc = sprase\nb = 3")
    with pytest.raises(ConfigError, match=r"n is a whole number, not '3.5'"):
        root.integer("n")
    with pytest.raises(ConfigError, match="f is true or false, not 'maybe'"):
        root.flag("f", False)
    with pytest.raises(ConfigError, match="did you mean sparse"):
        root.choice("c", ("dense", "sparse"), "dense")
    with pytest.raises(ConfigError, match="expected a block"):
        root.block("b")
    with pytest.raises(ConfigError, match="has no absent"):
        root.text("absent")
