"""The minibatches that CNTK 2.7 returned for small CTF and CBF files (tests/golden/readers)."""

import json
import re
from pathlib import Path

import pytest

import cntkjax.io as io

FOLDER = Path(__file__).parents[1] / "golden" / "readers"
TRACES = json.loads((FOLDER / "index.json").read_text())["traces"]

pytestmark = pytest.mark.filterwarnings("ignore:.*(skipped|fewer than):UserWarning")


def stream(field, shape, sparse=False, defines_mb_size=False):
    return io.StreamDef(field=field, shape=shape, is_sparse=sparse, defines_mb_size=defines_mb_size)


def make_source(entry):
    files, streams = (v if isinstance(v, list) else [v] for v in (entry["file"], entry["streams"]))
    deserializers = []
    for file, definitions in zip(files, streams, strict=True):
        definitions = io.StreamDefs(**eval(definitions, {"S": stream}))
        deserializer = getattr(io, entry["deserializer"])(str(FOLDER / file), definitions)
        deserializers.append(deserializer | entry.get("deserializer_options", {}))
    arguments = eval(f"dict({entry['minibatch_source_arguments']})")
    return io.MinibatchSource(deserializers, **arguments)


def as_recorded(data, plain, truncated):
    """A minibatch of one stream in the form of the traces."""
    actual = {"num_sequences": data.num_sequences, "num_samples": data.num_samples, "sweep_end": data.end_of_sweep}
    mask = getattr(data, "mask", None)
    actual |= {"value_shape": list(data.shape), "mask": None if mask is None else mask.tolist()}
    if truncated:
        pieces = [(piece[0][0], begins) for piece, begins in zip(plain(data.ragged), data.ragged.starts, strict=True)]
        actual["samples"] = sorted(value for (value,) in data.ragged.data.tolist())
        return actual | {"first_samples": sorted(value for value, begins in pieces if begins)}
    sequences = plain(data.ragged)
    if data.is_sparse:
        sequences = [[[[i, v] for i, v in step.items()] for step in sequence] for sequence in sequences]
    return actual | {"sequences": sequences}


def play(entry, calls, plain):
    source = make_source(entry)
    state = None
    for call in calls:
        if call == "save":
            state = source.get_checkpoint_state()
        elif call == "restore":
            source = make_source(entry)
            source.restore_from_checkpoint(state)
        else:
            size, partitions, index = call
            minibatch = source.next_minibatch(size, num_data_partitions=partitions, partition_index=index)
            truncated = "truncation_length" in entry["minibatch_source_arguments"]
            yield {info.name: as_recorded(data, plain, truncated) for info, data in minibatch.items()}


@pytest.mark.parametrize("entry", TRACES, ids=[entry["name"] for entry in TRACES])
def test_minibatches_are_those_of_cntk(entry, plain):
    trace = json.loads((FOLDER / entry["trace"]).read_text())
    recorded = trace["minibatches"]
    calls = [minibatch.get("call") or minibatch["action"] for minibatch in recorded]
    if promised := trace.get("error"):
        error = ValueError if promised["text"].startswith("ValueError") else RuntimeError
        names_place = r"line|\.ctf|\.cbf" if re.search(r"\.ctf|\.cbf", promised["text"]) else None
        with pytest.raises(error, match=names_place):
            list(play(entry, [*calls, promised.get("call", [1, 1, 0])], plain))
        calls = []
    actual = list(play(entry, calls, plain)) if calls else []
    expected = [minibatch.get("streams", {}) for minibatch in recorded if "call" in minibatch]
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert sorted(ours) == sorted(theirs)
        for name, data in theirs.items():
            for key in data:
                if data[key] is not None and (key, name) != ("samples", "y"):
                    assert rounded(ours[name].get(key)) == rounded(data[key]), (name, key)


def rounded(value):
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 6) if isinstance(value, float) else value
