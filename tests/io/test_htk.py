"""Features and labels of speech are read as CNTK 2.7 reads the same files."""

import struct
import tracemalloc

import numpy as np
import pytest

from cntkjax.io import (
    CTFDeserializer,
    HTKFeatureDeserializer,
    HTKMLFBinaryDeserializer,
    HTKMLFDeserializer,
    LatticeDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
)
from cntkjax.io._htk import HTKFeatures

A, B = (np.random.default_rng(i).normal(size=(n, 3)).astype(np.float32) for i, n in enumerate((7, 4)))
LABELS = {"utt1": [0, 0, 1, 1, 1], "utt2": [2, 1, 1, 1], "utt3": [2, 2, 2, 2, 2]}
UTTERANCES = {"utt1": A[:5], "utt2": B, "utt3": A[2:]}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, frames in (("a", A), ("b", B)):
        header = struct.pack(">iihh", len(frames), 100000, 12, 6)
        (tmp_path / f"{name}.mfc").write_bytes(header + frames.astype(">f4").tobytes())
    (tmp_path / "f.scp").write_text("utt1.mfc=a.mfc[0,4]\nutt2.mfc=.../b.mfc[0,3]\nutt3.mfc=a.mfc[2,6]\n")
    (tmp_path / "l.list").write_text("s0\ns1\ns2\n")
    (tmp_path / "l.mlf").write_text(
        '#!MLF!#\n"utt3.lab"\n0 500000 s2\n.\n"utt1.lab"\n0 200000 s0\n200000 500000 s1\n.\n'
        '"*/utt2.lab"\n0 100000 s2\n100000 400000 s1\n.\n'
    )
    return tmp_path


def features(name="x", scp="f.scp", shape=3, **options):
    return HTKFeatureDeserializer(StreamDefs(**{name: StreamDef(shape=shape, scp=scp, **options)}))


def labels(mlf="l.mlf", **options):
    return HTKMLFDeserializer("l.list", StreamDefs(y=StreamDef(shape=3, mlf=mlf)), **options)


def binary(mlf="l.bin"):
    return HTKMLFBinaryDeserializer(StreamDefs(y=StreamDef(shape=3, mlf=mlf)))


def in_bytes(*utterances, version=2):
    """A binary master label file: utterances are (name, frames, (label, frames), ...)."""
    content = b"MLF" + struct.pack("<h", version)
    for name, frames, *runs in utterances:
        content += struct.pack("<I", int(name)) if version == 1 else struct.pack("<H", len(name)) + name.encode()
        content += struct.pack("<IH", frames, len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)
    return content


RUNS = (("utt3", 5, (2, 5)), ("utt1", 5, (0, 2), (1, 3)), ("utt2", 4, (2, 1), (1, 3)))


def read(*deserializers, size=100, **options):
    """The sequences of each stream."""
    source = MinibatchSource(list(deserializers), **({"randomize": False, "max_sweeps": 1} | options))
    streams = {name: [] for name in source.streams}
    while minibatch := source.next_minibatch(size):
        for name, info in source.streams.items():
            data = minibatch[info].asarray()
            padded = minibatch[info].num_samples < data.shape[0] * data.shape[1]
            lengths = minibatch[info].mask.sum(1) if padded else [data.shape[1]] * len(data)
            streams[name] += [row[: int(n)] for row, n in zip(data, lengths, strict=True)]
    return streams


def test_utterances_are_parts_of_files():
    for frames, expected in zip(read(features())["x"], UTTERANCES.values(), strict=True):
        np.testing.assert_array_equal(frames[: len(expected)], expected)


def test_context_frames_are_concatenated_and_the_ends_repeated():
    streams = read(features(context=(1, 2)))["x"]
    for frames, utterance in zip(streams, UTTERANCES.values(), strict=True):
        padded = np.concatenate([utterance[:1], utterance, utterance[-1:], utterance[-1:]])
        expected = np.concatenate([padded[i : i + len(utterance)] for i in range(4)], axis=1)
        np.testing.assert_array_equal(frames[: len(utterance)], expected)


def test_byte_order_marks_are_skipped(files):
    expected = read(features(), labels())
    for name in ("f.scp", "l.list", "l.mlf"):
        (files / name).write_text((files / name).read_text(), encoding="utf-8-sig")
    for name, sequences in read(features(), labels()).items():
        np.testing.assert_array_equal(np.concatenate(sequences), np.concatenate(expected[name]))


def test_labels_are_matched_by_name():
    streams = read(features(), labels())
    for x, y, utterance, numbers in zip(streams["x"], streams["y"], UTTERANCES.values(), LABELS.values(), strict=True):
        np.testing.assert_array_equal(x[: len(utterance)], utterance)
        np.testing.assert_array_equal(y[: len(utterance)].argmax(-1), numbers)


def test_in_frame_mode_each_frame_is_a_sequence():
    streams = read(features(), labels(), frame_mode=True, size=4)
    np.testing.assert_array_equal(np.concatenate(streams["x"]), np.concatenate(list(UTTERANCES.values())))
    np.testing.assert_array_equal(np.concatenate(streams["y"]).argmax(-1), np.concatenate(list(LABELS.values())))
    assert len(streams["x"]) == 14


def test_shuffled_utterances_are_not_all_in_memory(files):
    frames, length = 300_000, 500
    (files / "long.mfc").write_bytes(struct.pack(">iihh", frames, 100000, 160, 6) + bytes(160 * frames))
    rows = (f"utt{i}.mfc=long.mfc[{i},{i + length - 1}]\n" for i in range(0, frames, length))
    (files / "long.scp").write_text("".join(rows))
    source = MinibatchSource(features(scp="long.scp", shape=40), max_sweeps=1)
    read = 0
    tracemalloc.start()
    while minibatch := source.next_minibatch(10_000):
        read += minibatch[source.streams.x].num_samples
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == frames
    assert peak < 0.7 * 160 * frames


def test_a_broadcast_frame_is_repeated_for_the_utterance(files):
    (files / "g.scp").write_text("utt1.mfc=b.mfc[0,0]\nutt2.mfc=b.mfc[1,1]\nutt3.mfc=b.mfc[2,2]\n")
    streams = read(features(), features("g", "g.scp", broadcast=True))["g"]
    for i, (frames, utterance) in enumerate(zip(streams, UTTERANCES.values(), strict=True)):
        np.testing.assert_array_equal(frames[: len(utterance)], np.repeat(B[i : i + 1], len(utterance), 0))


def test_several_streams_of_features_and_files_of_labels(files):
    (files / "more.mlf").write_text('#!MLF!#\n"utt9.lab"\n0 100000 s1\n.\n')
    both = HTKFeatureDeserializer(StreamDefs(
        x=StreamDef(shape=3, scp="f.scp"), wide=StreamDef(shape=3, scp="f.scp", context=(1, 1))
    ))
    streams = read(both, labels(["l.mlf", "more.mlf"]))
    assert {name: len(streams[name]) for name in streams} == {"x": 3, "wide": 3, "y": 3}
    np.testing.assert_array_equal(streams["wide"][1][:4, 3:6], B)


def test_the_first_labels_of_an_utterance_are_used(files):
    (files / "more.mlf").write_text('#!MLF!#\n"utt1.lab"\n0 500000 s2\n.\n"utt1.lab"\n0 500000 s1\n.\n')
    for names, expected in ((["l.mlf", "more.mlf"], LABELS["utt1"]), (["more.mlf", "l.mlf"], [2] * 5)):
        np.testing.assert_array_equal(read(features(), labels(names))["y"][0].argmax(-1), expected)


def test_times_may_have_fractions_and_exponents(files):
    whole = read(labels())["y"]
    text = (files / "l.mlf").read_text()
    assert "100000 " in text
    for written in ("100000.0 ", "1e5 ", "+100000.4 "):
        (files / "l.mlf").write_text(text.replace("100000 ", written))
        for one, other in zip(read(labels())["y"], whole, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("fraction", ["", ".0"])
@pytest.mark.parametrize(("time", "frames"), [(149999, 1), (150000, 2), (249999, 2), (250000, 3), (350000, 4)])
def test_times_between_two_frames_are_those_of_the_later_one(files, time, frames, fraction):
    (files / "l.mlf").write_text(f'#!MLF!#\n"utt1.lab"\n0 {time}{fraction} s0\n{time}{fraction} 500000 s1\n.\n')
    assert read(labels())["y"][0].argmax(1).tolist() == [0] * frames + [1] * (5 - frames)


def test_phone_boundaries_mark_the_first_frame_of_each_label(files):
    (files / "l.mlf").write_text('#!MLF!#\n"utt1.lab"\n0 200000 s0\n200000 300000 s1\n300000 500000 s1\n.\n')
    streams = read(features(), labels(phoneBoundaries=True))["y"][0]
    np.testing.assert_array_equal(streams, [[2, 0, 0], [1, 0, 0], [0, 2, 0], [0, 2, 0], [0, 1, 0]])
    with pytest.raises(RuntimeError, match="frame mode and phoneBoundaries are mutually exclusive"):
        read(features(), labels(phoneBoundaries=True), frame_mode=True)


@pytest.mark.parametrize("version", [1, 2])
def test_binary_labels(files, version):
    if version == 1:  # the names are numbers
        script = (files / "f.scp").read_text().replace("utt", "")
        (files / "f.scp").write_text(script)
    runs = [(name.removeprefix("utt") if version == 1 else name, *rest) for name, *rest in RUNS]
    (files / "l.bin").write_bytes(in_bytes(*runs, version=version))
    for y, numbers in zip(read(features(), binary())["y"], LABELS.values(), strict=True):
        np.testing.assert_array_equal(y[: len(numbers)], np.eye(3)[numbers])
    streams = read(features(), binary(), frame_mode=True)["y"]
    np.testing.assert_array_equal(np.concatenate(streams).argmax(-1), np.concatenate(list(LABELS.values())))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "has to begin with MLF"),
        (b"MLF", "is truncated: it ends at byte 3"),
        (b"MLF" + struct.pack("<h", 3), "version 3 of binary"),
        (in_bytes(*RUNS)[:-3], "is truncated: it ends at byte 58, with 4 numbers missing"),
        (in_bytes(*RUNS) + b"abc", "is truncated"),
        (in_bytes(*RUNS, ("u", 5, (2, 4))), "byte 61: the labels of 'u' cover 4 of its 5 frames"),
        (in_bytes(("u", 0)), "cover 0 of its 0 frames"),
        (in_bytes(("u", 5, (3, 5))), "byte 5: label 3 of 'u' is not among the 3 labels"),
        (in_bytes(("u", 65535 * 200, *[(0, 65535)] * 200)), "byte 5: the labels of 'u' cover 13107000"),
    ],
)
def test_errors_in_binary_labels_name_the_byte(files, data, reason):
    (files / "l.bin").write_bytes(data)
    with pytest.raises(RuntimeError, match=reason):
        read(binary())


WORDS = np.arange(24, dtype="<u4") * np.uint32(0x0FF3C001)
WORDS[[1, 2, 16, 23]] = 0x7F800001, 0xFFA00000, 1, 0x80000001  # as numbers: none, and nearly 0


def lattices(index="lattices.list"):
    return LatticeDeserializer(index, StreamDefs(z=StreamDef()))


@pytest.fixture
def archives(files):
    (files / "one.ark").write_bytes(WORDS[:15].tobytes() + b"abc")
    (files / "two.ark").write_bytes(WORDS[15:].tobytes())
    (files / "lattices.list").write_text("a.toc\n\nb.toc\n")
    (files / "a.toc").write_text("utt3=one.ark[28]\nutt1=[0]\nutt3=[0]\n")
    (files / "b.toc").write_text("utt9=two.ark[0,28]\nutt2=[28]\n")
    return files


def test_lattices_are_bytes_of_archives(archives):
    source = MinibatchSource([features(), lattices()], randomize=False, max_sweeps=1)
    frames = source.next_minibatch(100, {"z": source.streams.z})["z"].as_sequences()
    expected = WORDS[:7].tobytes(), WORDS[22:].tobytes(), WORDS[7:15].tobytes() + b"abc\0"
    assert [np.asarray(row).astype("<f4").tobytes() for row in frames] == list(expected)
    assert [row.shape for row in frames] == [(7, 1), (2, 1), (9, 1)]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("utt1=one.ark", "b.toc, line 1: 'utt1=one.ark' does not locate a lattice"),
        ("\nutt1=[0]", "b.toc, line 2: 'utt1=\\[0\\]' does not locate"),
        ("utt8=nothing.ark[0]", "Failed to open input file: nothing.ark"),
        ("utt8=two.ark[36]", "two.ark: it has 36 bytes, but the table of contents has a lattice at byte 36"),
    ],
)
def test_errors_in_tables_of_contents_name_the_line(archives, table, reason):
    (archives / "b.toc").write_text(table)
    with pytest.raises(RuntimeError, match=reason):
        read(features(), lattices())


def feature_file(frames, order, kind, factors=None, tail=b""):
    """The bytes of a feature file; `factors`: a and b of frames that are compressed by them."""
    rows, numbers, number = len(frames), frames.astype(f"{order}f4").tobytes(), 4
    if factors is not None:
        a, b = factors
        numbers = b"".join(v.astype(f"{order}f4").tobytes() for v in factors)
        numbers += np.round(frames * a - b).astype(f"{order}i2").tobytes()
        rows, number = rows + 4, 2
    return struct.pack(f"{order}iihh", rows, 100000, number * frames.shape[1], kind) + numbers + tail


@pytest.mark.parametrize("times", [3, 5])
def test_streams_of_several_frames_have_neighbors_on_both_sides(times):
    """As with a context; at the ends of an utterance the first or last frame is repeated. Checked with CNTK 2.7."""
    context = times // 2, times // 2
    for wide, expected in zip(read(features(shape=3 * times))["x"], read(features(context=context))["x"], strict=True):
        np.testing.assert_array_equal(wide, expected)
    first = np.concatenate([A[[0] * (times // 2)].ravel(), A[: times // 2 + 1].ravel()])
    np.testing.assert_array_equal(read(features(shape=3 * times))["x"][0][0], first)


@pytest.mark.parametrize("shape, context", [(6, (0, 0)), (4, (0, 0)), (9, (1, 1)), (9, (1, 0))])
def test_streams_of_other_sizes_are_errors(shape, context):
    with pytest.raises(RuntimeError, match=f"a frame of 'a.mfc' has 3 numbers, not {shape}; set the shape .* to 3, or"):
        read(features(shape=shape, context=context))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [6, 6 | 0o100 | 0o400 | 0o1000, 7, 9, 11])
def test_files_have_either_order_of_bytes(files, order, kind):
    (files / "a.mfc").write_bytes(feature_file(A, order, kind))
    np.testing.assert_array_equal(read(features())["x"][2], UTTERANCES["utt3"])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("checksum", [b"", b"\x12\x34"])
def test_compressed_files_have_numbers_of_16_bits(files, order, checksum):
    """HCopy writes them with SAVECOMPRESSED; CNTK computes (q + b) / a in single precision, to the same bits."""
    low, high = A.min(0), A.max(0)
    a, b = (2 * 32767 / (high - low)).astype(np.float32), ((high + low) * 32767 / (high - low)).astype(np.float32)
    kind = 6 | 0o2000 | (0o10000 if checksum else 0)
    (files / "a.mfc").write_bytes(feature_file(A, order, kind, (a, b), checksum))
    expected = (np.round(A * a - b).astype(np.float32) + b) / a
    np.testing.assert_array_equal(read(features())["x"][2], expected[2:])
    np.testing.assert_allclose(expected, A, atol=1e-4)


@pytest.mark.parametrize("size", [11, 20, 40, 77])
def test_truncated_compressed_files_are_errors(files, size):
    whole = feature_file(A, ">", 6 | 0o2000, (np.full(3, 1000, np.float32), np.zeros(3, np.float32)))
    (files / "a.mfc").write_bytes(whole[:size])
    with pytest.raises(RuntimeError, match=r"'a\.mfc' is (truncated|no HTK file)"):
        read(features())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("a.mfc", "line 1: 'a.mfc' has no range of frames"),
        ("u=a.mfc[0,9]", "end frame exceeds its 7 frames"),
        ("u=a.mfc[3,2]", "precedes the first one"),
        ("u=zz.mfc[0,3]", "error opening file 'zz.mfc'"),
        ("u=l.list[0,3]", "is no HTK file"),
    ],
)
def test_errors_in_scripts_name_the_line(files, script, reason):
    (files / "l.list").write_text("s0")
    (files / "f.scp").write_text(script + "\n")
    with pytest.raises(RuntimeError, match=reason):
        read(features())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no header", "has to begin with #!MLF!#"),
        ('#!MLF!#\n"u.lab"\n0 100000 s9\n.\n', "label 's9' is not among the 3 labels"),
        ('#!MLF!#\n"u.lab"\n0 x s1\n.\n', "line 3: '0 x s1' is malformed"),
        ('#!MLF!#\n"u.lab"\n100000 200000 s1\n.\n', "do not continue from frame 0"),
        (f'#!MLF!#\n"u.lab"\n0 {10**18} s1\n.\n', "do not continue"),
        ('#!MLF!#\n"u.lab"\n0 100000 s1\n100000 100000 s2\n.\n', "frames 1 to 1 do not continue from frame 1"),
    ],
)
def test_errors_in_labels_name_the_line(files, text, reason):
    (files / "l.mlf").write_text(text)
    with pytest.raises(RuntimeError, match=reason):
        read(labels())


def test_errors_in_descriptions():
    with pytest.raises(RuntimeError, match="a frame of 'a.mfc' has 3 numbers, not 4; set the shape of the stream to 3"):
        read(features(shape=4))
    with pytest.raises(ValueError, match="No scp files"):
        HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=3)))
    with pytest.raises(ValueError, match="single stream"):
        HTKMLFDeserializer("l.list", StreamDefs(a=StreamDef(shape=3, mlf="a"), b=StreamDef(shape=3, mlf="b")))
    with pytest.raises(RuntimeError, match=r"Failed to open input file: nothing\.bin"):
        read(binary("nothing.bin"))


def test_names_of_utterances_do_not_match_numeric_ids(files):
    (files / "n.ctf").write_text("1 |v 1\n2 |v 2\n")
    numbers = CTFDeserializer("n.ctf", StreamDefs(v=StreamDef("v", 1)))
    with pytest.raises(RuntimeError, match="streams v, y have no sequence in common"):
        MinibatchSource([numbers, labels()])
    (files / "l.mlf").write_text("#!MLF!#\n")
    with pytest.raises(RuntimeError, match="l.mlf: expected samples of the streams y, but there are none"):
        MinibatchSource([features(), labels()])


@pytest.mark.parametrize("others", [[], [labels]])
def test_the_first_deserializer_cannot_be_broadcast(others):
    with pytest.raises(ValueError, match="Cannot expand utterances of the primary stream x"):
        MinibatchSource([features(broadcast=True), *(make() for make in others)])


@pytest.mark.parametrize("frames, chunks", [
    ([20000] * 8, [5, 3]), ([89999, 1, 1], [3]), ([89999, 2, 1], [2, 1]), ([90000, 1, 1], [2, 1]),
])
def test_a_chunk_ends_with_the_utterance_that_exceeds_a_quarter_of_an_hour(frames, chunks, tmp_path):
    scp = tmp_path / "f.scp"
    scp.write_text("".join(f"u{i}=a.mfc[0,{n - 1}]\n" for i, n in enumerate(frames)))
    (described,) = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=3, scp=str(scp))))["_deserializers"]
    assert HTKFeatures(described).chunk_sizes().tolist() == chunks
