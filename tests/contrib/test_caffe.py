"""Converted networks compute what Caffe's documentation specifies; values and names recorded from CNTK's converter."""

import json
import struct

import numpy as np
import pytest

import cntkjax as C
from cntkjax.contrib.crosstalkcaffe.adapter.bvlccaffe.caffefiles import read_network, read_weights
from cntkjax.contrib.crosstalkcaffe.convert import CaffeConverter

RANDOM = np.random.RandomState(0)
IMAGE = RANDOM.standard_normal((4, 7, 9)).astype(np.float32)
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 dim: 7 dim: 9 } } }\n'


def varint(number):
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def blob(array, old=False):
    data = field(5, np.asarray(array, "<f4").tobytes())
    if old:
        shape = (1,) * (4 - np.ndim(array)) + np.shape(array)
        return b"".join(varint(i << 3) + varint(n) for i, n in enumerate(shape, 1)) + data
    return field(7, field(1, b"".join(map(varint, np.shape(array))))) + data


def caffemodel(weights, old=False):
    """Layers of today are field 100 of a network, those of the first version field 2."""
    layer, name, blobs = (2, 4, 6) if old else (100, 1, 7)
    return b"".join(
        field(layer, field(name, key.encode()) + b"".join(field(blobs, blob(a, old)) for a in arrays))
        for key, arrays in weights.items()
    )


def layer(kind, rest="", bottom="data", top=None, name="y"):
    ends = "".join(f'bottom: "{b}" ' for b in bottom.split()) + f'top: "{top or name}"'
    return f'layer {{ name: "{name}" type: "{kind}" {ends} {rest} }}\n'


@pytest.fixture
def convert(tmp_path):
    def converted(text, weights=None, source=(), old=False):
        (tmp_path / "net.prototxt").write_text(text)
        (tmp_path / "net.caffemodel").write_bytes(caffemodel(weights or {}, old))
        paths = {"ModelPath": str(tmp_path / "net.prototxt"), "WeightsPath": str(tmp_path / "net.caffemodel")}
        conf = {"SourceSolver": {"Source": "Caffe", **paths, **dict(source)}}
        conf["ModelSolver"] = {"CNTKModelPath": str(tmp_path / "net.model")}
        (tmp_path / "conf.json").write_text(json.dumps(conf))
        CaffeConverter.from_model(tmp_path / "conf.json")
        return C.load_model(str(tmp_path / "net.model"))

    return converted


def weights(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def windows(x, kernel, stride, pad, fill=0.0, dilation=(1, 1), size=None):
    """The windows over a padded sample, [channels, rows, columns, *kernel]; NaN beyond its end."""
    height, width = (n + 2 * p for n, p in zip(x.shape[1:], pad, strict=True))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    room = [(pad[i] + x.shape[1 + i] + pad[i] + reach[i] * stride[i]) for i in range(2)]
    grid = np.full((len(x), *room), np.nan)
    grid[:, :height, :width] = fill
    grid[:, pad[0] : pad[0] + x.shape[1], pad[1] : pad[1] + x.shape[2]] = x
    size = size or [(n + 2 * p - r) // s + 1 for n, p, r, s in zip(x.shape[1:], pad, reach, stride, strict=True)]
    return np.array([[
        grid[:, i * stride[0] :, j * stride[1] :][:, : reach[0] : dilation[0], : reach[1] : dilation[1]]
        for j in range(size[1])] for i in range(size[0])
    ]).transpose(2, 0, 1, 3, 4)


@pytest.mark.parametrize(
    ("parameters", "kernel", "stride", "pad", "dilation", "group"),
    [
        ("kernel_size: 3", (3, 3), (1, 1), (0, 0), (1, 1), 1),
        ("kernel_size: 5 pad: 1", (5, 5), (1, 1), (1, 1), (1, 1), 1),
        ("kernel_size: 3 pad: 1", (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ("kernel_size: 3 pad: 2 stride: 2 bias_term: false", (3, 3), (2, 2), (2, 2), (1, 1), 1),
        ("kernel_size: 3 pad: 2 dilation: 2", (3, 3), (1, 1), (2, 2), (2, 2), 1),
        ("kernel_size: 2 group: 2", (2, 2), (1, 1), (0, 0), (1, 1), 2),
        ("kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1", (1, 3), (1, 2), (0, 1), (1, 1), 1),
    ],
)
def test_convolution_computes_what_caffe_computes(convert, parameters, kernel, stride, pad, dilation, group):
    filters, bias = weights(6, 4 // group, *kernel), weights(6) * ("false" not in parameters)
    text = layer("Convolution", f"convolution_param {{ num_output: 6 group: {group} {parameters} }}")
    model = convert(INPUT + text, {"y": [filters, bias][: 1 + bias.any()]})
    patches = windows(IMAGE, kernel, stride, pad, dilation=dilation).reshape(group, 4 // group, -1, np.prod(kernel))
    expected = np.einsum("gcpk,gfck->gfp", patches, filters.reshape(group, 6 // group, 4 // group, -1)).reshape(6, -1)
    actual = model.eval(IMAGE[None])[0]
    np.testing.assert_allclose(actual.reshape(6, -1), expected + bias[:, None], rtol=1e-3, atol=1e-4)
    assert [p.name for p in model.parameters] == ["y.W", "y.b"][: 1 + bias.any()]


@pytest.mark.parametrize(
    ("parameters", "kernel", "stride", "pad", "dilation", "group"),
    [
        ("kernel_size: 3", (3, 3), (1, 1), (0, 0), (1, 1), 1),
        ("kernel_size: 4 stride: 2 pad: 1 bias_term: false", (4, 4), (2, 2), (1, 1), (1, 1), 1),
        ("kernel_size: 3 stride: 2 dilation: 2", (3, 3), (2, 2), (0, 0), (2, 2), 1),
        ("kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 1 group: 2", (2, 3), (3, 1), (0, 0), (1, 1), 2),
        ("kernel_size: 4 stride: 2 pad: 1 group: 4", (4, 4), (2, 2), (1, 1), (1, 1), 4),  # bilinear interpolation
    ],
)
def test_deconvolution_adds_filters_to_windows(convert, parameters, kernel, stride, pad, dilation, group):
    outputs = 2 * group
    filters, bias = weights(4, 2, *kernel), weights(outputs) * ("false" not in parameters)
    text = layer("Deconvolution", f"convolution_param {{ num_output: {outputs} group: {group} {parameters} }}")
    model = convert(INPUT + text, {"y": [filters, bias][: 1 + bias.any()]})
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    full = np.zeros((outputs, *((n - 1) * s + r for n, s, r in zip(IMAGE.shape[1:], stride, reach, strict=True))))
    for c, i, j in np.ndindex(IMAGE.shape):
        first = 2 * (c // (4 // group))
        rows, columns = (slice(n * s, n * s + r, d) for n, s, r, d in zip((i, j), stride, reach, dilation, strict=True))
        full[first : first + 2, rows, columns] += IMAGE[c, i, j] * filters[c]
    expected = full[:, pad[0] : full.shape[1] - pad[0], pad[1] : full.shape[2] - pad[1]] + channels(bias)
    np.testing.assert_allclose(model.eval(IMAGE[None])[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("parameters", "kernel", "stride", "pad", "size"),
    [
        ("kernel_size: 2 stride: 2", (2, 2), (2, 2), (0, 0), (4, 5)),
        ("kernel_size: 3 stride: 2 pad: 1", (3, 3), (2, 2), (1, 1), (4, 5)),
        ("kernel_size: 2 stride: 2 pad: 1", (2, 2), (2, 2), (1, 1), (4, 5)),  # one more would lie in the padding
        ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2", (2, 3), (1, 2), (0, 0), (6, 4)),
        ("global_pooling: true", (7, 9), (1, 1), (0, 0), (1, 1)),
    ],
)
def test_pooling_computes_what_caffe_computes(convert, kind, parameters, kernel, stride, pad, size):
    model = convert(INPUT + layer("Pooling", f"pooling_param {{ pool: {kind} {parameters} }}"))
    patches = windows(IMAGE, kernel, stride, pad, -np.inf if kind == "MAX" else 0.0, size=size)
    want = (np.nanmax if kind == "MAX" else np.nanmean)(patches, axis=(3, 4))
    np.testing.assert_allclose(model.eval(IMAGE[None])[0], want, rtol=1e-4, atol=1e-5)


MEAN, VARIANCE, SCALE, BIAS = weights(4), np.abs(weights(4)) + 1, weights(4), weights(4)


def channels(values):
    return values[:, None, None]


def normalized(epsilon):
    return (IMAGE - channels(MEAN)) / np.sqrt(channels(VARIANCE) + epsilon)


def around(x):
    padded = np.pad(x**2, [(1, 1), (0, 0), (0, 0)])
    return padded[:-2] + padded[1:-1] + padded[2:]


STATISTICS = [MEAN * 2, VARIANCE * 2, np.float32([2])]
FULL = weights(3, 252)
CASES = {
    "norm": (layer("BatchNorm"), {"y": STATISTICS}, lambda: normalized(1e-5)),
    "norm and scale": (
        layer("BatchNorm", "batch_norm_param { eps: 0.5 }", top="data")
        + layer("Scale", "scale_param { bias_term: true }", top="data", name="z"),
        {"y": STATISTICS, "z": [SCALE, BIAS]}, lambda: normalized(0.5) * channels(SCALE) + channels(BIAS),
    ),
    "norm and factor": (
        layer("BatchNorm") + layer("Scale", bottom="y", name="z"),
        {"y": STATISTICS, "z": [SCALE]}, lambda: normalized(1e-5) * channels(SCALE),
    ),
    "scale": (
        layer("Scale", "scale_param { bias_term: true }"), {"y": [SCALE, BIAS]},
        lambda: IMAGE * channels(SCALE) + channels(BIAS),
    ),
    "dense": (
        layer("InnerProduct", "inner_product_param { num_output: 3 }"), {"y": [FULL, BIAS[:3]]},
        lambda: FULL @ IMAGE.ravel() + BIAS[:3],
    ),
    "transposed": (
        layer("InnerProduct", "inner_product_param { num_output: 3 transpose: true bias_term: false }"),
        {"y": [FULL.T]}, lambda: FULL @ IMAGE.ravel(),
    ),
    "lrn": (
        layer("LRN", "lrn_param { local_size: 3 alpha: 0.3 k: 2 }"), {},
        lambda: IMAGE / (2 + 0.1 * around(IMAGE)) ** 0.75,
    ),
    "lrn within": (
        layer("LRN", "lrn_param { local_size: 3 alpha: 0.3 k: 2 norm_region: WITHIN_CHANNEL }"), {},
        lambda: IMAGE / (1 + 0.3 * (windows(IMAGE, (3, 3), (1, 1), (1, 1)) ** 2).mean((3, 4))) ** 0.75,
    ),
    "relu": (layer("ReLU"), {}, lambda: np.maximum(IMAGE, 0)),
    "slope": (layer("ReLU", "relu_param { negative_slope: 0.1 }"), {}, lambda: np.where(IMAGE > 0, IMAGE, IMAGE / 10)),
    "slopes": (layer("PReLU"), {"y": [BIAS]}, lambda: np.where(IMAGE > 0, IMAGE, IMAGE * channels(BIAS))),
    "elu": (layer("ELU", "elu_param { alpha: 2 }"), {}, lambda: np.where(IMAGE > 0, IMAGE, 2 * np.expm1(IMAGE))),
    "sigmoid": (layer("Sigmoid"), {}, lambda: 1 / (1 + np.exp(-IMAGE))),
    "tanh": (layer("TanH"), {}, lambda: np.tanh(IMAGE)),
    "abs": (layer("AbsVal"), {}, lambda: np.abs(IMAGE)),
    "power": (
        layer("Power", "power_param { power: 2 scale: 3 shift: -1 }"), {}, lambda: (3 * IMAGE - 1) ** 2,
    ),
    "flatten": (layer("Flatten"), {}, lambda: IMAGE.ravel()),
    "softmax": (layer("Softmax"), {}, lambda: np.exp(IMAGE) / np.exp(IMAGE).sum(0)),
    "concat": (
        layer("AbsVal", name="a") + layer("Concat", "concat_param { axis: -1 }", "a data"), {},
        lambda: np.concatenate([np.abs(IMAGE), IMAGE], 2),
    ),
    "sum": (
        layer("AbsVal", name="a") + layer("Eltwise", "eltwise_param { coeff: 1 coeff: -1 }", "a data"), {},
        lambda: np.abs(IMAGE) - IMAGE,
    ),
    "product": (
        layer("AbsVal", name="a") + layer("Eltwise", "eltwise_param { operation: PROD }", "a data a"), {},
        lambda: np.abs(IMAGE) ** 2 * IMAGE,
    ),
    "split": (
        'layer { name: "s" type: "Split" bottom: "data" top: "a" top: "b" }' + layer("Eltwise", "", "a b"), {},
        lambda: 2 * IMAGE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_compute_what_caffe_computes(convert, case):
    text, arrays, want = CASES[case]
    model = convert(INPUT + text, arrays)
    np.testing.assert_allclose(model.eval(IMAGE[None])[0], want(), rtol=2e-4, atol=1e-5)


NETWORK = """name: "tiny"  # the layers of a small classifier
input: "data" input_dim: 1 input_dim: 2 input_dim: 5 input_dim: 5
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" batch_norm_param < eps: 0.001 > }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 3, stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" dropout_param { dropout_ratio: 0.4 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" include { phase: TRAIN } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" include: { phase: TEST } }
"""
SINES = {
    name: [np.sin(np.arange(np.prod(s)) + i).reshape(s) + (1.5 if (name, i) == ("norm", 1) else 0)
           for i, s in enumerate(shapes)]
    for name, shapes in {
        "conv": [(3, 2, 3, 3), (3,)], "norm": [(3,), (3,)], "scale": [(3,), (3,)], "fc": [(4, 12), (4,)],
    }.items()
}
SINES["norm"].append(np.ones(1))
SAMPLE = np.cos(np.arange(50)).reshape(1, 2, 5, 5).astype(np.float32)
OF_CNTK = [0.62928557, 0.27594241, 0.06981551, 0.0249565]


def test_a_network_computes_and_is_named_as_in_cntk(convert):
    model = convert(NETWORK, SINES)
    np.testing.assert_allclose(model.eval(SAMPLE)[0], OF_CNTK, rtol=1e-4)
    names = ["conv.W", "conv.b", "norm.scale", "norm.bias", "norm.mean", "norm.var", "fc.sc", "fc.b"]
    assert sorted(p.name for p in model.parameters) == sorted(names)
    assert model.find_by_name("norm").op_name == "BatchNormalization"
    assert model.find_by_name("drop").root_function.attributes["dropoutRate"] == pytest.approx(0.4)
    assert [o.name for o in model.outputs] == ["prob"]


def test_weights_and_layers_of_the_first_version(convert):
    text = 'input: "data" input_dim: 1 input_dim: 4 input_dim: 7 input_dim: 9\n' + layer(
        "INNER_PRODUCT", "inner_product_param { num_output: 3 }"
    ).replace("layer {", "layers {").replace('"INNER_PRODUCT"', "INNER_PRODUCT")
    model = convert(text, {"y": [FULL, BIAS[:3]]}, old=True)
    np.testing.assert_allclose(model.eval(IMAGE[None])[0], FULL @ IMAGE.ravel() + BIAS[:3], rtol=1e-4)


def test_all_outputs_and_shapes_of_data_layers(convert):
    text = 'layer { name: "d" type: "Data" top: "data" top: "label" data_param { batch_size: 3 } }'
    text += layer("AbsVal", name="a") + layer("ReLU", name="b")
    text += layer("Accuracy", bottom="a label", name="c")
    model = convert(text, source={"Tensor": {"data": [4, 7, 9]}}.items())
    values = {variable.name: value for variable, value in model.eval(IMAGE[None]).items()}
    np.testing.assert_allclose(values["a"], np.abs(IMAGE[None]))
    np.testing.assert_allclose(values["b"], np.maximum(IMAGE[None], 0))
    with pytest.raises(ValueError, match="has no shape for input 'data'"):
        convert(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (layer("SPP"), r"net.prototxt: layer 'y' \(SPP\) is not converted"),
        (layer("Pooling", "pooling_param { pool: STOCHASTIC }"), "pooling STOCHASTIC is not converted"),
        (layer("LRN", "lrn_param { local_size: 4 }"), "ACROSS_CHANNELS over 4 elements is not converted"),
        (layer("Convolution"), "has no weights in .*net.caffemodel"),
        (layer("ReLU", bottom="x"), "no layer computes 'x'"),
        (layer("ReLU") * 2, "another layer has the same name"),
        ("layer {", "ends within 'a message'"),
        ("layer }", "line 2: '}' ends nothing"),
        ("layer { name: }", "line 2: 'name' has no value"),
        ("{ }", "line 2: '{' has no name"),
        ('name: "x', "line 2: '\"x' is not understood"),
    ],
)
def test_errors_name_unsupported_layers(convert, text, reason):
    with pytest.raises(ValueError, match=reason):
        convert(INPUT + text)


def test_errors_in_weights_name_the_byte(tmp_path):
    path = tmp_path / "w"
    complete = caffemodel({"y": [FULL, BIAS]})
    path.write_bytes(complete)
    assert [a.shape for a in read_weights(path)["y"]] == [(3, 252), (4,)]
    for data in (complete[:-3], complete[:2] + b"\xff" * 12, field(100, field(7, blob(BIAS)[:-4] + b"\0"))):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="byte"):
            read_weights(path)
    broken = field(7, field(1, varint(5))) + field(5, struct.pack("<4f", 1, 2, 3, 4))
    path.write_bytes(field(100, field(7, broken)))
    with pytest.raises(ValueError, match=r"4 numbers are there for an array of the shape \(5,\)"):
        read_weights(path)


def test_parsing_of_networks(tmp_path):
    (tmp_path / "t").write_text('a: 1 a: -2.5e1 b: [1, 2,3] c { d: true } c < e: MAX; >\nf: "x\\"y" # z: 3\n')
    network = read_network(tmp_path / "t")
    assert network == {
        "a": [1, -25.0], "b": [1, 2, 3], "c": [{"d": [True]}, {"e": ["MAX"]}], "f": ['x"y'], "layer": [],
    }


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ([], "an object of objects"),
        ({"Solver": {}}, "Solver is none of the sections source_solver"),
        ({"SourceSolver": {"Path": "x"}}, "SourceSolver has no Path, but source, model_path"),
        ({"SourceSolver": {"Source": "Torch"}}, "Source is 'Torch'"),
        ({"SourceSolver": {"Source": "Caffe"}}, "needs ModelPath"),
    ],
)
def test_errors_in_configurations(tmp_path, conf, reason):
    (tmp_path / "c").write_text(json.dumps(conf))
    with pytest.raises(ValueError, match=reason):
        CaffeConverter.from_model(tmp_path / "c")
