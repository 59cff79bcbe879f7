"""The networks of tests/networks and ResNet-50 are ported; where PyTorch is installed, they compute the same there."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.porting import TARGETS, port
from tests.networks.record import NETWORKS

from .packages import passed, python_with

OF_ONE_MODEL = [n for n in NETWORKS if n.__name__ != "style_transfer"]


class Built(Exception):
    """The model whose training would begin."""


class WithoutTraining:
    """The package, for networks that are to be built only."""

    def __getattr__(self, name):
        return getattr(C, name)

    def Trainer(self, model, *_):
        raise Built(model)


def built(network):
    with pytest.raises(Built) as error:
        network(WithoutTraining())
    return error.value.args[0]


@pytest.mark.parametrize("network", OF_ONE_MODEL, ids=lambda n: n.__name__)
def test_networks_have_a_source(network):
    model = built(network)
    for target in TARGETS.values():
        source, weights = target.write(model, network.__name__)
        compile(source, "model.py", "exec")
        assert sum(v.size for v in weights.values()) >= sum(np.prod(p.shape) for p in model.parameters)


def resnet50():
    def normalized(filters, side, stride=1):
        return C.layers.Sequential([
            C.layers.Convolution2D((side, side), filters, strides=stride, pad=side > 1, bias=False),
            C.layers.BatchNormalization(map_rank=1),
        ])

    def block(x, filters, stride, is_first):
        branch = C.layers.Sequential([
            normalized(filters, 1, stride), C.relu, normalized(filters, 3), C.relu, normalized(4 * filters, 1),
        ])
        return C.relu(branch(x) + (normalized(4 * filters, 1, stride)(x) if is_first else x))

    h = C.relu(normalized(64, 7, 2)(C.input_variable((3, 224, 224))))
    h = C.layers.MaxPooling((3, 3), 2, pad=True)(h)
    for filters, blocks in (64, 3), (128, 4), (256, 6), (512, 3):
        for i in range(blocks):
            h = block(h, filters, 2 if filters > 64 and i == 0 else 1, i == 0)
    model = C.layers.Dense(1000)(C.layers.GlobalAveragePooling()(h))
    for statistic in model.constants:
        if statistic.name == "aggregate_variance":  # of 0, as before training, numbers would grow to infinity
            statistic.value = np.ones(statistic.shape, np.float32)
    return model


@pytest.mark.timeout(1200)
def test_networks_compute_the_same_in_pytorch(tmp_path):
    python = python_with("torch")
    for network in OF_ONE_MODEL:
        port(built(network), "torch", tmp_path / network.__name__)
    port(resnet50(), "torch", tmp_path / "resnet50")
    assert passed(tmp_path, python) == len(OF_ONE_MODEL) + 1
