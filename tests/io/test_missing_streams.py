"""Whoever asks for a stream that is not there is told which there are."""

import numpy as np
import pytest

import cntkjax as C

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
