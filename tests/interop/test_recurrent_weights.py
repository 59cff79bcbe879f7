"""Weights of recurrent layers of PyTorch and Keras give the numbers that these libraries compute with them.

The literals are those of PyTorch 2.13 and Keras 3.15.
"""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.formats.safetensors import decode
from cntkjax.layers import GRU, LSTM, Recurrence, RNNStep


def numbers(*shape, start=1):
    return np.sin(start + np.arange(np.prod(shape))).reshape(shape).astype(np.float32)


X = numbers(3, 2)


def model_of(cell):
    return Recurrence(cell)(C.sequence.input_variable(2))


def assert_values(model, expected):
    np.testing.assert_allclose(model.eval([X])[0], expected, atol=2e-6)


def of_pytorch(gates, outputs=2):
    return {
        "r.weight_ih_l0": numbers(2 * gates, 2), "r.weight_hh_l0": numbers(2 * gates, outputs, start=2),
        "r.bias_ih_l0": numbers(2 * gates, start=3), "r.bias_hh_l0": numbers(2 * gates, start=4),
    }


def of_keras(gates):
    return {
        "kernel": numbers(2, 2 * gates), "recurrent_kernel": numbers(2, 2 * gates, start=2),
        "bias": numbers(2 * gates, start=3),
    }


PYTORCH = {
    "LSTM": (
        lambda: LSTM(2, name="r"), of_pytorch(4), [[0.429698, 0.001471], [0.165669, 0.035056], [0.11532, 0.021382]]
    ),
    "LSTM with a projection": (
        lambda: LSTM(1, 2, name="r"), of_pytorch(4, 1) | {"r.weight_hr_l0": numbers(1, 2, start=5)},
        [[-0.412459], [-0.086955], [-0.087208]],
    ),
    "RNN": (
        lambda: RNNStep(2, activation=C.tanh, name="r"), of_pytorch(1),
        [[0.725525, -0.979502], [-0.580756, -0.62482], [-0.979815, -0.537701]],
    ),
}
KERAS = {
    "lstm": (
        lambda: LSTM(2, name="r"), of_keras(4), [[0.144046, 0.172197], [0.119623, 0.136364], [0.144307, 0.061089]]
    ),
    "gru": (
        lambda: GRU(2, name="r"), of_keras(3), [[-0.149632, 0.074789], [0.426212, 0.711659], [0.650036, 0.879044]]
    ),
    "simple_rnn": (
        lambda: RNNStep(2, activation=C.tanh, name="r"), of_keras(1),
        [[0.751987, -0.591398], [0.857658, 0.549381], [-0.328481, -0.949144]],
    ),
}


@pytest.mark.parametrize("case", PYTORCH)
def test_cells_of_pytorch(case):
    cell, state, expected = PYTORCH[case]
    model = model_of(cell())
    assert C.load_weights(model, state, layout="torch") == []
    assert_values(model, expected)


@pytest.mark.parametrize("case", KERAS)
def test_cells_of_keras(case):
    cell, arrays, expected = KERAS[case]
    model = model_of(cell())
    assert C.load_weights(model, {f"r/{name}": array for name, array in arrays.items()}, layout="keras") == []
    assert_values(model, expected)


def test_a_module_of_pytorch_with_two_layers_in_both_directions():
    def both(name):
        ends = {"": False, "_reverse": True}
        return [Recurrence(LSTM(2, name=name + end), go_backwards=backwards) for end, backwards in ends.items()]

    layers = [(*both("r_l0"),), C.splice, (*both("r_l1"),), C.splice]
    model = C.layers.Sequential(layers)(C.sequence.input_variable(2))
    names = [
        f"{part}_l{layer}{end}" for layer in (0, 1) for end in ("", "_reverse")
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    shapes = {"weight_ih": (8, 2), "weight_hh": (8, 2), "bias_ih": (8,), "bias_hh": (8,)}
    state = {
        f"r.{name}": numbers(*((8, 4) if name.startswith("weight_ih_l1") else shapes[name.partition("_l")[0]]), start=i)
        for i, name in enumerate(names, 1)
    }
    assert C.load_weights(model, state, layout="torch") == []
    assert_values(model, [
        [-0.009382, -0.074042, 0.332738, 0.081482], [-0.037324, -0.105214, 0.278652, 0.088406],
        [-0.063833, -0.134264, 0.187185, 0.061651],
    ])


def test_names_of_pytorch_may_be_given():
    _, state, expected = PYTORCH["LSTM"]
    model = model_of(LSTM(2))
    ours = {"weight_ih_l0": "W", "weight_hh_l0": "H", "bias_ih_l0": "b", "bias_hh_l0": "b"}
    C.load_weights(
        model, {name[2:]: array for name, array in state.items()}, {k: f"LSTM.{v}" for k, v in ours.items()},
        layout="torch",
    )
    assert_values(model, expected)


@pytest.mark.parametrize("case", PYTORCH)
def test_what_is_written_for_pytorch_has_its_names_shapes_and_gates(case, tmp_path):
    cell, state, expected = PYTORCH[case]
    model, other = model_of(cell()), model_of(cell())
    C.load_weights(model, state, layout="torch")
    C.save_weights(model, tmp_path / "w.safetensors", layout="torch")
    arrays = decode((tmp_path / "w.safetensors").read_bytes())
    assert {name: array.shape for name, array in arrays.items()} == {k: v.shape for k, v in state.items()}
    np.testing.assert_array_equal(arrays["r.weight_ih_l0"], state["r.weight_ih_l0"])
    C.load_weights(other, tmp_path / "w.safetensors", layout="torch")
    assert_values(other, expected)


def test_a_gru_comes_back_from_a_file_for_pytorch(tmp_path):
    one, other = (model_of(GRU(2, name="r")) for _ in range(2))
    C.save_weights(one, tmp_path / "w.safetensors", layout="torch")
    assert C.load_weights(other, tmp_path / "w.safetensors", layout="torch") == []
    np.testing.assert_array_equal(one.eval([X])[0], other.eval([X])[0])


@pytest.mark.parametrize(("state", "layout"), [
    (of_pytorch(3), "torch"),
    ({f"r.{name}": array for name, array in of_keras(3).items()} | {"r.bias": np.zeros((2, 6))}, "keras"),
])
def test_a_gru_that_scales_the_product_is_refused_and_changes_nothing(state, layout):
    model = model_of(GRU(2, name="r"))
    before = model.eval([X])[0]
    with pytest.raises(ValueError, match="(?s)r is a GRU whose reset gate scales a product.*reset_after=False"):
        C.load_weights(model, state, layout=layout)
    np.testing.assert_array_equal(model.eval([X])[0], before)


def test_weights_of_other_sizes_are_named():
    with pytest.raises(ValueError, match=r"r.W has the shape \(2, 12\) in the model, and \(2, 8\)"):
        C.load_weights(model_of(LSTM(3, name="r")), of_pytorch(4), layout="torch")
    with pytest.raises(ValueError, match=r"r.W has the shape \(2, 8\) in the model, and \(2, 2\)"):
        C.load_weights(model_of(LSTM(2, name="r")), of_pytorch(1), layout="torch")


def both_directions():
    names = {"forward_r": False, "backward_r": True}
    cells = [Recurrence(LSTM(2, name=name), go_backwards=backwards) for name, backwards in names.items()]
    return C.layers.Sequential([(*cells,), C.splice])(C.sequence.input_variable(2))


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_keras(version, tmp_path):
    h5py = pytest.importorskip("h5py", reason="weights of Keras need the package h5py")
    with h5py.File(tmp_path / "k.weights.h5", "w") as file:
        for layer, arrays in (("r", of_keras(4)), ("both", of_keras(4))):
            inner = ["r"] if layer == "r" else ["forward_r", "backward_r"]
            if version == 2:
                paths = [f"both/{name}" for name in inner] if layer == "both" else ["r/lstm_cell"]
                names = [f"{path}/{name}:0" for path in paths for name in arrays]
                file.create_group(layer).attrs["weight_names"] = names
                for name in names:
                    file[f"{layer}/{name}"] = arrays[name.split("/")[-1][:-2]]
                continue
            groups = ["layers/lstm"] if layer == "r" else [
                f"layers/bidirectional/{name}_layer" for name in ("forward", "backward")
            ]
            for group, name in zip(groups, inner, strict=True):
                file.create_group(f"{group}/vars").attrs["name"] = name
                file.create_group(f"{group}/cell/vars").attrs["name"] = "lstm_cell"
                for number, array in enumerate(arrays.values()):
                    file[f"{group}/cell/vars/{number}"] = array
        if version == 2:
            file.attrs["layer_names"] = ["r", "both"]
    one, both = model_of(LSTM(2, name="r")), both_directions()
    assert C.load_weights(C.combine([one, both]), tmp_path / "k.weights.h5") == []
    assert_values(one, KERAS["lstm"][2])
    np.testing.assert_allclose(both.eval([X])[0][:, :2], KERAS["lstm"][2], atol=2e-6)
    backward = both.eval([X[::-1].copy()])[0][::-1, 2:]
    np.testing.assert_allclose(backward, KERAS["lstm"][2], atol=2e-6)
