"""A graph as text; the texts are recorded from CNTK 2.7."""
import re

import cntkjax as C
from cntkjax.debugging import dump_function, dump_signature


def dumped(function, capsys):
    dump_function(function, "a tag")
    return re.sub(r"(Input|Placeholder)\d+ +", r"\1# ", capsys.readouterr().out)


def test_a_signature_is_printed(capsys):
    dump_signature(C.layers.Dense(2, name="d")(C.input_variable(3, name="x")))
    assert capsys.readouterr().out == "d: Dense(x: Tensor[3]) -> Tensor[2]\n"


def test_blocks_are_opened_and_unnamed_nodes_have_letters(capsys):
    x = C.input_variable(3, name="x")
    model = C.layers.Sequential([C.layers.Dense(3, activation=C.relu, name="h"), C.layers.Dense(2)])(x)
    assert dumped(model, capsys) == """\
Composite(x: Tensor[3]) -> Tensor[2]
  Dense                a                              (W:(3, 2), b:(2,), h:[b*](3,)) -> (b:[b*](2,))
  Dense                h                              (W:(3, 3), b:(3,), x:[b*](3,)) -> (h:[b*](3,))
  Plus                 c                              (e:[b*](2,), b:(2,)) -> (d:[b*](2,))
  Times                f                              (h:[b*](3,), W:(3, 2)) -> (e:[b*](2,))
  Parameter            W                               (3, 2)
  Parameter            b                               (2,)
  Input                x Input# [b*](3,)
  ReLU                 g                              (i:[b*](3,)) -> (h:[b*](3,))
  Plus                 j                              (k:[b*](3,), b:(3,)) -> (i:[b*](3,))
  Times                l                              (x:[b*](3,), W:(3, 3)) -> (k:[b*](3,))
  Parameter            W                               (3, 3)
  Parameter            b                               (3,)
"""


def test_axes_are_explained_where_they_first_occur(capsys):
    s = C.sequence.input_variable(4, sequence_axis=C.Axis("ax"))
    t = C.sequence.input_variable(4, name="t")
    lines = dumped(C.combine([s * 2, C.tanh(t)]), capsys).splitlines()
    assert lines[1:3] == ["  Axis ax == n*", "  Axis defaultDynamicAxis == o*"]
    assert lines[-1] == "  Input                t Input# [b*,o*](4,)"


def test_unknown_shapes_are_printed(capsys):
    lines = dumped(C.layers.Dense(2), capsys).splitlines()
    assert lines[0] == "Dense(x: Sequence[tensor]) -> Sequence[tensor]"
    assert lines[2] == "  Placeholder          x Placeholder# [?](-2,)"


def test_letters_continue_as_numbers_do(capsys):
    x = C.input_variable(1, name="x")
    for _ in range(14):
        x = C.tanh(x)
    assert "(x:[b*](1,)) -> (ba:[b*](1,))" in dumped(x, capsys)
