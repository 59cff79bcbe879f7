"""The element types that parameters and constants get; recorded from CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C

ARRAY = np.ones((2, 3))


@pytest.mark.parametrize("make", [C.Constant, lambda a, **o: C.Parameter(init=a, **o)], ids=["Constant", "Parameter"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, int])
def test_classes_have_the_requested_type_or_the_default(make, dtype):
    assert make(ARRAY.astype(dtype)).dtype == np.float32
    assert make(ARRAY.astype(dtype), dtype=np.float64).dtype == np.float64
    with C.default_options(dtype=np.float64):
        assert make(ARRAY.astype(dtype)).dtype == np.float64


@pytest.mark.parametrize("make", [C.constant, lambda a, **o: C.parameter(init=a, **o)], ids=["constant", "parameter"])
def test_the_functions_keep_the_type_of_an_array(make):
    assert make(ARRAY).dtype == np.float64
    assert make(ARRAY, dtype=np.float32).dtype == np.float32
    assert make(ARRAY.astype(int)).dtype == np.float32
    with C.default_options(dtype=np.float64):
        assert make(ARRAY.astype(np.float32)).dtype == np.float32


def test_a_wide_array_as_Constant_fits_narrow_operands():
    x = C.input_variable(3)
    masked = C.element_select(C.reconcile_dynamic_axes(C.Constant(np.tril(np.ones((3, 3)))), x), x, -1.0)
    np.testing.assert_array_equal(masked.eval({x: [[1, 2, 3]]}), [[[1, -1, -1], [1, 2, -1], [1, 2, 3]]])


@pytest.mark.parametrize("declare", [C.input_variable, C.sequence.input_variable, C.input])
def test_an_input_has_a_shape(declare):
    with pytest.raises(TypeError, match="shape = None"):
        declare(None)


def test_initial_states_take_their_size_from_what_is_delayed():
    h, c = (C.Parameter((-1,), init=C.glorot_normal(), name=n) for n in ("h0", "c0"))
    states = C.layers.Recurrence(C.layers.LSTM(4), initial_state=(h, c))(C.sequence.input_variable(3))
    assert states.h0.shape == states.c0.shape == (4,)


def test_parameters_and_constants_can_be_created_as_printed_for_inputs():
    x, p, c = C.input_variable(2), C.parameter(2), C.constant([1, 2])
    by_kind = {v.is_parameter: v for v in ((x + p) * c).root_function.inputs if v.is_constant} | {
        v.is_parameter: v for v in (x + p).inputs if v.is_parameter}
    assert by_kind[True].as_parameter() is p and by_kind[False].as_constant() is c
    for variable, conversion in ((x, "as_parameter"), (p, "as_constant"), (c, "as_parameter")):
        with pytest.raises(TypeError, match="cannot be converted"):
            getattr(variable, conversion)()


@pytest.mark.parametrize(("value", "error"), [
    (3, TypeError), (np.float32(3), TypeError), (np.ones(()), RuntimeError), (np.ones(3), RuntimeError),
    (np.ones((1, 3)), RuntimeError), (np.ones(6), RuntimeError),
])
def test_a_value_has_the_shape_of_its_variable(value, error):
    for variable in (C.parameter((2, 3), init=1), C.constant(np.ones((2, 3), np.float32))):
        with pytest.raises(error, match="does not fit"):
            variable.value = value
        assert (variable.value == 1).all()


@pytest.mark.parametrize("value", [None, "x", {}, object(), [None, 1], [[1], [1, 2]], C.relu])
def test_a_value_is_numbers(value):
    """CNTK raises a TypeError too, for a scalar as well, which None would make NaN."""
    for variable in (C.parameter(2, init=1), C.parameter((), init=1)):
        with pytest.raises(TypeError, match="cannot be set to"):
            variable.value = value
        assert (variable.value == 1).all()


def test_time_stamps_count_values_that_are_set_or_learned():
    """The counts are CNTK's."""
    x, w = C.input_variable(2), C.parameter((2, 1), init=1.0)
    counts = [w.current_value_time_stamp()]
    w.value = np.ones((2, 1))
    counts.append(w.current_value_time_stamp())
    w.record_value_update()
    counts.append(w.current_value_time_stamp())
    loss = C.reduce_sum(C.times(x, w))
    loss.eval({x: [[1, 2]]})
    C.Trainer(None, loss, C.sgd([w], 0.1)).train_minibatch({x: [[1, 2]]})
    counts.append(w.current_value_time_stamp())
    assert counts == [0, 1, 2, 3]


def test_writing_to_the_view_of_a_value_changes_the_parameter():
    x, w = C.input_variable(2), C.parameter((2, 1), init=1.0)
    z, view = C.times(x, w), w.get_value()
    for value in (5, 7):  # the second time the value is on the device
        view.set_value(float(value))
        assert w.value.tolist() == [[value], [value]]
        assert z.eval({x: [[1, 2]]}) == 3 * value
    view.copy_from(C.NDArrayView.from_dense(np.full((2, 1), 2, np.float32)))
    assert z.eval({x: [[1, 2]]}) == 6 and w.current_value_time_stamp() == 0


def test_a_view_changes_a_parameter_that_was_loaded(tmp_path):
    x = C.input_variable(2)
    C.times(x, C.parameter((2, 1), init=1.0)).save(tmp_path / "z.model")
    (w,) = C.load_model(tmp_path / "z.model").parameters
    w.get_value().set_value(3.0)
    assert w.value.tolist() == [[3], [3]]


def test_only_parameters_and_constants_have_time_stamps():
    for other in (C.input_variable(2), C.placeholder(), C.input_variable(2) + 1):
        for ask in (other.current_value_time_stamp, other.get_value):
            with pytest.raises(RuntimeError, match="not a Parameter or Constant"):
                ask()
        assert other.is_initialized()


def test_constants_are_cloned_to_double_precision_only():
    constant = C.constant(2.0, (2,))
    assert constant.clone_as(2).value.dtype == np.float64
    for value, dtype in ((constant, 1), (constant, 4), (C.constant(np.ones(2)), 1)):
        with pytest.raises(ValueError, match="cannot be cloned as"):
            value.clone_as(dtype)


def test_variables_as_strings():
    assert C.input_variable(2, name="x").as_string() == "Input('x', [#], [2])"
    assert C.placeholder(name="p").as_string() == "Placeholder('p', [???], [???])"


@pytest.mark.parametrize("name", [
    "kind", "bound", "array", "initializer", "infer_shape", "infer_dtype", "become", "moved", "updates",
    "layer", "origin", "primitive", "node_inputs", "node_outputs", "block_composite", "whole", "mine",
])
def test_users_may_set_any_attribute_on_variables_and_functions(name, tmp_path):
    x, w, k = C.input_variable(2), C.parameter((2, 1), init=1), C.constant([[2], [3]])
    f = C.tanh(C.times(x, w * k))
    marked = [x, w, k, f, f.output]
    for thing in marked:
        setattr(thing, name, "mine")
    loss = C.reduce_sum(f)
    C.Trainer(f, (loss, None), C.sgd([w], 0.1)).train_minibatch({x: [[0, 0]]})
    assert f.clone("clone").eval([[0, 0]]) == 0 and f.clone("share", {x: C.constant([0, 0])}).eval() == 0
    f.save(str(tmp_path / "f"))
    assert C.load_model(str(tmp_path / "f")).eval([[0, 0]]) == 0 and w.value.tolist() == [[1], [1]]
    assert repr(marked) and all(getattr(thing, name) == "mine" for thing in marked)


def test_internal_attributes_of_variables_begin_with_an_underscore():
    """All other names are free for users."""
    x = C.input_variable(2)
    for variable in x, C.placeholder(), C.parameter(2), C.constant(1), (x + 1).output:
        assert {name for name in vars(variable) if not name.startswith("_")} <= {"origin"}  # used in messages only


def test_variables_report_their_kind_and_users_may_reuse_the_name():
    x = C.input_variable(2)
    others = x, x + 1, (x + 1).output, C.parameter(2), C.constant(1), C.placeholder()
    assert [v.kind() for v in others] == [0, 1, 1, 2, 3, 4]
    x.kind = "of my own"
    assert (x.kind, x.is_input) == ("of my own", True)


def test_all_inputs_of_a_function_are_variables():
    """As programs that walk over graphs ask. CNTK has plain variables there, and prints the same."""
    x = C.input_variable(2, name="x")
    d = C.layers.Dense(3)(x)
    search = C.logging.graph.depth_first_search
    for inputs in d.inputs, d.root_function.inputs, d.root_function.block_root.inputs, (x * 2).inputs:
        assert all(isinstance(v, C.Variable) for v in inputs)
    assert [v.name for v in search(d, lambda v: isinstance(v, C.Variable))] == ["W", "b", "x"]
    assert [v.op_name for v in search(d, lambda v: not isinstance(v, C.Variable))] == ["Dense"]
    assert [type(v) for v in d.parameters + d.arguments] == [C.Parameter, C.Parameter, C.Variable]
    assert not isinstance(x, C.Parameter) and not isinstance(d, C.Variable)


def test_items_of_a_record_come_before_the_methods_of_a_dict():
    record = C.variables.Record(values=1, b=2)
    assert (record.values, record["values"], list(record.items())) == (1, 1, [("values", 1), ("b", 2)])
    assert {"values", "b"} <= set(dir(record))
    with pytest.raises(AttributeError, match="no attribute 'c'; it has values, b"):
        _ = record.c
