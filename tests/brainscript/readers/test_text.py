"""Reader blocks of CNTK's text format."""

from cntkjax import io
from cntkjax.brainscript.configuration import load
from cntkjax.brainscript.readers import open_reader
from tests.brainscript.readers.test_speech import minibatch


def test_options_of_the_text_format(tmp_path):
    (tmp_path / "a.ctf").write_text("0 |f 1 2 |l 1:1\n0 |f 3 4 |l 0:1\n1 |f 5 6 |l 0:1\n")
    text = """reader = [ readerType = CNTKTextFormatReader ; file = "$Data$" ; randomize = false
        input = [ features = [ alias = f ; dim = 2 ; format = dense ]
                  labels = [ alias = l ; dim = 2 ; format = sparse ] ] ]"""
    (tmp_path / "a.cntk").write_text(text)
    arguments = [f"configFile={tmp_path}/a.cntk", f"Data={tmp_path}/a.ctf"]
    data = minibatch(load(arguments), 10, once=True)
    assert [len(each) for each in data["features"].as_sequences()] == [2, 1] and data["labels"].num_samples == 3
    rows = minibatch(load([*arguments, "reader=[skipSequenceIds=true;maxErrors=5]"]), 2, once=True)
    assert rows["features"].num_sequences == 2
    source = open_reader(load([*arguments, "reader=[randomize=true;randomizationSeed=3]"]).block("reader"), once=True)
    assert isinstance(source, io.MinibatchSource) and not source.is_infinite()
