"""Several deserializers: their sequences are matched by key."""

import struct

import numpy as np
import pytest

from cntkjax.io import HTKFeatureDeserializer, MinibatchSource, StreamDef, StreamDefs


class TestSeveralDeserializers:
    def test_sequences_are_matched_by_id_in_the_order_of_the_first(self, ctf, read_all):
        a = ctf("3 |a 3\n1 |a 1\n1 |a 11\n2 |a 2\n9 |a 9\n4 |a 4\n", {"chunkSizeInBytes": 20}, a=1)
        b = ctf("1 |b 100\n2 |b 200\n2 |b 201\n3 |b 300\n4 |b 400\n5 |b 500\n", {"chunkSizeInBytes": 20}, b=1)
        assert read_all(MinibatchSource([a, b], randomize=False, max_sweeps=1), 2) == [
            {"a": [[[3]]], "b": [[[300]]]},
            {"a": [[[1], [11]]], "b": [[[100]]]},
            {"a": [[[2]]], "b": [[[200], [201]]]},
            {"a": [[[4]]], "b": [[[400]]]},
        ]

    def test_sequences_without_ids_are_matched_by_number(self, ctf, read_all):
        a, b = (
            ctf("".join(f"|{s} {i}\n" for i in range(20)), {"chunkSizeInBytes": n}, **{s: 1})
            for s, n in (("a", 15), ("b", 40))
        )
        minibatches = read_all(MinibatchSource([a, b], max_sweeps=1, randomization_window_in_chunks=2), 4)
        assert all(m["a"] == m["b"] for m in minibatches)
        assert sorted(v for m in minibatches for ((v,),) in m["a"]) == list(range(20))

    def test_chunks_without_common_sequences(self, ctf, read_all):
        a, b = ctf("1 |a 1\n2 |a 2\n", {"chunkSizeInBytes": 1}, a=1), ctf("2 |b 2\n", b=1)
        assert read_all(MinibatchSource([a, b], max_sweeps=1, randomize=False)) == [{"a": [[[2]]], "b": [[[2]]]}]

    def test_one_of_them_may_define_the_size(self, ctf, read_all):
        a, b = ctf("1 |a 1\n1 |a 1\n2 |a 2\n", a=1), ctf("1 |b 1\n2 |b 2\n", b=1, defining="b")
        assert len(read_all(MinibatchSource([a, b], max_sweeps=1, randomize=False), 2)) == 1

    def test_names_of_speech_files_are_matched_with_the_same_numbers(self, ctf, tmp_path):
        """As CNTK 2.7 does: a name without its extension is compared with the number's decimal digits."""
        for i in range(3):
            frames = np.full((i + 1, 1), i, ">f4").tobytes()
            (tmp_path / f"{i}.htk").write_bytes(struct.pack(">iihh", i + 1, 100000, 4, 9) + frames)
        names = ("7.mfc", "07", "9")
        script = "".join(f"{name}={tmp_path}/{i}.htk[0,{i}]\n" for i, name in enumerate(names))
        (tmp_path / "a.scp").write_text(script)
        speech = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=1, scp=str(tmp_path / "a.scp"))))
        source = MinibatchSource([speech, ctf("9 |y 1\n9 |y 2\n7 |y 3\n8 |y 4\n", y=1)], randomize=False, max_sweeps=1)
        data = source.next_minibatch(10)
        assert [each.ravel().tolist() for each in data[source.streams.x].as_sequences()] == [[0], [2, 2, 2]]
        assert [each.ravel().tolist() for each in data[source.streams.y].as_sequences()] == [[3], [1, 2]]

    def test_streams_of_the_same_name_are_refused(self, ctf):
        with pytest.raises(RuntimeError, match="Two streams with the same name 'x' have been found"):
            MinibatchSource([ctf("|x 1\n", x=1), ctf("|x 1\n", x=1)])
