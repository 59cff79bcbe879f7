"""Blocks and their values, as CNTK's pages describe them."""

import pytest

from cntkjax.brainscript.describe import describe
from cntkjax.brainscript.log import Log
from cntkjax.sgd import ConfigError
from tests.configuration.reading import read


def test_values_of_all_kinds(tmp_path):
    root = read(tmp_path, """
        # a comment
        number = 3 ; text = "a b"  # another
        array = 1:2*3:"c d"
        files = (;c:/x;c:/y)
        nodes = (a, b*2)
        quoted = "a:b*2"  # all of it, as in CNTK's documentation
        path = "c:/x"
        infinite = 1#INF
        train = [ id=1; size=256
            inner = { flag = true, other = No } ]
    """)
    assert (root.integer("NUMBER"), root.text("text"), root.number("infinite", 0)) == (3, "a b", float("inf"))
    assert root.array("array") == ["1", "2", "2", "2", "c d"] and root.array("files") == ["c:/x", "c:/y"]
    assert root.array("nodes") == root.array("quoted") == ["a", "b", "b"] and root.array("path") == ["c:/x"]
    inner = root.block("train").block("inner")
    assert (inner.flag("Flag", False), inner.flag("other", True), inner.flag("absent", True)) == (True, False, True)
    assert inner.integer("size") == 256 and inner.integer("number") == 3  # of the blocks around


def test_arrays_of_blocks_may_have_comments_between_them(tmp_path):
    """As in VGG16_ImageNet.cntk."""
    array = "(\n# one\n  [ b = 1 ] :  # [256, 512]\n  [ b = 2 ] : // three\n  [ b = 3 ] # end\n)"
    root = read(tmp_path, f"a = {array}\nc = (d : e)")
    assert [block.integer("b") for block in root.blocks("a")] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"line 7, column 6: expected a block, \[ ... \]"):
        root.blocks("c")


def test_the_last_value_counts_and_blocks_are_merged(tmp_path):
    root = read(tmp_path, "p=[a=1;b=2;c=3]\np=[c=5;d=[x=1;y=2]]\np=[d=[y=7]]\nv=1:2\nv=3",
                "P=[e=8]", "p=[b=9,d=[z=4]]", "[v=4:5]")
    block = root.block("p")
    assert [block.integer(name) for name in "abce"] == [1, 9, 5, 8]
    assert [block.block("d").integer(name) for name in "xyz"] == [1, 7, 4]
    assert root.array("v") == ["4", "5"]


def test_names_are_replaced_where_they_are_used(tmp_path):
    text = 'root=".."\nmodels="$Root$/$name$"\na=$b$\nb=$c$\nname=outer\nt=[name=inner;path="$models$/$name$"]'
    root = read(tmp_path, text, "root=/data", "c=hello")
    assert read(tmp_path, "n = 3   # three\nt = [ x = $n$4 ]").block("t").text("x") == "34"
    assert root.text("models") == "/data/outer" and root.text("a") == "hello"
    assert root.block("t").text("path") == "/data/outer/inner"
    text = "a = 1\nb = [ a = $a$2 ; c = [ a = $a$3 ] ]"
    assert read(tmp_path, text).block("b").block("c").text("a") == "123"  # of the block around


def test_what_the_command_line_assigns_is_meant_by_a_name_also_where_a_block_has_a_key_of_it(tmp_path):
    """CNTK's log of ParallelTraining/AsynchronousSGD, with the argument epochsize=12."""
    text = "epochsize = 5\nSGD = [ epochSize = 0 ; maxEpochs = $epochsize$ ]"
    assert read(tmp_path, text, "epochsize=12").block("SGD").integer("maxEpochs") == 12


def test_names_may_begin_with_a_digit(tmp_path):
    root = read(tmp_path, "1x1 = [\n  3DotsExpansion = $2nd$ ]\n2nd = 2")
    assert root.block("1x1").integer("3dotsExpansion") == 2


def test_a_builder_around_the_commands_is_read_in_its_own_language(tmp_path):
    (tmp_path / "macros.bs").write_text("f (x) = x + 1")
    root = read(tmp_path, """
        BrainScriptNetworkBuilder = {
            include "macros.bs"
            x = Input {2}; z = f (x); criterionNodes = (z)
        }
        train = [ action = train ]
    """)
    assert next(iter(describe(root, Log()))) == "train:"


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
