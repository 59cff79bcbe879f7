"""The networks that people build, trained from the same weights on the same data as record.py did with CNTK 2.7.

Deep networks have few filters, since their programs take seconds to compile: ResNet-110 about fifteen.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from tests.networks.common import tenths
from tests.networks.record import NETWORKS

RECORDED = json.loads((Path(__file__).parent / "losses.json").read_text())
# Relative, of each tenth of the training. Most curves agree to five digits; these may not, and why:
TOLERANCE = {
    "segmentation": 0.06,  # the gradient of unpooling goes where the maximum was (docs/compatibility.md)
    "sampled_softmax": 0.06,  # draws other words
    # Rounding errors grow in them.
    **dict.fromkeys(["resnet110", "vgg16", "pseudo3d", "gan", "dcgan", "sequence_to_sequence"], 0.1),
}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_losses_of_training_are_those_of_cntk(network):
    tolerance = TOLERANCE.get(network.__name__, 0.02)
    recorded = RECORDED[network.__name__]
    np.testing.assert_allclose(tenths(network(C)), recorded, rtol=tolerance, atol=tolerance * 0.1)


def test_all_networks_are_recorded():
    assert list(RECORDED) == [network.__name__ for network in NETWORKS]
