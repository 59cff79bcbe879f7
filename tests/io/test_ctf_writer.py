import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cntkjax.io import MinibatchSource, sequence_to_cntk_text_format

RECORDED = [  # from CNTK 2.7
    (0, {"a": np.array([[1.0, 2], [3, 4.5]], np.float32), "b": np.array([5.0])}, "0\t|a 1.0 2.0 |b 5.0\n0\t|a 3.0 4.5"),
    (1, {"a": [1, 2]}, "1\t|a 1\n1\t|a 2"),
    (1, {"a": [[1, 2], [3, 4]]}, "1\t|a 1 2\n1\t|a 3 4"),
    (1, {"a": np.ones((1, 2, 2))}, "1\t|a 1.0 1.0 1.0 1.0"),
    (1, {"z": [1.0], "b": [2.0]}, "1\t|b 2.0 |z 1.0"),
    (1, {"a": np.array([[0.1, 0.2]], np.float32)}, "1\t|a 0.1 0.2"),
    (1, {"a": []}, ""),
    (0, {"W": [{3: 1, 5: 4}], "L": [{3: 1}]}, "0\t|L 3:1 |W 3:1 5:4"),
]


@pytest.mark.parametrize("number, data, text", RECORDED)
def test_output_is_that_of_cntk(number, data, text):
    assert sequence_to_cntk_text_format(number, data) == text


@pytest.mark.parametrize("data", [
    {}, {"a": "xy"}, {"a": 5}, {"a": np.array(3.0)}, {"a": [np.ones(2), np.ones(2)]},
])
def test_other_data_are_refused(data):
    with pytest.raises(ValueError):
        sequence_to_cntk_text_format(0, data)


dense = st.lists(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2), min_size=1, max_size=4
)
sparse = st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 99).map(float)), min_size=1, max_size=4)


@given(st.lists(st.tuples(dense, sparse), min_size=1, max_size=4))
def test_round_trip_through_a_ctf_file(tmp_path_factory, sequences):
    from cntkjax.io import CTFDeserializer, StreamDef, StreamDefs

    path = tmp_path_factory.mktemp("ctf") / "written.ctf"
    text = "\n".join(sequence_to_cntk_text_format(i, {"x": np.array(x), "w": w}) for i, (x, w) in enumerate(sequences))
    path.write_text(text + "\n")
    streams = StreamDefs(x=StreamDef("x", 2), w=StreamDef("w", 5, True))
    source = MinibatchSource(CTFDeserializer(str(path), streams), randomize=False, max_sweeps=1)
    minibatch = source.next_minibatch(1000)
    assert [s.tolist() for s in minibatch[source["x"]].ragged.sequences()] == [x for x, _ in sequences]
    actual = [s.to_dense().tolist() for s in minibatch[source["w"]].ragged.sequences()]
    assert actual == [[[step.get(k, 0.0) for k in range(5)] for step in w] for _, w in sequences]
