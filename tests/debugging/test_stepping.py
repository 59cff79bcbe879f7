"""Going through a model node by node."""

import io

import pytest

import cntkjax as C
from cntkjax.debugging.debug import DEBUG_USAGE, _DebugNode, debug_model, save_as_legacy_model


@pytest.fixture
def model():
    x, w = C.input_variable(2, needs_gradient=True, name="x"), C.parameter((2,), init=3, name="w")
    return C.reduce_sum(x * w, name="sum")


def went(model, commands, backward=False, leave=None):
    """What was said, in lines, without prompts."""
    said = io.StringIO()
    watched = debug_model(model, io.StringIO("\n".join(commands)), said, leave)
    (watched.grad if backward else watched.eval)({watched.arguments[0]: [[1, 2]]})
    text = said.getvalue()
    for prompt in (_DebugNode.PROMPT_FORWARD, _DebugNode.PROMPT_BACKWARD):
        text = text.replace(prompt, "> ")
    return [line for line in text.splitlines() if line and line != "> "], said.getvalue().count(">>>")


def test_every_node_is_reached_forward_and_backward(model):
    lines, prompts = went(model, ["n"] * 9, backward=True)
    at = [i for i, line in enumerate(lines) if "=====" in line]
    assert "forward" in lines[0] and "backward" in lines[at[1]]
    forward, backward = lines[1 : at[1]], lines[at[1] + 1 :]
    assert len(forward) == 4 and {line.split("'")[1] for line in forward[:2]} == {"x", "w"}
    assert "ElementTimes(" in forward[2] and forward[3].startswith("sum: ReduceElements(")
    assert backward[0] == forward[3] and backward[1] == forward[2] and backward[2].startswith("Input('x'")
    assert prompts == len(forward) + len(backward)


@pytest.mark.parametrize(
    "commands, prompts", [(["n 3", "c"], 2), (["c"], 1), (["u sum", "c"], 2), (["u b", "c"], 2), ([], 1),
                          (["u lambda arg, node: arg.sum() == 9", "c"], 2)], ids=str,
)
def test_commands_go_on_to_where_they_say(model, commands, prompts):
    assert went(model, commands, backward=True)[1] == prompts


def test_printing_help_and_leaving(model):
    left = []
    lines, _ = went(model, ["u sum", "p", "what", "q"], leave=left.append)
    assert lines[lines.index("> Input with shape (1,): ") + 1] == "[9.]" and left == [0]
    assert DEBUG_USAGE.splitlines()[1] in lines


def test_the_text_is_that_of_cntk(model):
    said = io.StringIO()
    watched = debug_model(model, io.StringIO("u b\np\n\nu\nu lambda oops\nc\n"), said)
    watched.grad({watched.arguments[0]: [[1, 2]]})
    rule = "=" * 35
    text = said.getvalue().replace(DEBUG_USAGE, "<USAGE>")
    assert text.startswith(f"\n{rule} forward  {rule}\n\n")
    assert f"with uid '{watched.root_function.inputs[0].owner.uid}'\n{rule} backward {rule}\n\n" in text
    assert (
        "[CNTK backward] >>> Root gradients with shape (1,): \n[1.]\n[CNTK backward] >>> [CNTK backward] >>> <USAGE>"
        "[CNTK backward] >>> <USAGE>[CNTK backward] >>> \n"
    ) in text


def test_it_stops_where_nan_appears():
    x = C.input_variable(2, name="x")
    lines, prompts = went(C.reduce_sum(C.exp(100 * x, name="e")), ["u nan", "p", "c"])
    assert prompts == 3 and "[[inf inf]]" in lines
    assert "e: Exp(" in lines[lines.index("> Input with shape (1, 2): ") - 1]


def test_the_watched_model_computes_and_trains_the_same(model):
    watched = debug_model(model, io.StringIO("c"), io.StringIO())
    assert watched.eval({watched.arguments[0]: [[1, 2]]}) == model.eval({model.arguments[0]: [[1, 2]]})
    assert watched.parameters == model.parameters and watched.arguments == model.arguments


def test_a_legacy_model_is_saved_in_the_present_format(model, tmp_path):
    with pytest.warns(UserWarning, match="in the format of CNTK 2"):
        save_as_legacy_model(model, str(tmp_path / "model"))
    assert C.load_model(str(tmp_path / "model")).eval([[1, 2]]) == [9]


def test_nodes_say_what_cntks_say():
    """Recorded from CNTK 2.7: the operands of a watched node have no names, the node and the leaves have theirs."""
    x, p = C.input_variable(2, name="x"), C.parameter((2, 2), init=1, name="p")
    lines, _ = went(C.relu(C.times(x, p, name="t"), name="r"), ["c"])
    said = {line.split(" with uid")[0].removeprefix("> ") for line in lines[1:]}
    assert said == {
        "Parameter('p', [], [2 x 2])", "Input('x', [#], [2])", "r: ReLU(Tensor[2]) -> Tensor[2]",
        "t: Times(Tensor[2], ParameterTensor[2,2]) -> Tensor[2]",
    }
