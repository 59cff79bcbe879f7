"""Public configurations, where a copy of them is there: all are read, and the smallest gives the recorded numbers."""

import pytest

from cntkjax.brainscript.actions.building import built
from cntkjax.brainscript.actions.plot import graph
from cntkjax.brainscript.actions.session import Command
from cntkjax.brainscript.configuration import load
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.models import function_of, network_in
from cntkjax.brainscript.readers import open_reader

from . import run_public

pytestmark = pytest.mark.skipif(not run_public.is_available(), reason=f"no public tree in {run_public.PUBLIC}")


def test_every_configuration_is_read():
    assert run_public.parse_all() == []


def test_simple2d_gives_the_recorded_numbers():
    assert run_public.differences(run_public.CASES[0]) == []


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
