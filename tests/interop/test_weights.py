"""Weights go to files and come back, also from other libraries; what does not fit is named and changes nothing."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.cli import main
from cntkjax.formats.safetensors import decode


def network():
    layers = C.layers
    return layers.Sequential([
        layers.Convolution2D((3, 3), 4, pad=True, name="conv"), layers.BatchNormalization(map_rank=1, name="norm"),
        layers.Dense(5, activation=C.relu, name="hidden"), layers.Dense(2, name="out"),
    ])(C.input_variable((1, 4, 4)))


IMAGES = np.random.default_rng(0).normal(size=(3, 1, 4, 4)).astype(np.float32)


def test_weights_come_back_from_safetensors(tmp_path):
    one, other = network(), network()
    C.save_weights(one, tmp_path / "w.safetensors")
    assert C.load_weights(other, tmp_path / "w.safetensors") == []
    np.testing.assert_array_equal(one.eval(IMAGES), other.eval(IMAGES))


def test_what_a_conversion_writes_is_loaded(tmp_path):
    model = network()
    model.save(tmp_path / "m.model")
    assert main(["convert", str(tmp_path / "m.model"), str(tmp_path / "w.safetensors")]) == 0
    other = network()
    assert C.load_weights(other, tmp_path / "w.safetensors") == []
    np.testing.assert_array_equal(model.eval(IMAGES), other.eval(IMAGES))


def test_safetensors_are_those_of_the_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    model = network()
    C.save_weights(model, tmp_path / "w.safetensors")
    arrays = library.load_file(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(arrays["hidden.W"], model.hidden.W.value)
    library.save_file({k: np.asarray(v + 1) for k, v in arrays.items()}, tmp_path / "more.safetensors")
    expected = model.hidden.W.value + 1
    C.load_weights(model, tmp_path / "more.safetensors")
    np.testing.assert_array_equal(model.hidden.W.value, expected)


def test_arrays_of_other_libraries_are_turned():
    x = C.input_variable(4)
    model = C.layers.Dense(2, name="h")(x)
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    C.load_weights(model, {"h.weight": weight, "h.bias": np.ones(2)}, layout="torch")
    np.testing.assert_allclose(model.eval(np.ones((1, 4), np.float32)), [weight.sum(1) + 1])
    filters = np.random.default_rng(1).normal(size=(3, 3, 1, 4)).astype(np.float32)
    conv = C.layers.Convolution2D((3, 3), 4, bias=False, name="c")(C.input_variable((1, 5, 5)))
    C.load_weights(conv, {"c/kernel": filters}, layout="keras")
    np.testing.assert_array_equal(conv.c.W.value[2, 0], filters[:, :, 0, 2])


def test_state_dicts_of_pytorch_are_read_and_written(tmp_path):
    torch = pytest.importorskip("torch", reason="files of PyTorch need the package torch")
    layer = torch.nn.Linear(4, 2)
    torch.save({"h." + k: v for k, v in layer.state_dict().items()}, tmp_path / "h.pt")
    model = C.layers.Dense(2, name="h")(C.input_variable(4))
    C.load_weights(model, tmp_path / "h.pt")
    data = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(model.eval(data), layer(torch.from_numpy(data)).detach().numpy(), rtol=1e-5)
    C.save_weights(model, tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    layer.load_state_dict({name.removeprefix("h."): value for name, value in back.items()})


def test_a_network_of_pytorch_fits_with_its_biases_counts_and_flattened_images():
    weight, bias = IMAGES[0, 0, :3, :3][None, None] + np.arange(4)[:, None, None, None], np.arange(4.0)
    state = {
        "conv.weight": weight, "conv.bias": bias, "norm.weight": bias + 1, "norm.bias": bias, "norm.running_mean": bias,
        "norm.running_var": bias + 2, "norm.num_batches_tracked": np.array(3),
        "hidden.weight": np.arange(320.0).reshape(5, 64), "hidden.bias": np.ones(5), "out.weight": np.ones((2, 5)),
        "out.bias": np.zeros(2),
    }
    model = network()
    assert C.load_weights(model, state, layout="torch") == []
    np.testing.assert_array_equal(model.conv.b.value[:, 0, 0], bias)
    np.testing.assert_array_equal(model.hidden.W.value[1, 2, 3], 16 + 8 + 3 + 64 * np.arange(5))  # [C, H, W] in order


def test_what_is_written_for_pytorch_has_its_names_and_shapes(tmp_path):
    C.save_weights(network(), tmp_path / "w.safetensors", layout="torch")
    shapes = {name: array.shape for name, array in decode((tmp_path / "w.safetensors").read_bytes()).items()}
    assert shapes == {
        "conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "norm.weight": (4,), "norm.bias": (4,),
        "norm.running_mean": (4,), "norm.running_var": (4,), "hidden.weight": (5, 64), "hidden.bias": (5,),
        "out.weight": (2, 5), "out.bias": (2,),
    }


KERAS = {
    "conv": {"kernel": (3, 3, 1, 4), "bias": (4,)},
    "norm": {"gamma": (4,), "beta": (4,), "moving_mean": (4,), "moving_variance": (4,)},
    "hidden": {"kernel": (64, 5), "bias": (5,)}, "out": {"kernel": (5, 2), "bias": (2,)},
}


@pytest.mark.parametrize("version", [2, 3])
def test_weights_of_keras_are_read_by_the_names_of_layers(version, tmp_path):
    h5py = pytest.importorskip("h5py", reason="weights of Keras need the package h5py")
    kinds = {"conv": "conv2d", "norm": "batch_normalization", "hidden": "dense", "out": "dense_1"}
    with h5py.File(tmp_path / "k.weights.h5", "w") as file:
        for layer, shapes in KERAS.items():
            arrays = {name: np.arange(1.0, 1 + np.prod(shape)).reshape(shape) for name, shape in shapes.items()}
            if version == 3:
                group = file.create_group(f"layers/{kinds[layer]}/vars")
                group.attrs["name"] = layer
                for number, array in enumerate(arrays.values()):
                    group[str(number)] = array
            else:
                for name, array in arrays.items():
                    file[f"{layer}/{layer}/{name}:0"] = array
                file[layer].attrs["weight_names"] = [f"{layer}/{name}:0" for name in arrays]
        if version == 3:
            file["optimizer/vars/0"] = 7
        else:
            file.attrs["layer_names"] = list(KERAS)
    model = network()
    assert C.load_weights(model, tmp_path / "k.weights.h5") == []
    np.testing.assert_array_equal(model.conv.W.value[3, 0], np.arange(9).reshape(3, 3) * 4 + 4)
    np.testing.assert_array_equal(model.norm.scale.value, np.arange(1, 5))
    np.testing.assert_array_equal(model.hidden.W.value[1, 2, 3], ((2 * 4 + 3) * 4 + 1) * 5 + np.arange(1, 6))  # H, W, C


def test_names_may_differ_and_be_missing():
    model = C.layers.Dense(2, name="h")(C.input_variable(4))
    assert C.load_weights(model, {"fc": np.ones((4, 2))}, names={"fc": "h.W"}, strict=False) == ["h.b"]
    assert (model.h.W.value == 1).all()


@pytest.mark.parametrize(("arrays", "message"), [
    ({"h.W": np.ones((4, 2)), "g": np.ones(1)}, r"lacks \['g'\].*lack \['h.b'\]"),
    ({"h.W": np.ones((2, 4)), "h.b": np.ones(2)}, r"h.W has the shape \(4, 2\) in the model, and \(2, 4\)"),
])
def test_what_does_not_fit_is_named_and_changes_nothing(arrays, message):
    model = C.layers.Dense(2, name="h")(C.input_variable(4))
    before = model.h.W.value
    with pytest.raises(ValueError, match=message):
        C.load_weights(model, arrays)
    np.testing.assert_array_equal(model.h.W.value, before)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x20" + bytes(7) + b"x" * 40])
def test_damaged_files_are_refused(data, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="safetensors"):
        C.load_weights(network(), tmp_path / "w.safetensors")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="ends with one of .safetensors"):
        C.load_weights(network(), tmp_path / "w.npz")
