"""Sequence-discriminative criteria of speech, in a network that reads utterances with their lattices."""

import re
import struct

import pytest

from cntkjax.brainscript.command_line import main

from ..primitives.test_lattice import LABELS, LIKELIHOOD, ONE, PHONES, STATES, TRANSITIONS

CONFIG = """
command = Make:Test ; modelPath = "$Data$/m.dnn" ; deviceId = -1
Make = [ action = edit ; outputModelPath = "$Data$/m.dnn" ; BrainScriptNetworkBuilder = {
    latticeAxis = DynamicAxis()
    features = Input{6} ; labels = Input{6, tag="label"} ; lattice = Input{1, dynamicAxis=latticeAxis, tag="label"}
    z = ParameterTensor {6, initValue=1} .* features
    cr = LatticeSequenceWithSoftmax (labels, z, z, lattice, "$Data$/symbols", "$Data$/phones", "$Data$/states",
                                     "$Data$/transitions", seqGammarUsesMBR=RISK, tag="criterion")
} ]
Test = [ action = test ; reader = [ frameMode = false ; deserializers = (
    [ type = HTKFeatureDeserializer ; input = [ features = [ dim = 6 ; scpFile = "$Data$/all.scp" ] ] ] :
    [ type = HTKMLFDeserializer ; input = [ labels = [
        mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 6 ] ] ] :
    [ type = LatticeDeserializer ; input = [ lattice = [ latticeIndexFile = "$Data$/index" ] ] ] ) ] ]
"""


@pytest.mark.parametrize(("bayes_risk", "expected"), [("false", -0.5143871), ("true", -1.5357035)])
def test_values_are_those_of_cntk(tmp_path, capfd, bayes_risk, expected):
    (tmp_path / "u.fea").write_bytes(struct.pack(">iihh", 9, 100000, 24, 9) + LIKELIHOOD.astype(">f4").tobytes())
    frames = [f"{100000 * t} {100000 * (t + 1)} s{row.argmax()}" for t, row in enumerate(LABELS)]
    (tmp_path / "archive").write_bytes(ONE)
    for name, text in {
        "symbols": "sil\nsp\nx\ny\n", "phones": PHONES, "transitions": TRANSITIONS, "index": f"{tmp_path}/toc\n",
        "states": "".join(f"s{i}\n" for i in range(STATES)), "all.scp": f"u={tmp_path}/u.fea[0,8]\n",
        "all.mlf": "\n".join(["#!MLF!#", '"u.lab"', *frames, ".", ""]), "toc": f"u={tmp_path}/archive[0]\n",
        "c.cntk": CONFIG.replace("RISK", bayes_risk),
    }.items():
        (tmp_path / name).write_text(text)
    assert main([f"configFile={tmp_path}/c.cntk", f"Data={tmp_path}"]) == 0
    value, samples = re.search(r"Final Results: .* cr = ([-\d.]+) \* (\d+)", capfd.readouterr().err).groups()
    assert float(value) * int(samples) == pytest.approx(expected, rel=1e-5)
