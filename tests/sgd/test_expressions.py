"""Values in a configuration: arithmetic, schedules and infinity."""

import math

import pytest

from cntkjax.sgd import SGD


@pytest.mark.parametrize(("text", "expected"), [
    ("128*2:1024", "128*2:1024"), ("(128*2):1024", "256:1024"), ("1000/10*3 : 2^8", "100*3:256"), ('"8*2:9"', "8*2:9"),
    ("max(3, 2*floor(2.5))", "4"), ("64 + 64*2", "128*2"), ("-(-8)", "8"), ("maxEpochs * 2", "7*2"), ("16 # 32", "16"),
    ("8*2:9:", "8*2:9"),
])
def test_arithmetic_in_schedules(text, expected):
    assert str(SGD.parse(f"maxEpochs = 7\nminibatchSize = {text}")["minibatchSize"]) == expected


@pytest.mark.parametrize("text", ["(infinity)", "infinity", "1#INF", "(2 * infinity)"])
def test_infinity(text):
    assert SGD.parse(f"clippingThresholdPerSample = {text} ; L2RegWeight = 1e-4")["L2RegWeight"] == 1e-4
    assert SGD.parse(f"clippingThresholdPerSample = {text}")["clippingThresholdPerSample"] == math.inf
