"""Public configurations, where a copy of them is there: all are read, and the smallest gives the recorded numbers."""

import pytest

from cntkjax.brainscript.actions.building import built
from cntkjax.brainscript.actions.plot import graph
from cntkjax.brainscript.actions.session import Command
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.models import function_of, network_in
from cntkjax.brainscript.readers import open_reader
from cntkjax.configuration import load

from . import run_public

pytestmark = pytest.mark.skipif(not run_public.is_available(), reason=f"no public tree in {run_public.PUBLIC}")


def test_every_configuration_is_read():
    assert run_public.parse_all() == []


def test_simple2d_gives_the_recorded_numbers():
    assert run_public.differences(run_public.CASES[0]) == []


@pytest.mark.parametrize(("model", "errors", "loss"), [
    ("slu.forward.nobn.cmf", 0.02922, 0.14306181), ("slu.forward.backward.cmf", 0.0183, 0.11924878),
])
def test_models_of_microsoft_tag_slots_as_its_tutorial_says(model, errors, loss, tmp_path):
    """Source: the page Hands-On-Labs-Language-Understanding."""
    folder = run_public.PUBLIC / "Tutorials/SLUHandsOn"
    arguments = ["command=TestTagger", f"modelPath={folder}/{model}"]
    log, status = run_public.run(folder / "SLUHandsOn.cntk", folder, tmp_path, 1, arguments)
    (final,) = run_public.lines_in(log)["Final"]
    assert status == 0 and final["ce"] == pytest.approx(loss, rel=1e-6) and round(final["errs"], 5) == errors


def test_the_graph_of_a_public_network_is_that_of_cntk():
    folder = run_public.PUBLIC / "Tests/EndToEndTests/Speech/DNN"
    block = load([f"configFile={folder}/cntk.cntk", "DeviceId=-1", "RunDir=."]).block("speechTrain")
    network = network_in(function_of(built(Command(block, Log()))))
    assert "\n".join([*graph(network), ""]) == (folder / "PlotDNN" / "cntkSpeech.dnn.dot").read_text()


@pytest.mark.parametrize(("size", "minibatches"), [(128, 704), (256, 353), (512, 193)])
def test_sentences_of_the_penn_treebank_make_the_recorded_numbers_of_minibatches(size, minibatches):
    folder = run_public.PUBLIC / "Examples/SequenceToSequence/PennTreebank"
    block = load([f"configFile={folder}/Config/rnn.cntk", f"DataDir={folder}/Data", f"ModelDir={folder}/Data"])
    source = open_reader(block.block("train").block("cvReader"))
    counts = []
    while minibatch := source.next_minibatch(size):
        counts.append(next(iter(minibatch.values())).num_samples)
    assert (len(counts), sum(counts)) == (minibatches, 73760)
