"""Operations written in JAX under an id, and proxies (records checked against files of CNTK 2.7)."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats.dictionary import decode
from cntkjax.primitives.native import NATIVE

W = np.array([[1, 2], [3, 4]], np.float32)


@jax.custom_vjp
def _clipped(x):
    return x


_clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@pytest.fixture
def operations(monkeypatch):
    module = types.ModuleType("own_operations")
    module.scaled_times = lambda w, x, *, scale=1.0, **_: scale * (x @ w)
    module.clipped = _clipped
    module.both = lambda x: (x + 1, jnp.concatenate([x, x]))
    module.broken = lambda x: x @ jnp.ones(3)
    monkeypatch.setitem(sys.modules, "own_operations", module)
    for name in ("scaled_times", "clipped", "both", "broken"):
        C.ops.register_native_user_function(name, "own_operations", name)
    yield module
    for name in ("scaled_times", "clipped", "both", "broken"):
        del NATIVE[name]


def native(*args, **options):
    return C.ops.native_user_function(*args, **options)


@pytest.mark.parametrize("axes", ["batch", "sequence", "static"])
def test_values_and_gradients_for_any_axes(operations, axes):
    w = C.parameter(init=W)
    x = {"batch": C.input_variable, "sequence": C.sequence.input_variable,
         "static": lambda n: C.input_variable(n, dynamic_axes=[])}[axes](2)
    data = {"batch": [[5, 7]], "sequence": [np.array([[5, 7], [1, 0]]), np.array([[0, 1]])],
            "static": np.array([5, 7])}[axes]
    f = native("scaled_times", [w, x], {"scale": 2.0}, "mine")
    assert f.name == "mine" and f.root_function.op_name == "scaled_times"
    assert f.shape == (2,) and f.dynamic_axes == x.dynamic_axes and f.dtype is np.float32
    values = f.eval({x: data})
    several = axes == "sequence"
    for value, sample in zip(values if several else [values], data if several else [data], strict=True):
        np.testing.assert_allclose(value, 2 * np.asarray(sample) @ W)
    rows = np.concatenate(data) if several else np.reshape(data, (-1, 2))
    np.testing.assert_allclose(f.grad({x: data}, wrt=[w]), 2 * rows.T @ np.ones((len(rows), 2)))


def test_user_defined_gradients_are_used(operations):
    x = C.input_variable(2, needs_gradient=True)
    assert (3 * native("clipped", [x])).grad({x: [[1, 2]]}).tolist() == [[1, 1]]


def test_several_outputs_inside_loops_and_double_precision(operations):
    x = C.sequence.input_variable(1, np.float64)
    one, two = native("both", [x]).outputs
    assert one.shape == (1,) and two.shape == (2,) and two.dtype is np.float64
    total = C.layers.Recurrence(lambda s, v: native("both", [s + v]).outputs[0])(x)
    assert [s.ravel().tolist() for s in total.eval({x: [np.array([[1.0], [2.0]])]})] == [[2, 5]]


def test_free_dimensions_stay_free(operations):
    x = C.input_variable((C.FreeDimension, 2))
    f = native("scaled_times", [C.constant(W), x])
    assert f.shape == (C.FreeDimension, 2)
    assert f.eval({x: np.ones((1, 3, 2))}).shape == (1, 3, 2)


ATTRIBUTES = {"scale": 2.0, "none": None, "lists": [[1, 2], [3]], "text": "t", "array": W, "dict": {"a": True}}


def test_files_keep_id_and_attributes(operations, tmp_path):
    x = C.input_variable(2)
    f = native("scaled_times", [C.parameter(init=W), x], ATTRIBUTES, "mine")
    path = tmp_path / "model"
    f.save(str(path))
    (record,) = decode(path.read_bytes())["primitive_functions"]
    assert record["native"] is True and record["type"] == "UserDefinedFunction"
    state = record["user_defined_state"]
    assert {k: v for k, v in state.items() if k != "user_defined_state"} == {
        "deserialize_method": "scaled_times", "module": "own_operations", "op": "scaled_times",
        "type": "NativeUserDefinedFunction", "version": 1}
    for copy in C.load_model(str(path)), f.clone("clone"):
        node = copy.find_by_name("mine")
        np.testing.assert_array_equal(node.attributes.pop("array"), W)
        assert {k: v for k, v in node.attributes.items() if k != "array"} == {
            k: v for k, v in ATTRIBUTES.items() if k != "array"}
        np.testing.assert_allclose(copy.eval({copy.arguments[0]: [[5, 7]]}), 2 * np.array([[5, 7]]) @ W)


def test_a_file_imports_nothing(operations, tmp_path):
    path = str(tmp_path / "model")
    native("clipped", [C.input_variable(2)]).save(path)
    registered = NATIVE.pop("clipped")
    with pytest.raises(ValueError, match="'clipped' of 'own_operations' is not registered"):
        C.load_model(path)
    NATIVE["clipped"] = registered


def test_the_example_of_cntks_own_library():
    if not C.cntk_py.is_native_user_function_registered("UserTimes"):
        C.ops.register_native_user_function("UserTimes", "Cntk.ExtensibilityExamples-2.7", "CreateUserTimesFunction")
    x = C.input_variable(2)
    assert native("UserTimes", [C.parameter(init=W), x]).eval({x: [[5, 7]]}).tolist() == [[26, 38]]


def x2():
    return C.input_variable(2)


@pytest.mark.parametrize("call, kind, match", [
    (lambda: C.ops.register_native_user_function("clipped", "own_operations", "clipped"), ValueError, "to be unique"),
    (lambda: C.ops.register_native_user_function("n1", "no_such_module", "f"), RuntimeError, "no module 'no_such"),
    (lambda: C.ops.register_native_user_function("n1", "own_operations", "f"), RuntimeError, "has no function 'f'"),
    (lambda: native("unknown", [C.input_variable(2)]), ValueError, "'unknown' is not registered"),
    (lambda: native("broken", [C.input_variable(2)]), RuntimeError, "'broken' .own_operations.broken. of operands .2"),
    (lambda: native("scaled_times", [C.parameter((C.InferredDimension, 2)), x2()]), ValueError, "inferred"),
])
def test_errors_name_the_mistake(operations, call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_proxies_are_saved_and_loaded_but_not_computed(tmp_path):
    x, w = C.input_variable((2, 3)), C.parameter((3, 4), init=1, dtype=np.int8)
    f = C.custom_proxy_op("packed_times", (2, 4), np.float32, x, w, name="q")
    assert f.shape == (2, 4) and f.name == "q" and f.root_function.op_name == "CustomProxyOp"
    assert f.root_function.attributes == {"customOp": "packed_times", "newDataType": 1, "outputShape": (2, 4)}
    f.save(str(tmp_path / "model"))
    loaded = C.load_model(str(tmp_path / "model"))
    assert loaded.parameters[0].value.dtype == np.int8 and loaded.root_function.inputs[0].shape == (2, 3)
    with pytest.raises(RuntimeError, match="'packed_times' of another runtime: it cannot be evaluated"):
        loaded.eval({loaded.arguments[0]: np.ones((1, 2, 3))})
    with pytest.raises(TypeError, match="takes no keyword but name, got other"):
        C.custom_proxy_op("packed_times", (2, 4), np.float32, x, other=1)
