"""Reader blocks of CNTK's text and binary formats."""

import re

from cntkjax import io
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.readers import open_reader
from cntkjax.configuration import load
from tests.brainscript.readers.test_speech import minibatch
from tests.io.test_cbf import cbf


def test_options_of_the_text_format(tmp_path):
    (tmp_path / "a.ctf").write_text("0 |f 1 2 |l 1:1\n0 |f 3 4 |l 0:1\n1 |f 5 6 |l 0:1\n")
    text = """reader = [ readerType = CNTKTextFormatReader ; file = "$Data$" ; randomize = false
        input = [ features = [ alias = f ; dim = 2 ; format = dense ]
                  labels = [ alias = l ; dim = 2 ; format = sparse ] ] ]"""
    (tmp_path / "a.cntk").write_text(text)
    arguments = [f"configFile={tmp_path}/a.cntk", f"Data={tmp_path}/a.ctf"]
    data = minibatch(load(arguments), 10, once=True)
    assert [len(each) for each in data["features"].as_sequences()] == [2, 1] and data["labels"].num_samples == 3
    rows = minibatch(load([*arguments, "f=[alias=f;dim=2]", "reader=[input=[features=$f$]]"]), 10, once=True)
    assert [len(each) for each in rows["features"].as_sequences()] == [2, 1]
    rows = minibatch(load([*arguments, "reader=[skipSequenceIds=true;maxErrors=5]"]), 2, once=True)
    assert rows["features"].num_sequences == 2
    source = open_reader(load([*arguments, "reader=[randomize=true;randomizationSeed=3]"]).block("reader"), once=True)
    assert isinstance(source, io.MinibatchSource) and not source.is_infinite()


def test_the_binary_format_has_its_sizes_and_its_streams_may_be_renamed(tmp_path):
    (tmp_path / "a.cbf").write_bytes(cbf([[{"x": [(1, 2), (3, 4)], "w": [{5: 1.0}]}], [{"x": [(5, 6)], "w": [{}]}]]))
    (tmp_path / "a.cntk").write_text("""
        reader = [ readerType = CNTKBinaryReader ; file = "$Data$" ; randomize = false
                   input = [ features = [ alias = x ] ; w = [ dim = 6 ; format = sparse ] ] ]
        other = [ reader = [ randomize = false ; deserializers = ([
            type = CNTKBinaryFormatDeserializer ; module = CNTKBinaryReader ; file = "$Data$" ]) ] ]
    """)
    root = load([f"configFile={tmp_path}/a.cntk", f"Data={tmp_path}/a.cbf"])
    renamed, stored = minibatch(root, 10, once=True), minibatch(root.block("other"), 10, once=True)
    sequences = [each.tolist() for each in renamed["features"].as_sequences()]
    assert sequences == [[[1, 2], [3, 4]], [[5, 6]]] == [each.tolist() for each in stored["x"].as_sequences()]
    assert renamed["w"].num_samples == stored["w"].num_samples == 2


def test_keys_that_no_reader_has_are_named(tmp_path, capfd):
    (tmp_path / "a.ctf").write_text("|x 1 2\n")
    (tmp_path / "a.cntk").write_text("""
        reader = [ readerType = CNTKTextFormatReader ; file = "$Data$" ; randomise = false ; verbosity = 1
                   input = [ x = [ dim = 2 ; formt = dense ] ] ]
        other = [ reader = [ keepDataInMemory = true ; deserializers = ([
            type = CNTKTextFormatDeserializer ; file = "$Data$" ; maxErors = 1 ; input = [ x = [ dim = 2 ] ] ]) ] ]
    """)
    root = load([f"configFile={tmp_path}/a.cntk", f"Data={tmp_path}/a.ctf"])
    for block in (root, root.block("other")):
        open_reader(block.block("reader"), log=Log())
    warnings = re.findall(r"has no key (\w+), which is ignored; did you mean (\w+)", capfd.readouterr().err)
    assert warnings == [("randomise", "randomize"), ("formt", "format"), ("maxErors", "maxErrors")]
