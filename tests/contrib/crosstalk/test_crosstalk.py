"""Crosstalk reads what CNTK 2.7 wrote, and gets and sets parameters as it does; numbers recorded from it."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.contrib import crosstalk
from cntkjax.contrib.crosstalk import Conv2DArgs, Conv2DAttr, Crosstalk, EmbedAttr, RnnArgs, RnnAttr
from cntkjax.contrib.crosstalk.crosstalk_cntk import CNTKCrosstalk, DictParameterType, find_func_param, instance

LSTM = RnnAttr(bidirectional=True, op_type="lstm", input_dim=2, hidden_dim=2, forget_bias=0.0)
ARGS = RnnArgs(*(start + np.arange(8.0 * rows).reshape((rows, 8) if rows > 1 else 8) for start, rows in
                 ((0, 2), (100, 2), (200, 1), (300, 2), (400, 2), (500, 1))))


@pytest.fixture
def tool(tmp_path):
    tool = CNTKCrosstalk()
    tool.set_workdir(str(tmp_path))
    return tool


def stack():
    weights = C.parameter((C.InferredDimension, 1))
    return C.optimized_rnnstack(C.sequence.input_variable(2), weights, 2, 1, True, "lstm"), weights


def both_directions():
    x = C.sequence.input_variable(2)
    return C.splice(*(C.layers.Recurrence(C.layers.LSTM(2), go_backwards=back)(x) for back in (False, True)))


def test_a_stack_has_its_gates_in_cntks_order_and_one_bias(tool):
    f, weights = stack()
    weights.value = np.arange(96, dtype=np.float32).reshape(weights.shape)
    tool.watch(f, "lstm", RnnAttr, LSTM)
    args = tool.fetch("lstm")
    assert args.fw_W.tolist() == [[0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]]
    assert args.bw_H[0].tolist() == [48, 50, 56, 58, 52, 54, 60, 62]
    assert args.fw_b.tolist() == [136, 138, 144, 146, 140, 142, 148, 150]
    assert args.bw_b.tolist() == [168, 170, 176, 178, 172, 174, 180, 182]


def test_setting_a_stack_fills_its_first_bias(tool):
    f, weights = stack()
    tool.watch(f, "lstm", RnnAttr, LSTM)
    tool.assign("lstm", ARGS)
    flat = weights.value.ravel().tolist()
    assert flat[:8] == [0, 8, 1, 9, 4, 12, 5, 13]
    assert flat[64:80] == [200, 201, 204, 205, 202, 203, 206, 207] + [0] * 8


def test_parameters_move_between_a_stack_and_layers(tool):
    f, _ = stack()
    layers = both_directions()
    tool.watch(f, "stack", RnnAttr, LSTM)
    tool.watch(layers, "layers", RnnAttr, LSTM)
    tool.assign("stack", RnnArgs(*(np.sin(part) for part in ARGS)))
    tool.save(["stack"])
    tool.assign("layers", load=True, load_name="stack")
    x = np.random.default_rng(0).normal(size=(1, 3, 2)).astype(np.float32)
    np.testing.assert_allclose(layers.eval(x)[0], f.eval(x)[0], atol=1e-6)


def test_other_recurrences_are_refused(tool):
    tool.watch(C.layers.Recurrence(C.layers.LSTM(2))(C.sequence.input_variable(2)), "one", RnnAttr, LSTM)
    tool.watch(stack()[0], "gru", RnnAttr, LSTM._replace(op_type="gru"))
    for name in ("one", "gru"):
        with pytest.raises(NotImplementedError, match="watch"):
            tool.fetch(name)


def test_files_that_cntk_wrote_are_read(tool):
    tool.set_workdir(str(Path(__file__).parent))
    convolution = tool.load_raw_value("conv")
    assert type(convolution) is Conv2DArgs and convolution.W.shape == (3, 3, 2) and convolution.b.tolist() == [0.5] * 3
    lstm = tool.load_raw_value("lstm")
    assert type(lstm) is RnnArgs
    np.testing.assert_equal(lstm, ARGS)


def test_pickles_name_only_what_cntk_has(tool, tmp_path):
    tool.register_funcs("value", getter=lambda value, attr: value)
    tool.watch(ARGS, "args", "value")
    tool.save_all()
    assert b"cntkjax" not in (tmp_path / "0_args.pkl").read_bytes()
    assert b"numpy._core" not in (tmp_path / "0_args.pkl").read_bytes()
    loaded = tool.load_raw_value("args")
    np.testing.assert_equal(loaded, ARGS)
    assert loaded.fw_W.flags.writeable


def test_a_pickle_that_runs_code_is_refused(tool, tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("this must not run",)

    (tmp_path / "0_evil.pkl").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print.*only arrays"):
        tool.load_raw_value("evil")
    np.save(tmp_path / "0_objects.npy", np.array([Evil()], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        tool.load_raw_value("objects")


def test_a_convolution_of_one_channel_has_no_axis_of_channels(tool):
    f = C.layers.Convolution2D((3, 2), 3, init_bias=0.5)(C.input_variable((1, 6, 6)))
    tool.watch(f, "conv", Conv2DAttr, Conv2DAttr(filter_shape=(3, 2), num_filters=3))
    args = tool.fetch("conv", save=True)
    assert args.W.shape == (3, 3, 2) and args.b.tolist() == [0.5] * 3
    tool.assign("conv", Conv2DArgs(np.ones((3, 3, 2)), np.zeros(3)))
    assert f.W.value.sum() == 18 and not f.b.value.any()
    tool.load_all_params()
    np.testing.assert_equal(tool.fetch("conv"), args)


def test_embeddings_are_dicts_by_word(tool):
    f = C.layers.Embedding(2)(C.input_variable(4))
    for name, var in (("parameter", f.E), ("function", f)):
        tool.watch(var, name, EmbedAttr, EmbedAttr(dict=list("abcd"), input_dim=4))
    tool.assign("parameter", {word: np.full(2, i) for i, word in enumerate("dcba")})
    assert f.E.value[:, 0].tolist() == [3, 2, 1, 0] and tool.fetch("function")["d"].tolist() == [0, 0]
    with pytest.raises(ValueError, match="'b', 'd'"):
        tool.assign("parameter", {"a": np.zeros(2), "c": np.ones(2)})
    tool.watch(f.E, "by row", EmbedAttr, EmbedAttr(dict=dict(enumerate("abcd")), input_dim=4))
    np.testing.assert_equal(tool.fetch("by row"), tool.fetch("parameter"))


def test_results_are_compared_with_those_of_another_pass(tool):
    s = C.sequence.input_variable(1)
    tool.watch(s * 2, "doubled")
    tool.watch((s * 2).output, "output")
    tool.set_data({s: [[[1], [2]], [[3]]]})
    tool.save_all()
    assert tool.compare("doubled") and tool.compare("output", "doubled")
    tool.set_data({s: [[[1], [2]], [[4]]]})
    assert not tool.compare("doubled")
    tool.next_pass()
    with pytest.raises(FileNotFoundError, match="1_doubled"):
        tool.compare("doubled")


def test_sequences_are_compared_with_a_padded_array(tool, tmp_path, capsys):
    tool.register_funcs(list, getter=lambda value, attr: value)
    tool.watch([np.ones((2, 2)), np.ones((1, 2))], "x")
    np.save(tmp_path / "0_x.npy", [np.ones((2, 2)), [[1, 1], [0, 0]]])
    assert tool.compare("x")
    np.save(tmp_path / "0_x.npy", [np.ones((2, 2)), [[1, 2], [0, 0]]])
    assert not tool.compare("x")
    assert capsys.readouterr().out == "mismatch found at item 1 row 0\n"


def test_only_parameters_are_saved_as_such(tool, tmp_path):
    p = C.parameter((2,), init=1)
    tool.watch(p, "p")
    tool.watch({"a": p}, "dict", DictParameterType)
    tool.watch(p * 2, "f")
    assert [tool.is_param(name) for name in ("p", "dict", "f")] == [True, True, False]
    tool.save_all_params()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0_dict.pkl", "0_p.npy"]
    p.value = np.zeros(2)
    tool.load(["dict", "unknown"])
    assert p.value.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"mismatch of keys: \['a'\] and \['b'\]"):
        tool.assign("dict", {"b": np.zeros(2)})


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.zeros(3), r"expected \(2,\) actual \(3,\)"), ([0, 0], "different types"), (None, "different types")],
    ids=str,
)
def test_values_have_to_fit(tool, value, message):
    tool.watch(C.parameter(2), "p")
    with pytest.raises(ValueError, match=message):
        tool.assign("p", value)


def test_names_are_unique_and_reset_keeps_the_functions():
    tool = Crosstalk()
    tool.register_funcs(int, getter=lambda value, attr: np.array(value))
    tool.watch(1, "one")
    with pytest.raises(ValueError, match="already exists"):
        tool.watch(2, "one")
    tool.reset()
    tool.watch(2, "one")
    assert tool.fetch("one") == 2
    with pytest.raises(AttributeError, match="set_workdir"):
        tool.save(["one"])


def test_find_func_param():
    f = C.layers.Dense(2)(C.input_variable(3))
    assert find_func_param(f, shape=(2,)).name == "b"
    assert find_func_param(f, "nope", allow_not_found=True) is None
    with pytest.raises(ValueError, match=r"param \(nope None\) not found"):
        find_func_param(f, "nope")
    assert isinstance(instance, CNTKCrosstalk) and instance.passes == 0
    assert crosstalk.Conv2DArgs.__module__ == "cntk.contrib.crosstalk"
