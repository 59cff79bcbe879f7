"""Stepping through a model node by node."""

import io

import pytest

import cntkjax as C
from cntkjax.debugging.debug import DEBUG_USAGE, _DebugNode, debug_model, save_as_legacy_model


@pytest.fixture
def model():
    x, w = C.input_variable(2, needs_gradient=True, name="x"), C.parameter((2,), init=3, name="w")
    return C.reduce_sum(x * w, name="sum")


def debug_output(model, commands, backward=False, leave=None):
    """The output in lines, without prompts, and the number of prompts."""
    output = io.StringIO()
    debugged = debug_model(model, io.StringIO("\n".join(commands)), output, leave)
    (debugged.grad if backward else debugged.eval)({debugged.arguments[0]: [[1, 2]]})
    text = output.getvalue()
    for prompt in (_DebugNode.PROMPT_FORWARD, _DebugNode.PROMPT_BACKWARD):
        text = text.replace(prompt, "> ")
    return [line for line in text.splitlines() if line and line != "> "], output.getvalue().count(">>>")


def test_every_node_is_reached_forward_and_backward(model):
    lines, prompts = debug_output(model, ["n"] * 9, backward=True)
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
def test_commands_run_to_the_right_node(model, commands, prompts):
    assert debug_output(model, commands, backward=True)[1] == prompts


def test_print_help_and_quit(model):
    exit_codes = []
    lines, _ = debug_output(model, ["u sum", "p", "what", "q"], leave=exit_codes.append)
    assert lines[lines.index("> Input with shape (1,): ") + 1] == "[9.]" and exit_codes == [0]
    assert DEBUG_USAGE.splitlines()[1] in lines


def test_the_output_is_that_of_cntk(model):
    output = io.StringIO()
    debugged = debug_model(model, io.StringIO("u b\np\n\nu\nu lambda oops\nc\n"), output)
    debugged.grad({debugged.arguments[0]: [[1, 2]]})
    rule = "=" * 35
    text = output.getvalue().replace(DEBUG_USAGE, "<USAGE>")
    assert text.startswith(f"\n{rule} forward  {rule}\n\n")
    assert f"with uid '{debugged.root_function.inputs[0].owner.uid}'\n{rule} backward {rule}\n\n" in text
    assert (
        "[CNTK backward] >>> Root gradients with shape (1,): \n[1.]\n[CNTK backward] >>> [CNTK backward] >>> <USAGE>"
        "[CNTK backward] >>> <USAGE>[CNTK backward] >>> \n"
    ) in text


def test_the_debugger_stops_at_nan():
    x = C.input_variable(2, name="x")
    lines, prompts = debug_output(C.reduce_sum(C.exp(100 * x, name="e")), ["u nan", "p", "c"])
    assert prompts == 3 and "[[inf inf]]" in lines
    assert "e: Exp(" in lines[lines.index("> Input with shape (1, 2): ") - 1]


def test_the_debugged_model_computes_and_trains_identically(model):
    debugged = debug_model(model, io.StringIO("c"), io.StringIO())
    assert debugged.eval({debugged.arguments[0]: [[1, 2]]}) == model.eval({model.arguments[0]: [[1, 2]]})
    assert debugged.parameters == model.parameters and debugged.arguments == model.arguments


def test_a_legacy_model_is_saved_in_the_current_format(model, tmp_path):
    with pytest.warns(UserWarning, match="in the format of CNTK 2"):
        save_as_legacy_model(model, str(tmp_path / "model"))
    assert C.load_model(str(tmp_path / "model")).eval([[1, 2]]) == [9]


def test_debug_nodes_describe_themselves_as_in_cntk():
    """Recorded from CNTK 2.7: the operands of a debugged node have no names, the node and the leaves have theirs."""
    x, p = C.input_variable(2, name="x"), C.parameter((2, 2), init=1, name="p")
    lines, _ = debug_output(C.relu(C.times(x, p, name="t"), name="r"), ["c"])
    output = {line.split(" with uid")[0].removeprefix("> ") for line in lines[1:]}
    assert output == {
        "Parameter('p', [], [2 x 2])", "Input('x', [#], [2])", "r: ReLU(Tensor[2]) -> Tensor[2]",
        "t: Times(Tensor[2], ParameterTensor[2,2]) -> Tensor[2]",
    }
