"""The printed form of objects, as recorded from CNTK 2.7."""

import re

import numpy as np
import pytest

import cntkjax as C
from tests.graph.parts import parts


def text(thing, show=repr):
    return re.sub(r"(Input|Constant|Parameter|Plus)\d+", r"\1#", show(thing))


X = C.input_variable((2, 3), name="x")
DENSE = C.layers.Dense(2, name="dn")(C.input_variable(4))


@pytest.mark.parametrize(("thing", "expected", "printed"), [
    (X + 1, "Composite(Plus): Input('x', [#], [2 x 3]) -> Output('Plus#_Output_0', [#], [2 x 3])",
     "Plus(x: Tensor[2,3]) -> Tensor[2,3]"),
    ((X + 1).root_function, "Plus: Input('x', [#], [2 x 3]) -> Output('Plus#_Output_0', [#], [2 x 3])",
     "Plus(x: Tensor[2,3]) -> Tensor[2,3]"),
    (DENSE.root_function, "Dense: Input('Input#', [#], [4]) -> Output('dn', [#], [2])",
     "dn: Dense(Tensor[4]) -> Tensor[2]"),
    (C.sequence.input_variable(4, name="s"), "Input('s', [#, *], [4])", "Input('s', [#, *], [4])"),
    (C.placeholder(name="p"), "Placeholder('p', [???], [???])", "Placeholder('p', [???], [???])"),
    (C.parameter((-1, 3)), "Parameter('Parameter#', [], [? x 3])", "Parameter('Parameter#', [], [? x 3])"),
    (C.constant(3), "Constant('Constant#', [], [])", "Constant('Constant#', [], [])"),
    (C.input_variable((C.FreeDimension, 2)), "Input('Input#', [#], [* x 2])", "Input('Input#', [#], [* x 2])"),
    (C.Axis.default_batch_axis(), "Axis('defaultBatchAxis')", "Axis('defaultBatchAxis')"),
    (C.Value(np.ones((2, 3), np.float32)), "Value([2 x 3], CPU)", "Value([2 x 3], CPU)"),
    (C.layers.typing.Tensor[3, 4],
     "{'shape': (3, 4), 'is_sparse': False, 'dynamic_axes': [Axis('defaultBatchAxis')]}", "Tensor[3,4]"),
    (C.layers.typing.SparseTensor[np.float64, 3],
     "{'shape': (3,), 'dtype': <class 'numpy.float64'>, 'is_sparse': True, "
     "'dynamic_axes': [Axis('defaultBatchAxis')]}", "SparseTensor[np.float64,3]"),
    (C.logging.TraceLevel.Info, "<TraceLevel.Info: 2>", "TraceLevel.Info"),
    (C.ModelFormat.CNTKv2, "<ModelFormat.CNTKv2: 0>", "ModelFormat.CNTKv2"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_repr_and_str_are_those_of_cntk(thing, expected, printed):
    assert (text(thing), text(thing, str)) == (expected, printed)


BATCH = C.Axis.default_batch_axis()


@pytest.mark.parametrize(("thing", "printed"), [
    (C.abs(C.placeholder(shape=())), "Abs(Sequence[float]) -> Sequence[float]"),
    (C.abs(C.placeholder(shape=(), name="p")), "Abs(p: Sequence[float]) -> Sequence[float]"),
    (C.abs(C.placeholder(shape=(), dynamic_axes=[BATCH])), "Abs(float) -> float"),
    (C.placeholder(()) + C.parameter(()), "Plus(Sequence[float]) -> Sequence[np.float32]"),
    (C.abs(C.placeholder(shape=3)), "Abs(Sequence[Tensor[3]]) -> Sequence[Tensor[3]]"),
    (C.abs(C.input_variable((), dtype=np.float64)), "Abs(np.float64) -> np.float64"),
    (C.layers.typing.Sequence[C.layers.typing.Tensor[()]], "Sequence[float]"),
    (C.variables.Variable._Type(shape=()), "float"),
    (C.variables.Variable._Type(shape=(3,)), "ParameterTensor[3]"),
    (C.variables.Variable._Type(), "tensor"),
], ids=str)
def test_a_scalar_of_unknown_type_is_a_float(thing, printed):
    assert str(thing) == printed


def test_types_of_arguments_show_what_they_contain():
    axis, typing = C.Axis("q"), C.layers.typing
    printed = "{'shape': (3,), 'is_sparse': False, 'dynamic_axes': %s}"
    assert repr(typing.Tensor[3]) == printed % "[Axis('defaultBatchAxis')]"
    over = repr(typing.SequenceOver[axis][typing.Tensor[3]])
    assert over == printed % "[Axis('defaultBatchAxis'), Axis('q')]"
    sequence = repr(typing.Sequence[typing.Tensor[3]])
    assert sequence == printed % "(Axis('defaultBatchAxis'), Axis('defaultDynamicAxis'))"


def test_repr_and_str_show_names_shapes_and_axes():
    x, W, b, _ = parts()
    f = C.times(x, W)
    assert repr(x) == "Input('x', [#], [3])" and repr(W) == "Parameter('W', [], [3 x 2])"
    assert str(f + b) == "Composite(x: Tensor[3]) -> Tensor[2]"
    assert str(C.relu(x)) == "ReLU(x: Tensor[3]) -> Tensor[3]"
    s = C.sequence.input_variable(3, name="s")
    assert str(C.relu(s)) == "ReLU(s: Sequence[Tensor[3]]) -> Sequence[Tensor[3]]"
    assert str(C.relu(C.placeholder(name="p"))) == "ReLU(p: Sequence[tensor]) -> Sequence[tensor]"
