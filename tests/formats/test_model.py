"""Models round-trip, here and with CNTK 2.7; incomplete files are rejected with the reason."""

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.function import nodes
from tests.formats.networks import S, X, blocks, dense, recurrence, weights

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "cntk27"


def shared_and_combined():
    x, w = C.input_variable(3), weights(3, 3, name="w")
    y = C.times(C.times(x, w), w)
    return C.combine([C.sin(y), y, C.times(y, C.constant(np.eye(3, dtype=np.float32)))]), [X]


def two_arguments():
    x, w = C.input_variable(3, name="left"), C.input_variable((3, 2), name="right")
    return C.times(x, w), [X, np.arange(12, dtype=np.float32).reshape(2, 3, 2)]


def sparse():
    x = C.input_variable(3, is_sparse=True, name="x")
    return C.times(x, weights(3, 2)), [np.float32([[0, 1, 0], [1, 0, 0]])]


def double():
    x = C.input_variable(3, dtype=np.float64)
    return C.times(x, C.parameter((3, 2), init=np.arange(6.0).reshape(3, 2), dtype=np.float64)), [X.astype(np.float64)]


def along_a_new_axis():
    """A loop and an input along the axis that a convolution over steps makes."""
    s = C.sequence.input_variable(3, name="s")
    steps = C.layers.SequentialConvolution(3, 2, pad=True, init=0.1)(s)
    y = C.input_variable(2, dynamic_axes=steps.dynamic_axes, name="y")
    rnn = C.layers.Recurrence(C.layers.LSTM(2, init=0.1), go_backwards=True)(steps)
    return rnn - y, [S, [row[:, :2] for row in S]]


def spread_over_steps():
    """One value a sequence beside the steps of another, also in a loop that begins with such a value."""
    x, s = C.input_variable(3, name="x"), C.sequence.input_variable(3, name="s")
    p = C.placeholder()
    h = C.tanh(C.sequence.past_value(p, x)) * weights(3) + s
    loop = h.replace_placeholders({p: h.output})
    return C.combine([loop * x, C.splice(x, loop), C.squared_error(x, s)]), [np.resize(X, (len(S), 3)), S]


BUILDERS = [
    dense, recurrence, shared_and_combined, blocks, two_arguments, sparse, double, along_a_new_axis, spread_over_steps,
]


def evaluate(function, data):
    values = function.eval(dict(zip(function.arguments, data, strict=True)))
    return [values[v] for v in function.outputs] if len(function.outputs) > 1 else [values]


def assert_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        for u, v in zip(a, b, strict=True):
            np.testing.assert_allclose(u, v, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("build", BUILDERS)
class TestEveryModel:
    def test_is_the_same_after_loading(self, build, tmp_path):
        function, data = build()
        function.save(tmp_path / "m")
        loaded = C.load_model(tmp_path / "m")
        assert_same(evaluate(loaded, data), evaluate(function, data))
        for kind in ("arguments", "parameters", "constants", "outputs"):
            mine, theirs = getattr(function, kind), getattr(loaded, kind)
            assert [v.uid for v in mine] == [v.uid for v in theirs]
            assert [(v.name, v.shape, v.dtype, v.dynamic_axes, v.is_sparse, v.needs_gradient) for v in mine] == [
                (v.name, v.shape, v.dtype, v.dynamic_axes, v.is_sparse, v.needs_gradient) for v in theirs
            ]
        assert (loaded.uid, loaded.name, str(loaded)) == (function.uid, function.name, str(function))

    def test_is_the_same_file_after_loading(self, build, tmp_path):
        build()[0].save(tmp_path / "a")
        C.load_model(tmp_path / "a").save(tmp_path / "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_model_saved_here_gives_the_same_in_cntk(tmp_path):
    if not ORACLE.exists():
        pytest.skip("needs the original CNTK 2.7 in ../shared/oracle")
    expected = {}
    for build in BUILDERS:
        function, data = build()
        function.save(tmp_path / f"{build.__name__}.model")
        expected[build.__name__] = evaluate(function, data)
        flat = {f"{i}_{j}": d for i, batch in enumerate(data) for j, d in enumerate(batch)}
        np.savez(tmp_path / f"{build.__name__}.npz", **flat)
    (tmp_path / "run.py").write_text(
        "import cntk as C, numpy as np, json, sys\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    f, data = C.load_model(name + '.model'), np.load(name + '.npz')\n"
        "    fed = {}\n"
        "    for i, v in enumerate(f.arguments):\n"
        "        n = len([k for k in data.files if k.startswith('%d_' % i)])\n"
        "        rows = [data['%d_%d' % (i, j)] for j in range(n)]\n"
        "        fed[v] = rows if len(v.dynamic_axes) > 1 else np.stack(rows)\n"
        "        if v.is_sparse:\n"
        "            from scipy.sparse import csr_matrix\n"
        "            fed[v] = csr_matrix(fed[v])\n"
        "    values = f.eval(fed)\n"
        "    values = [values[v] for v in f.outputs] if len(f.outputs) > 1 else [values]\n"
        "    found[name] = [[np.asarray(row).tolist() for row in value] for value in values]\n"
        "json.dump(found, open('found.json', 'w'))\n"
    )
    names = [build.__name__ for build in BUILDERS]
    run = subprocess.run([ORACLE, "run.py", *names], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr[-2000:]
    outputs_in_cntk = json.loads((tmp_path / "found.json").read_text())
    for name in names:
        assert_same(outputs_in_cntk[name], expected[name])


def test_nodes_that_only_cntk_needs_are_in_the_file_alone(tmp_path):
    function, _ = spread_over_steps()
    function.save(tmp_path / "m")
    written = C.cntk_py.Dictionary.load(str(tmp_path / "m"))["primitive_functions"]
    spread = [r["inputs"][1].split("_")[0].rstrip("0123456789") for r in written if r["op"] == 50]
    loaded = nodes([C.load_model(tmp_path / "m").root_function], into_blocks=True)
    assert sorted(spread) == ["Input", "Placeholder", "Plus", "Plus"]  # what the steps are those of
    assert [n.op_name for n in loaded] == [n.op_name for n in nodes([function.root_function], into_blocks=True)]


def test_models_load_from_bytes_and_open_files(tmp_path):
    function, data = dense()
    function.save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    for source in (content, io.BytesIO(content), str(tmp_path / "m")):
        assert_same(evaluate(C.load_model(source), data), evaluate(function, data))


class _Tee:
    """What scripts put in the place of a standard stream, to have a log file too."""

    def write(self, text):
        pass


def _closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, _Tee(), _closed()], ids=["none", "tee", "closed"])
def test_models_are_saved_and_loaded_whatever_the_standard_error_stream_is(stream, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    function, data = dense()
    function.save(tmp_path / "model")
    assert_same(evaluate(C.load_model(tmp_path / "model"), data), evaluate(function, data))


def test_a_model_loaded_twice_and_combined_keeps_both_values(tmp_path):
    function, data = dense()
    function.save(tmp_path / "m")
    one, two = C.load_model(tmp_path / "m"), C.load_model(tmp_path / "m")
    two.parameters[0].value = np.zeros((3, 2))
    both = C.minus(one, two)
    both.save(tmp_path / "both")
    loaded = C.load_model(tmp_path / "both")
    assert len({p.uid for p in loaded.parameters}) == 4
    assert_same(evaluate(loaded, data * 2), evaluate(both, data * 2))


def test_constants_inside_a_block_count_if_others_are_listed_outside(tmp_path):
    """So CNTK saves double precision networks that it has evaluated."""
    f = C.sequence.is_last(C.sequence.input_variable(2))
    block = f.root_function
    block.node_inputs = [C.constant(9) if v.is_constant else v for v in block.node_inputs]
    f.save(tmp_path / "m")
    (steps,) = C.load_model(tmp_path / "m").eval([np.ones((3, 2), np.float32)])
    assert steps.tolist() == [0, 0, 1]


# ---- restoring
def test_restore_passes_nodes_that_cntk_inserts(tmp_path):
    """An operand with the batch axis alone gets the axes of the sequences that it is combined with."""
    def scaled(insert, **init):
        x, sequences = C.input_variable(2), C.sequence.input_variable(2)
        product = x * C.parameter(2, name="scale", **init)
        return (C.reconcile_dynamic_axes(product, sequences) if insert else product) + sequences

    scaled(insert=True, init=3).save(tmp_path / "m")
    function = scaled(insert=False)
    function.restore(tmp_path / "m")
    assert function.scale.value.tolist() == [3, 3]


def test_restore_sets_values_in_the_same_function_of_another_process(tmp_path):
    saved, data = dense()
    saved.save(tmp_path / "m")
    function, _ = dense()
    function.parameters[0].value = np.zeros(function.parameters[0].shape)
    function.restore(tmp_path / "m")
    assert_same(evaluate(function, data), evaluate(saved, data))


def test_the_graph_inside_a_block_may_differ(tmp_path):
    def block(name):
        p, x = C.placeholder(name=name), C.input_variable(3, name="x")
        return C.as_block(C.dropout(p, 0.5, seed=3) if name else C.dropout(p, 0.5), [(p, x)], "Block")

    saved, restored = block("p"), block("")
    saved.forward({saved.arguments[0]: np.ones((1, 3))}, [saved.output], {saved.output})
    saved.save(tmp_path / "m")
    restored.restore(tmp_path / "m")
    (node,) = [n for n in nodes([restored.root_function], into_blocks=True) if "rngSeed" in n.node_attributes]
    assert (node.node_attributes["rngSeed"], node.node_attributes["rngOffset"] > 0) == (3, True)


def test_a_number_may_have_the_type_that_cntk_gives_it_in_an_evaluation(tmp_path):
    """In CNTK 2.7 the number of `Function(lambda x: tanh(x) * 2)` is single precision until its values are doubles."""
    x = C.input_variable(2, dtype=np.float64)
    (C.tanh(x) * C.constant(3, dtype=np.float64)).save(tmp_path / "m")
    f = C.Function(lambda v: C.tanh(v) * 2)(x)
    assert f.constants[0].dtype == np.float32
    f.restore(tmp_path / "m")
    assert (f.constants[0].value, f.constants[0].dtype) == (3, np.float32)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda x: C.sin(C.times(x, weights(3, 2))), "is the operation Tanh, not Sin"),
        (lambda x: C.tanh(C.times(x, weights(3, 4))), "another kind, name, type or shape"),
        (lambda x: C.tanh(C.times(x, C.constant(np.ones((3, 2), np.float32)))), "another kind, name, type or shape"),
        (lambda x: C.tanh(C.times(x, weights(3, 2)), name="t"), "is called , not t"),
    ],
)
def test_restoring_another_function_names_the_difference_and_changes_nothing(tmp_path, other, reason):
    x, w = C.input_variable(3), weights(3, 2)
    before = w.value
    other(x).save(tmp_path / "m")
    with pytest.raises(ValueError, match=reason):
        C.tanh(C.times(x, w)).restore(tmp_path / "m")
    np.testing.assert_array_equal(w.value, before)


@pytest.mark.parametrize("x", [C.input_variable(2), C.constant([1, 2])])
def test_restore_passes_blocks_that_only_order_arguments(tmp_path, x):
    y, w = C.input_variable(2), C.parameter(init=np.ones((2, 2), np.float32))
    (C.times(y, w) - x).save(tmp_path / "m")
    ordered = C.Function(lambda e, d: C.times(d, w) - e)(x, y)
    w.value = np.zeros((2, 2), np.float32)
    ordered.restore(tmp_path / "m")
    np.testing.assert_array_equal(w.value, np.ones((2, 2)))


def test_a_missing_file_is_a_value_error_of_load_and_a_runtime_error_of_restore(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        C.load_model(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match="no such file"):
        C.tanh(C.input_variable(2)).restore(tmp_path / "nowhere")
