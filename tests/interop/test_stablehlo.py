"""Exported programs compute the same in a process that does not import this package."""

import subprocess
import sys

import numpy as np
import pytest

import cntkjax as C

SERVE = """
import jax, numpy as np, sys
loaded = jax.export.deserialize(bytearray(open(sys.argv[1], 'rb').read()))
arrays = np.load(sys.argv[2])
names = sorted(arrays.files)
inputs = [arrays[n] for n in names if not n.endswith('_lengths')]
inputs = [(x, arrays[n + '_lengths']) if n + '_lengths' in names else x for n, x in zip(names, inputs)]
jax.config.update('jax_enable_x64', any(arrays[n].dtype == np.float64 for n in names))
outputs = loaded.call(*inputs)
np.savez(sys.argv[3], *(outputs if isinstance(outputs, (tuple, list)) else [outputs]))
assert not [m for m in sys.modules if m.startswith(('cntk', 'optax'))]
"""


def served(function, folder, **inputs):
    """The outputs of the exported function in a process that does not import cntkjax."""
    path, inputs_file, outputs_file = (folder / name for name in ("m.stablehlo", "in.npz", "out.npz"))
    function.export_stablehlo(path)
    np.savez(inputs_file, **inputs)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVE, path, inputs_file, outputs_file],
        capture_output=True, text=True, cwd=folder, env={"PATH": "", "JAX_PLATFORMS": "cpu"}, timeout=100,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    with np.load(outputs_file) as arrays:
        return [arrays[name] for name in arrays.files]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_batch_of_an_image_network(tmp_path, dtype):
    with C.default_options(dtype=dtype):
        x = C.input_variable((2, 8, 8), dtype=dtype)
        f = C.layers.Sequential([
            C.layers.Convolution2D((3, 3), 4, activation=C.relu, pad=True), C.layers.BatchNormalization(map_rank=1),
            C.layers.MaxPooling((2, 2), strides=2), C.layers.Dense(3),
        ])(x)
    for n in (1, 5):
        data = np.random.default_rng(n).normal(size=(n, 2, 8, 8)).astype(dtype)
        (output,) = served(f, tmp_path, a=data)
        np.testing.assert_allclose(output, f.eval({x: data}), rtol=1e-5, atol=1e-6)
        assert output.dtype == dtype


def test_sequences_of_any_length_and_several_outputs(tmp_path):
    s, x = C.sequence.input_variable(3), C.input_variable(2)
    h = C.layers.Recurrence(C.layers.LSTM(4))(s)
    f = C.combine([h, C.splice(C.sequence.last(h), x)])
    parts = [np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (4, 2)]
    grid = np.zeros((2, 4, 3), np.float32)
    for row, part in zip(grid, parts, strict=True):
        row[: len(part)] = part
    other = np.ones((2, 2), np.float32)
    assert f.arguments == (s, x)
    steps, last = served(f, tmp_path, a=grid, a_lengths=np.int32([4, 2]), b=other)
    expected = f.eval({s: parts, x: other})
    for actual, want in zip(steps, expected[f.outputs[0]], strict=True):
        np.testing.assert_allclose(actual[: len(want)], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, expected[f.outputs[1]], rtol=1e-5, atol=1e-6)


def test_sums_of_products_over_steps_of_any_number(tmp_path):
    s, q = C.sequence.input_variable(3), C.input_variable(3)
    steps = C.sequence.unpack(s, 0, no_mask_output=True)
    f = C.combine([C.reduce_sum(C.tanh(steps) * C.reshape(q, (1, 3)), 1), C.reduce_sum(steps * C.exp(steps[:, :1]), 0)])
    parts = [np.random.default_rng(n).normal(size=(4, 3)).astype(np.float32) for n in (4, 2)]
    other = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    values = served(f, tmp_path, a=np.stack(parts), a_lengths=np.int32([4, 4]), b=other)
    expected = f.eval({s: parts, q: other})
    for actual, out in zip(values, f.outputs, strict=True):
        np.testing.assert_allclose(np.squeeze(actual), np.squeeze(expected[out]), rtol=1e-5, atol=1e-6)


def test_functions_that_look_back_take_padded_sequences(tmp_path):
    s = C.sequence.input_variable(1)
    f = C.sequence.reduce_sum(C.sequence.past_value(s, time_step=3))
    data = np.arange(16, dtype=np.float32).reshape(1, 16, 1)
    (output,) = served(f, tmp_path, a=data, a_lengths=np.int32([5]))
    np.testing.assert_allclose(output, f.eval({s: [data[0, :5]]}))


def test_sizes_of_planes_windows_and_selected_steps_stay_symbolic(tmp_path):
    s, x = C.sequence.input_variable(2), C.input_variable((2, 4, 5, 4))
    windows = C.layers.SequentialConvolution(2, num_filters=3, strides=2, pad=False)(s)
    selected = C.sequence.gather(s, C.greater(C.reduce_sum(s), 0))
    f = C.combine([C.layers.Convolution3D((3, 3, 3), 2)(x), windows, selected, C.sequence.slice(s, 1, -1)])
    parts = [np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32) for n in (16, 9)]
    grid = np.zeros((2, 16, 2), np.float32)
    for row, part in zip(grid, parts, strict=True):
        row[: len(part)] = part
    data = np.random.default_rng(0).normal(size=(2, *x.shape)).astype(np.float32)
    assert f.arguments == (x, s)
    volumes, *sequences = served(f, tmp_path, a=data, b=grid, b_lengths=np.int32([16, 9]))
    expected = f.eval({s: parts, x: data})
    np.testing.assert_allclose(volumes, expected[f.outputs[0]], rtol=1e-5, atol=1e-6)
    for actual, out in zip(sequences, f.outputs[1:], strict=True):
        for row, want in zip(actual, expected[out], strict=True):
            np.testing.assert_allclose(row[: len(want)], want, rtol=1e-5, atol=1e-6)


def test_an_unsupported_function_keeps_the_old_file(tmp_path):
    class Twice(C.ops.functions.UserFunction):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, 2 * argument

        def backward(self, state, root_gradients):
            return 2 * root_gradients

        def infer_outputs(self):
            return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="Python code of the user"):
        C.user_function(Twice([C.input_variable(1)])).export_stablehlo(path)
    assert path.read_bytes() == b"old"


def test_without_flatbuffers_the_error_has_the_pip_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(ImportError, match=r'pip install "cntkjax\[stablehlo\]"'):
        C.relu(C.input_variable(2)).export_stablehlo(tmp_path / "m.stablehlo")
    assert not list(tmp_path.iterdir())
