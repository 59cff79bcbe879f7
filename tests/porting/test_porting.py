"""A ported model computes the outputs of the original, and refuses what it cannot be."""

import ast
import re

import numpy as np
import pytest

import cntkjax as C
from cntkjax.cli import main
from cntkjax.porting import PortError, port
from cntkjax.porting.package import TARGETS

from .packages import passed, python_with


def residual(n):
    branch = C.layers.Sequential([
        C.layers.Convolution2D((3, 3), n, pad=True, bias=False), C.layers.BatchNormalization(map_rank=1), C.relu,
        C.layers.Convolution2D((3, 3), n, pad=True, init_bias=0.1),
    ])

    @C.BlockFunction("Residual", "")
    def block(x):
        return C.relu(branch(x) + x)

    return block


def images():
    layers = C.layers.Sequential([
        C.layers.Convolution2D((5, 5), 4, strides=2, pad=True, activation=C.relu, name="first"),
        C.layers.MaxPooling((3, 3), strides=2, pad=True), residual(4), residual(4),
        C.layers.AveragePooling((3, 3), strides=2, pad=True), C.layers.Dropout(0.3),
        C.layers.Dense(10, activation=C.tanh, init_bias=0.2, name="hidden"), C.layers.LayerNormalization(),
        C.layers.Dense((2, 3)), C.softmax,
    ])
    return layers(C.input_variable((3, 20, 20), name="features"))


def uneven_windows():
    """Padding that differs at both ends."""
    x = C.input_variable((2, 7, 8))
    convolved = C.layers.Convolution2D((2, 4), 3, pad=True)(x)
    return C.combine([convolved, C.layers.MaxPooling((2, 2), strides=1, pad=True)(convolved),
                      C.layers.AveragePooling((2, 2), strides=1, pad=True)(convolved), C.layers.GlobalMaxPooling()(x)])


def grouped_and_dilated():
    x = C.input_variable((4, 9, 9))
    grouped = C.convolution(C.parameter((6, 2, 3, 3), init=C.glorot_uniform()), x, groups=2, auto_padding=[False])
    return C.layers.Convolution2D((3, 3), 5, dilation=2)(grouped)


def two_towers():
    """One layer, and one block, for two inputs."""
    tower = C.layers.Sequential([C.layers.Dense(4, activation=C.sigmoid), C.layers.Dense(3)])
    left, right = C.input_variable(5, name="left"), C.input_variable(5, name="right")
    return C.reduce_sum(tower(left) * tower(right))


def normalized_elements():
    return C.layers.BatchNormalization()(C.input_variable((2, 3)))


def double_precision():
    with C.default_options(dtype=np.float64):
        return C.layers.Dense(3, activation=C.relu)(C.input_variable(4))


def operations():
    x, y = C.input_variable((2, 3), name="lambda"), C.input_variable((4, 2, 3), name="y")
    scale = C.parameter((3,), init=C.glorot_uniform(), name="scale")
    return C.combine([
        C.element_select(C.less(x, 0.5), C.exp(x), scale * x), C.clip(x * y, -0.5, C.abs(x)),
        C.reduce_mean(y, axis=1), C.reduce_log_sum_exp(y), C.argmax(y, axis=0), C.softmax(y, axis=0), C.log_softmax(x),
        C.transpose(y, (2, 0, 1)), C.slice(y, 0, 1, -1), C.splice(x, 2 * x, axis=0), C.reshape(x, (3, 2, 1)),
        C.times(x, C.transpose(x, (1, 0))), C.element_divide(x, 1 + y * y), C.softplus(x), C.leaky_relu(x),
        C.elu(x), C.selu(x), C.pow(C.abs(x), 1.5), C.reduce_prod(x, axis=0), C.minus(1, -x),
        C.hard_sigmoid(x, 0.2, 0.5), C.reduce_min(y), C.squeeze(C.reduce_max(y, axis=2)), C.ops.equal(C.floor(x), 0),
    ])


def indices_and_borders():
    x, image, places = C.input_variable((2, 3)), C.input_variable((2, 4, 5)), C.constant([[1, 0], [1, 1]])
    best = C.top_k(x, 2)
    return C.combine([
        C.one_hot(C.argmax(x, 1), 3), C.hardmax(x), C.hardmax(C.reshape(x, (6,))), C.gather(x, places),
        C.gather(C.parameter((3, 2), init=C.glorot_uniform()), C.argmax(x, 1)), *best.outputs,
        *(C.pad(image, [(0, 0), (1, 2), (2, 1)], mode) for mode in (C.CONSTANT_PAD, C.REFLECT_PAD, C.SYMMETRIC_PAD)),
        C.crop_manual(image, C.slice(image, (1, 2), (0, 0), (2, 3)), 1, 1), x + C.zeros_like(x), C.ones_like(image),
    ])


def products_with_transposes():
    x, y = C.input_variable((2, 4)), C.input_variable((3, 4))
    weights = C.parameter((3, 4), init=C.glorot_uniform())
    return C.combine([
        C.times_transpose(x, weights), C.times_transpose(x, y), C.times_transpose(C.slice(x, 0, 0, 1), y),
        C.eye_like(C.constant(np.ones((3, 4), np.float32)), sparse_output=False),
    ])


def regions():
    """Some reach beyond the image, some are smaller than the grid."""
    image, numbers = C.input_variable((3, 8, 9), name="image"), C.input_variable((5, 4), name="numbers")
    corners, sizes = 3 * C.abs(numbers[:, :2]), 5 * C.abs(numbers[:, 2:])
    return C.roipooling(image, C.splice(corners, corners + sizes, axis=1), C.MAX_POOLING, (2, 3), 0.7)


def criteria():
    x, label = C.input_variable(4), C.input_variable(4, name="label")
    probability = C.sigmoid(x)
    return C.combine([
        C.classification_error(x, label), C.binary_cross_entropy(probability, C.hardmax(label)),
        C.cosine_distance(x, label), C.squared_error(x, label),
    ])


MODELS = [
    images, uneven_windows, grouped_and_dilated, two_towers, normalized_elements, double_precision, operations,
    indices_and_borders, products_with_transposes, regions, criteria,
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["torch", "flax", "keras"])
def test_ported_models_pass_their_tests(target, tmp_path):
    python = python_with(target)
    for make in MODELS:
        model = make()
        random = np.random.default_rng(0)
        for parameter in model.parameters:
            parameter.value = random.normal(0, 0.5, parameter.shape).astype(parameter.dtype)
        for constant in model.constants:
            if constant.name in ("aggregate_mean", "aggregate_variance"):
                constant.value = random.uniform(0.5, 1, constant.shape).astype(constant.dtype)
        port(model, target, tmp_path / make.__name__)
    assert passed(tmp_path, python) == len(MODELS)


def test_the_source_has_a_class_for_each_block(tmp_path):
    port(images(), "torch", tmp_path)
    text = (tmp_path / "model.py").read_text()
    assert text.count("class Residual(nn.Module):") == 1  # both blocks are of this class
    for line in ("self.first = nn.Conv2d(3, 4, (5, 5), stride=(2, 2), padding=(2, 2))", "self.residual_1 = Residual()",
                 "self.hidden = nn.Linear(36, 10)", "def forward(self, features):"):
        assert line in text


def test_a_node_that_cannot_be_ported_is_named(tmp_path):
    model = C.input_variable(2) + C.random.uniform((2,), name="noise")
    with pytest.raises(PortError, match=r"noise.*RandomDistribution"):
        port(model, "torch", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [lambda x: x, lambda x: C.combine([x]), lambda x: (x + 1).output])
def test_a_variable_is_ported_as_what_computes_it(make, target, tmp_path):
    port(make(C.input_variable(2, name="features")), target, tmp_path / "model")
    assert "features" in (tmp_path / "model" / "model.py").read_text()


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(TypeError, match="model = 5 is not possible"):
        port(5, "torch", tmp_path / "model")


def test_reductions_of_numbers_are_the_numbers(tmp_path):
    """PyTorch sums over all axes where it is given none."""
    x = C.input_variable(())
    port(C.exp(C.reduce_sum(x) - C.reduce_max(x)), "torch", tmp_path / "model")
    assert not re.search("sum|max", (tmp_path / "model" / "model.py").read_text())
    for f in (C.argmax(x), C.top_k(x, 1).outputs[0] * 2):
        with pytest.raises(PortError, match="cannot be ported"):
            port(f, "torch", tmp_path / "refused")


@pytest.mark.parametrize("target", TARGETS)
def test_a_shell_reads_the_versions_of_requirements_as_text(target):
    assert ">" in TARGETS[target].requirements
    assert ">" not in re.sub('"[^"]*"', "", TARGETS[target].requirements)  # it would write into a file


def test_the_command_ports_a_model(tmp_path, capsys):
    path, out = tmp_path / "a.cntk", tmp_path / "net"
    C.layers.Dense(2)(C.input_variable(3)).save(path)
    assert main(["port", str(path), "--to", "torch", "-o", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "__init__.py", "model.py", "recorded.safetensors", "test_model.py", "weights.safetensors"
    ]
    assert main(["port", str(path), "--to", "torch", "-o", str(out)]) == 1
    assert main(["port", str(path), "--to", "caffe", "-o", str(tmp_path / "new")]) == 1
    assert main(["port", str(path), "--to", "torch", "-o", str(tmp_path / "my-net")]) == 1
    assert main(["port", str(path), "--to", "torch", "-o", str(tmp_path / "lambda")]) == 1
    assert main(["port", str(path), "--to", "torch", "-o", str(tmp_path / "safetensors")]) == 1
    assert main(["port", str(path)]) == 1
    assert main(["port", str(tmp_path / "none"), "--to", "torch", "-o", str(tmp_path / "new")]) == 1
    assert main(["port", str(tmp_path), "--to", "torch", "-o", str(tmp_path / "new")]) == 1
    errors = capsys.readouterr().err
    for message in ("exists already", "no target 'caffe': it is one of torch", "--to (torch",
                    "'my-net' cannot be the name of a package", "'lambda' cannot be",
                    "another package called 'safetensors'", "there is no such file", "Is a directory"):
        assert message in errors


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", ['"""; raise SystemExit; """', 'a"b\\', "two\nlines\0 of 'text' \"and\" \udc80", "{braces}"]
)
def test_the_name_of_a_model_cannot_be_code(target, name, tmp_path):
    model = C.layers.Dense(2)(C.input_variable(3))
    port(C.combine([model], name=name), target, tmp_path / "net")
    for file in ("__init__.py", "model.py", "test_model.py"):
        first, *others = ast.parse((tmp_path / "net" / file).read_bytes()).body
        assert isinstance(first, ast.Expr)
        assert all(isinstance(each, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)) for each in others)


def test_names_in_any_script_stay(tmp_path):
    model = C.layers.Dense(2, name="слой 1")(C.input_variable(3, name="入力"))
    port(model, "flax", tmp_path / "net")
    source = (tmp_path / "net" / "model.py").read_text(encoding="utf-8")
    assert "def __call__(self, 入力):\n        return self.слой_1(入力)" in source
    assert passed(tmp_path / "net", python_with("flax")) == 1
