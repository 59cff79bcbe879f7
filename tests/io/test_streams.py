"""Streams: their order, how they are found, and what is said where one is missing."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.io import CTFDeserializer, MinibatchSource, StreamDef, StreamDefs
from cntkjax.io._streams import StreamInformation


def test_streams_are_numbered_by_name_and_listed_backwards(tmp_path):
    """Programs unpack ``features, labels = minibatch.items()``, in whatever order they declare the streams."""

    def file(*names):
        path = tmp_path / f"{names[0]}.ctf"
        path.write_text("".join(f"{i} " + " ".join(f"|{n} {i}" for n in names) + "\n" for i in range(3)))
        return CTFDeserializer(str(path), StreamDefs(**{n: StreamDef(field=n, shape=1) for n in names}))

    source = MinibatchSource([file("z", "B"), file("y", "a", "m")], randomize=False)
    assert [info.name for info in source.next_minibatch(2)] == ["B", "z", "a", "m", "y"]
    assert [(info.name, info.m_id) for info in source.stream_infos()] == [
        ("y", 4), ("m", 3), ("a", 2), ("z", 1), ("B", 0)
    ]
    assert list(source.streams) == ["y", "m", "a", "z", "B"]


def test_streams_are_found_by_the_type_of_a_variable(tmp_path):
    file = tmp_path / "d.ctf"
    file.write_text("|x 1 2 |y 1 2 |z 3\n")
    streams = StreamDefs(x=StreamDef("x", 2), y=StreamDef("y", 2), z=StreamDef("z", 1))
    source = MinibatchSource(CTFDeserializer(str(file), streams), randomize=False)
    assert source.stream_info(C.input_variable(1)).name == "z"
    with pytest.raises(RuntimeError, match="No stream found"):
        source.stream_info(C.input_variable(3))
    with pytest.raises(RuntimeError, match="Several streams found"):
        source.stream_info(C.input_variable(2))


def test_streams_describe_themselves_as_in_the_compiled_module():
    info = StreamInformation("x", 0, "dense", np.float32, (2, 3))
    assert info.m_sample_layout.dimensions() == (2, 3) and info.as_string() == "x([2 x 3])"
    configuration = C.io.StreamConfiguration("x", 2, True, "al", True)
    assert (configuration.m_stream_name, configuration.m_dim, configuration.m_is_sparse) == ("x", 2, True)
    assert (configuration.m_stream_alias, configuration.m_defines_mb_size) == ("al", True)
    assert C.io.StreamConfiguration("x", 2).m_stream_alias == ""


ARRAYS = {"images": np.ones((4, 2), np.float32), "labels": np.ones((4, 1), np.float32)}


def from_arrays(folder):
    return C.io.MinibatchSourceFromData(ARRAYS)


def from_file(folder):
    (folder / "d.ctf").write_text("|images 1 2 |labels 1\n" * 4)
    fields = {name: C.io.StreamDef(name, shape=array.shape[1]) for name, array in ARRAYS.items()}
    deserializer = C.io.CTFDeserializer(str(folder / "d.ctf"), C.io.StreamDefs(**fields))
    return C.io.MinibatchSource(deserializer, randomize=False, max_sweeps=1)


@pytest.mark.parametrize("make", [from_arrays, from_file])
def test_the_streams_that_there_are_are_listed(make, tmp_path):
    source = make(tmp_path)
    minibatch = source.next_minibatch(2)
    assert isinstance(minibatch, dict) and len(minibatch[source.streams.images].as_sequences()) == 2
    other = C.io.MinibatchSourceFromData({"features": ARRAYS["images"]}).streams.features
    for error, ask in (
        (AttributeError, lambda: minibatch.features), (KeyError, lambda: minibatch["features"]),
        (KeyError, lambda: minibatch[other]), (AttributeError, lambda: source.streams.features),
        (KeyError, lambda: source.streams["features"]), ((KeyError, RuntimeError), lambda: source["features"]),
    ):
        with pytest.raises(error) as raised:
            ask()
        assert all(name in str(raised.value) for name in ("features", "images", "labels"))


def test_after_the_end_of_the_data_a_minibatch_says_that_it_is_empty(tmp_path):
    source = from_file(tmp_path)
    source.next_minibatch(4)
    minibatch = source.next_minibatch(4)
    assert minibatch == {}
    with pytest.raises(KeyError, match="it is empty, since the data have ended"):
        minibatch[source.streams.images]


def test_an_input_map_is_named(tmp_path):
    source = from_file(tmp_path)
    x = C.input_variable(2, name="x")
    minibatch = source.next_minibatch(2, input_map={x: source.streams.images})
    with pytest.raises(KeyError, match="with this input_map it has x"):
        minibatch[source.streams.labels]
