"""NDL: macros, sections and names of nodes."""

import numpy as np

import cntkjax as C
from cntkjax.brainscript.ndl import build_network
from cntkjax.configuration.source import Text

MLP = """
    load = macros ; run = net
    macros = [
        Layer(x, rows, cols) { W = Parameter(rows, cols) ; b = Parameter(rows, 1, init=fixedValue, value=0)
                               T = Times(w, X) ; Z = Plus(T, B) }
        Squashed(x, rows, cols) = [ Squashed = Sigmoid(Inner) ; Inner = Layer(x, rows, cols) ; Last = Tanh(Inner) ]
        Twice(x) = Plus(x, x)
    ]
    net = [
        features = Input(3, tag=feature)
        labels = InputValue(2)
        h = Squashed(Features, 4, 3)
        out = Layer(h, 2, 4)
        CE = CrossEntropyWithSoftmax(labels, out, tag=criteria)
        err = ErrorPrediction(labels, out)
        two = Twice(h.inner.Z)
        LabelNodes = (labels) ; EvalNodes = (err) ; OutputNodes = (out)
    ]
"""


def build(text, **options):
    return build_network(Text("net.ndl", text), {}, **options)


def test_nodes_of_macros_are_named_by_the_call_and_the_variable():
    network = build(MLP)
    assert {"h.Squashed", "h.Inner.W", "h.Inner.Z", "h.Last", "out.T", "out.Z", "two.Twice"} <= set(network.nodes)
    assert network.inputs["out.T"] == ["out.W", "h.Squashed"]
    assert network.inputs["two.Twice"] == ["h.Inner.Z", "h.Inner.Z"]
    assert network.roles == {
        "feature": ["features"], "label": ["labels"], "criterion": ["CE"], "evaluation": ["err"], "output": ["out.Z"],
    }


def test_parameters_are_seeded_in_the_order_of_the_text():
    network = build("b = Parameter(2, 1) ; a = Parameter(3, 2) ; x = Input(2) ; z = Times(a, x) ; OutputNodes = (z)")
    np.testing.assert_array_equal(network.nodes["b"].value, C.parameter((1, 2), init=C.uniform(0.05, seed=1)).value)
    np.testing.assert_array_equal(network.nodes["a"].value, C.parameter((2, 3), init=C.uniform(0.05, seed=2)).value)


def test_another_name_for_a_macros_value_is_the_name_of_its_nodes():
    network = build("Layer(x) = [ y = Tanh(x) ; z = Sigmoid(y) ]\n x = Input(2) \n ol = Layer(x) \n OutputNodes = ol")
    assert {"OutputNodes.y", "OutputNodes.z"} <= set(network.nodes)
    assert network.roles["output"] == ["OutputNodes.z"]


def test_delays_may_look_back_at_what_follows_in_the_text():
    network = build("""
        x = Input(1)
        before = Delay(1, 1, total, delayTime=1, default=0)
        total = Plus(x, before)
        OutputNodes = (total)
    """)
    x, total = network.nodes["x"], network.nodes["total"]
    result = total.owner.eval({x: [np.array([[1], [2], [4]], np.float32)]})
    np.testing.assert_array_equal(np.ravel(result), [1, 3, 7])


def test_names_of_the_technical_report_mean_what_they_mean_there():
    """Source: MSR-TR-2014-112, the chapter about NDL; such an option had no effect, and the weights learned."""
    network = build("""
        image = Image(3, 2, 1, imageLayout=cudnn) ; x = Input(1)
        before = Delay(1, 1, total, delayTime=1, defaultPastValue=5) ; total = Plus(x, before)
        W = Parameter(2, 1, needsGradient=false) ; z = Times(W, total) ; OutputNodes = (z, image)
        near = CosWithNegSamples(z, z, 1, 1)
    """)
    assert network.nodes["image"].shape == (1, 2, 3) and network.nodes["near"].shape == (2,)
    assert network.nodes["W"].is_constant
    result = network.nodes["total"].owner.eval({network.nodes["x"]: [np.array([[1], [2]], np.float32)]})
    np.testing.assert_array_equal(np.ravel(result), [6, 8])


def test_description_and_macros_may_lie_in_files(tmp_path):
    (tmp_path / "macros.ndl").write_text("Twice(x) = [ y = Plus(x, x) ]\n")
    (tmp_path / "net.ndl").write_text("run = net\nnet = [ x = Input(2)\n z = Twice(x)\n OutputNodes = (z) ]\n")
    network = build(f"networkDescription = {tmp_path}/net.ndl\n ndlMacros = '{tmp_path}/macros.ndl'")
    assert network.roles["output"] == ["z.y"]


def test_sections_may_be_load_and_run_themselves_or_lie_around_the_block():
    """As the page about network builders has them."""
    macros, net = "[ Twice(x) = [ y = Plus(x, x) ] ]", "[ x = Input(2) ; z = Twice(x) ; OutputNodes = (z) ]"
    inside = build(f"load = {macros}\n run = {net}")
    texts = {"lib": Text("a.cntk", macros), "other": Text("a.cntk", "[ Thrice(x) = Plus(x, Plus(x, x)) ]"),
             "net": Text("a.cntk", net)}
    around = build_network(Text("net.ndl", "load = lib:other ; run = net"), texts)
    assert inside.inputs == around.inputs and around.roles["output"] == ["z.y"]


def test_weights_without_sharing_are_those_of_each_position():
    network = build("""
        x = ImageInput(3, 3, 2, imageLayout=cudnn)
        W = Parameter(8, 8)
        y = Convolution(W, x, {2, 2, 2}, mapCount=2, stride={1, 1, 2}, sharing={false, false, false},
                        autoPadding={false, false, false}, imageLayout=cudnn)
        OutputNodes = (y)
    """)
    x, weights = network.nodes["x"], network.nodes["W"].value.reshape(2, 2, 2, 2, 2, 2)
    image = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    expected = np.array([[[
        (weights[:, :, :, m, i, j] * image[:, i : i + 2, j : j + 2]).sum() for j in range(2)] for i in range(2)
    ] for m in range(2)])
    np.testing.assert_allclose(network.nodes["y"].owner.eval({x: image[None]})[0], expected, rtol=1e-4, atol=1e-6)


LAYOUT = """
    x = ImageInput(5, 4, 2, imageLayout=$)
    W = Parameter(3, 12, init=gaussian)
    c = Convolution(W, x, 3, 2, 3, 1, 2, zeroPadding=true, imageLayout=$)
    p = MaxPooling(c, 2, 1, 2, 1, imageLayout=$)
    a = AveragePooling(p, 1, 2, 1, 1, imageLayout=$)
    s = Parameter(3, 1, value=2) ; b = Parameter(3, 1, value=1)
    m = Parameter(3, 1, value=0) ; v = Parameter(3, 1, value=1)
    n = BatchNormalization(a, s, b, m, v, spatial=true, imageLayout=$)
    OutputNodes = (n)
"""


def test_images_in_the_legacy_layout_give_the_numbers_of_planes():
    image = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    planes, legacy = (build(LAYOUT.replace("$", layout)) for layout in ("cudnn", "legacy"))
    weights = planes.nodes["W"].value
    kernel = weights.T.reshape(3, 2, 2, 3)  # [maps, channels, height, width]
    planes.nodes["W"].value = kernel.reshape(12, 3)
    legacy.nodes["W"].value = kernel.transpose(2, 3, 1, 0).reshape(12, 3)
    expected = planes.nodes["n"].owner.eval({planes.nodes["x"]: image[None]})[0]
    result = legacy.nodes["n"].owner.eval({legacy.nodes["x"]: image.transpose(1, 2, 0)[None]})[0]
    assert legacy.nodes["n"].shape == (1, 2, 3)
    np.testing.assert_allclose(result, expected.transpose(1, 2, 0), rtol=1e-5)


def test_a_macro_may_use_variables_of_what_uses_it_and_ignores_further_arguments():
    """CNTK's ResNet_34.ndl gives ResNetNode2A nine arguments, which has eight and asks for a ninth name."""
    network = build("""
        Inner(x) = [ z = Scale(factor, x) ]
        Outer(x) = [ z = Inner(x) ]
        factor = Constant(3)
        features = Input(2)
        y = Outer(features, factor)
        OutputNodes = y
    """)
    assert network.roles["output"] == ["OutputNodes.z.z"]
    assert network.inputs["OutputNodes.z.z"] == ["factor", "features"]
