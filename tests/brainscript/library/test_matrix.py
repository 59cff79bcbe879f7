"""Products, convolutions and pooling of the library: the values of the same operations of the Python API."""

import numpy as np
import pytest

import cntkjax as C
from tests.brainscript.language.descriptions import build

R = np.random.default_rng(5)
COLUMN, OTHER = R.normal(size=(2, 6)).astype(np.float32), R.normal(size=(2, 4)).astype(np.float32)
IMAGE, SMALL = R.normal(size=(2, 3, 6, 4)).astype(np.float32), R.normal(size=(2, 3, 3, 2)).astype(np.float32)
REGIONS = np.tile(np.float32([[0, 0, 3, 5], [1, 2, 2, 4]]), (2, 1, 1))
NETWORK = """
    column = Input {6} ; other = Input {4} ; image = Input {(4 : 6 : 3)} ; small = Input {(2 : 3 : 3)}
    regions = Input {(4 : 2)}
    W = ParameterTensor {(5 : 6)} ; E = ParameterTensor {(5 : 3)} ; b = ParameterTensor {6}
    K = ParameterTensor {(2 : 3 : 3 : 2)} ; H = ParameterTensor {(6 : 5), init='fixedValue', initValue=0.5}
    product = W * column ; transposed = TransposeTimes (H, column)
    scalar = Times (b, column, outputRank=0) ; dot = TransposeTimes (b, column)
    words = LookupTable (E, column) ; word = LookupTable (W, column)
    pairs = KhatriRaoProduct (column, other)
    flat = ParameterTensor {(5 : 18)} * small
    conv = Convolution (K, image, (2 : 3 : 3), mapDims=2, autoPadding=false, lowerPad=(1 : 0 : 0), upperPad=(1 : 2 : 0))
    largest = Pooling (image, 'max', (2 : 3), stride=(2 : 2), autoPadding=false, lowerPad=(0 : 1), upperPad=(0 : 2))
    inner = Pooling (image, 'average', (2 : 3), stride=(2 : 2), autoPadding=false, lowerPad=(0 : 1), upperPad=(0 : 2))
    counted = Pooling (image, 'average', (2 : 3), stride=(2 : 2), autoPadding=false, lowerPad=(0 : 1), upperPad=(0 : 2),
                       includePad=true)
    means = AveragePooling (image, 2, 3, 2, 1) ; maxima = MaxPooling (image, 2, 3, 2, 1)
    back = MaxUnpoolingLayer {(2 : 2), stride=2} (small, image)
    roi = ROIPoolingLayer {(2 : 2), spatialScale=1} (image, regions)
    response = LocalResponseNormalization (image, 1, 1, 0.5, 0.75)
    manual = CropManual (image, small, 2, 1)
    whole = MaxPoolingLayer {(3 : 3)} (image) ; automatic = CropAutomatic (image, whole)
    given = CropAutomaticGivenAncestors (image, whole, image, image)
    dropped = Dropout (column)
    outputNodes = (product : transposed : scalar : dot : words : word : pairs : flat : conv : largest : inner : counted
                   : means : maxima : back : roi : response : manual : automatic : given : dropped)
"""
DATA = {"column": COLUMN, "other": OTHER, "image": IMAGE, "small": SMALL, "regions": REGIONS}


def padded(image, rows, columns, value):
    return np.pad(image, ((0, 0), (0, 0), rows, columns), constant_values=value)


def by_python(network):
    """The expected values, [samples, *shape]."""
    w, e, b, k = (network.nodes[name].value for name in "WEbK")
    x = C.input_variable(IMAGE.shape[1:])
    margins = C.input_variable((3, 8, 6))

    def evaluated(f, **more):
        return f.eval({v: more.get(v.name, IMAGE) for v in f.arguments})

    pool = {"auto_padding": [False] * 3}
    wide = C.input_variable((3, 9, 4))

    def windows(margin):
        image = padded(IMAGE, (1, 2), (0, 0), margin)
        return np.lib.stride_tricks.sliding_window_view(image, (3, 2), axis=(2, 3))[:, :, ::2, ::2]

    blocks = IMAGE.reshape(2, 3, 3, 2, 2, 2)
    is_largest = blocks == blocks.max((3, 5), keepdims=True)
    return {
        "product": COLUMN @ w, "transposed": np.tile(COLUMN.sum(1, keepdims=True) / 2, 5),
        "scalar": COLUMN @ b, "dot": COLUMN @ b,
        "words": np.concatenate([COLUMN[:, :3] @ e, COLUMN[:, 3:] @ e], 1), "word": COLUMN @ w,
        "pairs": (OTHER[:, :, None] * COLUMN[:, None]).reshape(2, 24),
        "conv": C.convolution(k, margins, auto_padding=[False] * 3).eval({margins: padded(IMAGE, (0, 2), (1, 1), 0)}),
        "largest": C.pooling(wide, C.MAX_POOLING, (1, 3, 2), (1, 2, 2), **pool).eval(
            {wide: padded(IMAGE, (1, 2), (0, 0), -9)}),
        "inner": np.nanmean(windows(np.nan), axis=(-2, -1)), "counted": windows(0).mean(axis=(-2, -1)),
        "means": evaluated(C.pooling(x, C.AVG_POOLING, (1, 3, 2), (1, 1, 2), **pool)),
        "maxima": evaluated(C.pooling(x, C.MAX_POOLING, (1, 3, 2), (1, 1, 2), **pool)),
        "back": (SMALL[:, :, :, None, :, None] * is_largest).reshape(IMAGE.shape),
        "response": evaluated(C.local_response_normalization(x, 1, 1, 0.5, 0.75)),
        "manual": IMAGE[:, :, 2:5, 1:3], "automatic": IMAGE[:, :, 1:5, 1:3], "given": IMAGE[:, :, 1:5, 1:3],
        "dropped": COLUMN,
    }


def test_operations_compute_what_those_of_the_python_api_compute():
    network = build(NETWORK)
    f = C.combine([network.nodes[name].owner for name in network.roles["output"]])
    values = f.eval({network.nodes[name]: DATA[name] for name in DATA})
    expected = by_python(network)
    for name in network.roles["output"]:
        actual = values[network.nodes[name]]
        if name in expected:
            np.testing.assert_allclose(actual, expected[name].reshape(actual.shape), rtol=1e-5, atol=1e-6, err_msg=name)


def test_weights_of_a_convolution_need_their_dimensions():
    with pytest.raises(ValueError, match="both dimensions"):
        build("x = Input {(4 : 4 : 1)} ; W = ParameterTensor {(0 : 4)} ; c = Convolution (W, x, (2 : 2 : 1))")


def test_a_transposed_embedding_takes_its_size_from_the_input():
    network = build("x = SparseInput {5} ; e = EmbeddingLayer {2, transpose=true} (x)")
    assert network.nodes["e"].shape == (2,) and network.nodes["e.E"].shape == (2, 5)


def test_a_convolution_whose_channels_have_one_position_is_shared():
    network = build("x = Input {(4:4:3)} ; c = Convolution (ParameterTensor {(3:3:3:2)}, x, (3:3:3), mapDims=2, "
                    "sharing=(true:true:false), autoPadding=(true:true:false))")
    assert network.nodes["c"].shape == (2, 4, 4)


def test_transposed_layers_have_margins_that_are_cut_off():
    layer = "DeconvLayer {2, (3 : 3), 3, stride=(2 : 1), initValueScale=1, bias=false"
    network = build(f"""
        small = Input {{(2 : 3 : 3)}} ; image = Input {{(5 : 6 : 3)}}
        whole = {layer}}} (small) ; cut = {layer}, lowerPad=(1 : 0), upperPad=1}} (small)
        wide = {layer}, autoPadding=(true : false), dimOutputShape=(3 : 5 : 2)}} (small)
        pooled = MaxPoolingLayer {{(2 : 2), stride=2, lowerPad=1, upperPad=(0 : 1)}} (image)
        back = MaxUnpoolingLayer {{(2 : 2), stride=2, lowerPad=1, upperPad=(0 : 1)}} (pooled, image)
        outputNodes = (whole : cut : wide : back)
    """)
    assert [network.nodes[name].shape for name in ("whole", "cut", "wide")] == [(2, 5, 5), (2, 4, 3), (2, 5, 3)]
    kernels = network.nodes["whole.W"].value
    for name in ("cut.W", "wide.W"):
        C.combine([network.nodes[name.split(".")[0]].owner]).find_by_name(name).value = kernels
    whole, cut, wide = (
        network.nodes[name].owner.eval({network.nodes["small"]: SMALL}) for name in ("whole", "cut", "wide")
    )
    np.testing.assert_allclose(cut, whole[:, :, :4, 1:4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wide, whole[:, :, :, 1:4], rtol=1e-5, atol=1e-6)
    image = R.normal(size=(2, 3, 6, 5)).astype(np.float32)
    blocks = padded(image, (1, 1), (1, 0), -np.inf).reshape(2, 3, 4, 2, 3, 2)
    largest = np.where(blocks == blocks.max((3, 5), keepdims=True), blocks, 0).reshape(2, 3, 8, 6)
    back = network.nodes["back"].owner.eval({network.nodes["image"]: image})
    np.testing.assert_allclose(back, largest[:, :, 1:7, 1:], rtol=1e-6)


def test_groups_of_channels_are_convolved_separately_and_a_single_margin_is_that_of_the_image():
    network = build("""
        image = Input {(4 : 6 : 2)} ; W = ParameterTensor {(3 : 3 : 1 : 4)}
        grouped = Convolution (W, image, (3 : 3 : 1), mapDims=4, groups=2, autoPadding=false, lowerPad=1, upperPad=1)
        outputNodes = (grouped)
    """)
    image = IMAGE[:, :2]
    x = C.input_variable((2, 8, 6))
    w = network.nodes["W"].value
    expected = C.convolution(w, x, auto_padding=[False], groups=2).eval({x: padded(image, (1, 1), (1, 1), 0)})
    actual = network.nodes["grouped"].owner.eval({network.nodes["image"]: image})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
