"""The networks of public configurations against recordings of CNTK: nodes, operations, inputs and shapes.

Neither is part of this project. ``CNTKJAX_PUBLIC`` is the folder of the public tree (Examples, Tests, Tutorials), and
``CNTKJAX_RECORDINGS`` that of networks.json and inventory.tsv; what is not there is skipped. Run
``pytest tests/brainscript/run_networks.py``.
"""

import csv
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from cntkjax.brainscript.actions.building import built, has_builder
from cntkjax.brainscript.actions.session import Command
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.models import function_of
from cntkjax.configuration import load

PUBLIC = Path(os.environ.get("CNTKJAX_PUBLIC", Path.home() / ".cache/cntkjax-programs"))
RECORDINGS = Path(os.environ.get("CNTKJAX_RECORDINGS", Path(__file__).parents[3] / "shared/brainscript"))
OLDER = {
    "Examples/Image/GettingStarted/01_OneHidden": "recorded with an older text of the configuration",
    "Examples/Image/GettingStarted/04_OneConvBN": "recorded before batch normalization had runCount",
    "Examples/Image/GettingStarted/06_OneConvRegrMultiNode": "recorded with an older text of the configuration",
    "Examples/Image/GettingStarted/07_Deconvolution": "recorded with an older text of the configuration",
    "Speech/LSTM_CTC": "recorded with an older text of the configuration",
    "Speech/HTKDeserializers/LSTM/FullUtterance": "recorded before ReduceLogSum named its node r",
    "Examples/Speech/AN4/LSTM": "weights with an inferred dimension take the shape of a column of one row more",
}
SEARCH = "Examples/Text/G2P"  # whose second run decodes with another network
NUMBERED = re.compile(r"\bunnamed\d+\b")  # CNTK's numbers of nodes that NDL gives no name are not reproduced


def recorded(name):
    """A recording, or nothing where it is not there."""
    path = RECORDINGS / name
    return json.loads(path.read_text()) if path.is_file() and PUBLIC.is_dir() else {}


def inventory():
    path = RECORDINGS / "inventory.tsv"
    if not path.is_file():
        return {}
    with path.open() as file:
        return {row["test"]: row for row in csv.DictReader(file, delimiter="\t")}


INVENTORY, NETWORKS = inventory(), recorded("networks.json")


def arguments(test, folder):
    """The command line of a test, as its script gives it."""
    row = INVENTORY[test]
    config = PUBLIC / row["config"].split(" + ")[0].split(" ; ")[0]
    if not config.is_file():
        pytest.skip(f"{config} is not there")
    data = config.parent
    for candidate in (config.parent / "Data", config.parent.parent / "Data", config.parents[1] / "Data"):
        if candidate.is_dir():
            data = candidate
            break
    overrides = [] if "$" in row["overrides"] or ";" in row["overrides"] else shlex.split(row["overrides"])
    given = {
        "RunDir": folder, "OutputDir": folder, "ModelDir": folder / "models", "DataDir": data, "RunRootDir": folder,
        "ConfigDir": config.parent, "RootDir": folder, "DeviceId": -1, "imageLayout": "cudnn", "NdlDir": config.parent,
        "ScpDir": data, "MlfDir": data, "LibDir": config.parent,
    }
    return [f"configFile={config}", *(f"{key}={value}" for key, value in given.items()), *overrides]


def nodes_of(test, run=""):
    """The recorded nodes of a test, or of one of its runs: operation, inputs and shape by name."""
    found = {}
    for nodes in [NETWORKS[test]["nodes"][run]] if run else NETWORKS[test]["nodes"].values():
        if isinstance(nodes, str):
            other, run = nodes.removeprefix("same as ").rsplit(" ", 1)
            nodes = NETWORKS.get(other, {"nodes": {}})["nodes"].get(run, {})
        found |= nodes if isinstance(nodes, dict) else {}
    return found


BUILT = [name for name in NETWORKS if nodes_of(name) and name in INVENTORY] or [None]


@pytest.mark.parametrize("test", BUILT)
def test_a_builder_gives_the_recorded_nodes(test, tmp_path, request):
    if test is None:
        pytest.skip("there are no recordings")
    if test in OLDER:
        request.applymarker(pytest.mark.xfail(reason=OLDER[test], strict=False))
    root = load(arguments(test, tmp_path))
    blocks = [root.block(entry.name) for entry in root if entry.is_block]
    blocks = [block for block in blocks if "action" in block and has_builder(block)]
    if not blocks:
        pytest.skip("no command of the configuration builds a network")
    compare(built(Command(blocks[0], Log())), nodes_of(test, "1:train" if test == SEARCH else ""))


def test_a_beam_search_has_the_recorded_nodes(tmp_path):
    if SEARCH not in NETWORKS:
        pytest.skip("there are no recordings")
    root = load([*arguments(SEARCH, tmp_path), f"decodeModelPath={tmp_path}/model"])
    function_of(built(Command(root.block("train"), Log()))).save(str(tmp_path / "model"))
    recording = nodes_of(SEARCH, "1:write")
    unused = ("Einput", "Elabels")  # which CNTK's files keep
    zero = re.compile(r"\b_?BS\.Constants\.Zero")  # the model's one has an underscore in CNTK, the new one here
    recording = {name: [*value[:1], zero.sub("_", value[1]), value[2]] for name, value in recording.items()
                 if name not in unused}
    network = built(Command(root.block("write"), Log()))
    network.inputs = {name: [zero.sub("_", each) for each in inputs] for name, inputs in network.inputs.items()}
    compare(network, recording)


def compare(network, recording):
    """Nodes, operations, inputs and shapes are the recorded ones."""
    wanted = {name: recording[name] for name in recording if not NUMBERED.search(name)}
    wanted = {name: value for name, value in wanted.items() if value[0] != "DynamicAxis"}
    assert not [name for name in wanted if name not in network.nodes]
    criteria = {*network.roles["criterion"], *network.roles["evaluation"]}  # whose shape the log shows as one number
    shapes = network.shown_shapes()
    for name, (operation, inputs, shape) in wanted.items():
        assert network.operations[name] == operation, name
        if not NUMBERED.search(inputs):
            assert ", ".join(network.inputs[name]) == inputs, name
        shape = re.sub(r"x [A-Za-z]\w*\]$", "x *]", shape)
        if "*" in shape and name not in criteria and "0" not in re.findall(r"\d+", shape):
            assert shapes[name] == shape, name
