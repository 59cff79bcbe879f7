"""The order of sequences: shuffled as in CNTK, for each worker. All literals were recorded from CNTK 2.7."""

import base64
import struct

import numpy as np
import pytest
from PIL import Image

import cntkjax as C
from cntkjax.io import (
    Base64ImageDeserializer,
    CTFDeserializer,
    HTKFeatureDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
    StreamInformation,
    UserDeserializer,
    transforms,
)
from cntkjax.io._batcher import Batcher
from cntkjax.io._sampler import Sampler
from tests.io.numbered import Numbered, batch, batcher


def test_shuffling_depends_on_seed_and_sweep_only():
    def sweeps(seed):
        source = batcher([1] * 50, 5, randomize=True, window_in_chunks=2, seed=seed)
        return [tuple(batch(source, 50)[0]) for _ in range(2)]

    assert sweeps(1) == sweeps(1)
    assert sweeps(1)[1] == sweeps(2)[0]
    assert len({*sweeps(1), *sweeps(2), tuple(range(50))}) == 4


@pytest.mark.parametrize("window", [{"window_in_chunks": 3}, {"window_in_samples": 30}])
def test_only_the_chunks_of_a_window_are_in_memory(window):
    deserializer = Numbered([1] * 60, 10)
    source, chunk_counts = Batcher(Sampler(deserializer, randomize=True, **window), 2, 2**64, False), []
    while batch(source, 4)[0]:
        chunk_counts.append(len(deserializer._cache))
    assert max(chunk_counts) <= 5
    assert len(deserializer.reads) >= 20
    assert not deserializer._cache


def test_a_single_shuffled_chunk_goes_to_the_first_worker_as_in_cntk(tmp_path):
    path = tmp_path / "one.ctf"
    path.write_text("".join(f"|x {i}\n" for i in range(6)))

    def num_samples(rank):
        source = MinibatchSource(CTFDeserializer(str(path), StreamDefs(x=StreamDef("x", 1))), max_sweeps=1)
        minibatch = source.next_minibatch(20, num_data_partitions=2, partition_index=rank)
        return minibatch[source.streams.x].num_samples if minibatch else 0

    assert [num_samples(0), num_samples(1)] == [6, 0]


def test_shuffled_chunks_are_distributed_so_that_no_worker_reads_those_of_another():
    sources = [batcher([1] * 60, 10, 1, randomize=True, window_in_chunks=4) for _ in range(2)]
    shares = [{i // 6 for i in batch(source, 60, (2, rank))[0]} for rank, source in enumerate(sources)]
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 10


def test_data_that_fit_into_one_window_are_read_once():
    deserializer = Numbered([1] * 60, 10)
    source = Batcher(Sampler(deserializer, True, 128), 3, 2**64, True)
    while batch(source, 7)[0]:
        pass
    assert sorted(deserializer.reads) == list(range(10))


@pytest.fixture
def numbered(ctf):
    """A deserializer of sequences that are numbered from 0, with these lengths; a sample has eleven bytes."""

    def make(lengths, samples_in_chunk=10**6, numbers=None, **options):
        rows = [f"{i:03} |x {i:03}\n" * n for i, n in zip(numbers or range(len(lengths)), lengths, strict=True)]
        return ctf("".join(rows), {"chunkSizeInBytes": 11 * samples_in_chunk}, x=1, **options)

    return make


def taken(source, size=10**6, **partition):
    """For each minibatch: the numbers of its sequences, whether it ends a sweep, and the position after it."""
    while minibatch := source.next_minibatch(size, **partition):
        data = minibatch[source.streams.x]
        numbers = [int(sequence[0].flat[0]) for sequence in data.ragged.sequences()]
        yield numbers, data.end_of_sweep, source.current_position["minibatchSourcePosition"]


def order(source, size=10**6):
    return [number for numbers, *_ in taken(source, size) for number in numbers]


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("seed, expected", [
    (0, [3, 0, 4, 6, 2, 1, 5, 3, 0, 1, 5, 4, 2, 6, 1, 2, 4, 6, 0, 5, 3]),
    (1, [3, 0, 1, 5, 4, 2, 6, 1, 2, 4, 6, 0, 5, 3, 6, 3, 1, 5, 2, 4, 0]),
])
def test_shuffling_of_one_chunk(numbered, seed, expected, size):
    source = MinibatchSource(numbered([1] * 7), max_sweeps=3, randomization_seed=seed)
    assert order(source, size) == expected


@pytest.mark.parametrize("window, seed, expected", [
    (1, 0, [6, 7, 8, 0, 1, 2, 3, 4, 5, 10, 9, 11]),
    (2, 1, [7, 2, 1, 8, 6, 0, 9, 10, 11, 4, 3, 5]),
    (3, 0, [0, 7, 1, 6, 8, 3, 5, 9, 10, 2, 4, 11]),
    (3, 3, [7, 8, 10, 6, 11, 9, 0, 2, 5, 4, 3, 1]),
    (128, 2, [7, 3, 1, 4, 0, 8, 10, 6, 2, 9, 5, 11]),
])
def test_shuffling_with_windows_in_chunks(numbered, window, seed, expected):
    options = {"randomization_window_in_chunks": window, "randomization_seed": seed, "max_sweeps": 1}
    assert order(MinibatchSource(numbered([1] * 12, 3), **options), 5) == expected


@pytest.mark.parametrize("lengths, chunk, window, seed, expected", [
    ([1] * 12, 3, 6, 0, [6, 7, 8, 1, 2, 0, 4, 3, 5, 9, 11, 10]),
    ([2, 1, 1, 2, 7, 1, 1, 7, 7, 1, 7, 1], 11, 31, 0,
     [11, 0, 3, 8, 2, 1, 9, 10, 4, 5, 6, 7, 4, 6, 5, 3, 9, 8, 2, 0, 1, 7, 11, 10]),
    ([3, 3, 1, 1, 3, 7, 1, 3, 2, 1], 2, 36, 3, [9, 5, 7, 2, 6, 8, 4, 3, 1, 0, 6, 9, 7, 2, 8, 4, 5, 1, 0, 3]),
])
def test_shuffling_with_windows_in_samples(numbered, lengths, chunk, window, seed, expected):
    options = {"randomization_window_in_chunks": 0, "randomization_window_in_samples": window}
    sweeps = len(expected) // len(lengths)
    source = MinibatchSource(numbered(lengths, chunk), max_sweeps=sweeps, randomization_seed=seed, **options)
    assert order(source, 3) == expected


@pytest.mark.parametrize("rank, expected", [
    (0, [([8, 0], False, 16), ([4, 5, 1], True, 27), ([9], False, 36), ([3], False, 42), ([0, 5], False, 50),
         ([4], True, 54)]),
    (1, [([9, 6], False, 18), ([7, 2, 3, 7, 6], True, 38), ([1, 8, 2], True, 54)]),
])
def test_a_worker_takes_every_second_chunk_and_moves_to_its_next_sequence(numbered, rank, expected):
    options = {"randomization_window_in_chunks": 3, "randomization_seed": 3, "max_sweeps": 2}
    source = MinibatchSource(numbered([7, 3, 3, 2, 1, 1, 1, 1, 1, 7], 2), **options)
    assert list(taken(source, 16, num_data_partitions=2, partition_index=rank)) == expected


def test_shuffling_of_joined_deserializers(numbered, ctf):
    first = numbered([2, 2, 1, 1, 3, 3], 2, defining="x")
    rows = [f"{i} |y 0\n" * n for i, n in ((3, 5), (2, 5), (4, 1), (0, 2), (1, 2))]
    options = {"randomization_window_in_chunks": 3, "randomization_seed": 3, "max_sweeps": 2}
    source = MinibatchSource([first, ctf("".join(rows), y=1)], **options)
    assert list(taken(source, 2)) == [
        ([3], False, 1), ([4], False, 4), ([2], False, 5), ([1], False, 7), ([0], True, 9),
        ([1], False, 11), ([0], False, 13), ([2], False, 14), ([4], False, 17), ([3], True, 18),
    ]


@pytest.mark.parametrize("lengths, chunk, window, seed, position, size, expected", [
    ([7, 1, 7, 1, 7, 3, 7, 1], 8, 3, 1, 60, 9, [([1, 5], True, 68)]),
    ([2, 1, 1, 1, 7, 3, 2, 3, 1], 1, 6, 0, 33, 7, [
        ([4], False, 40), ([1, 8, 2, 1, 5], True, 47), ([8, 7, 6], False, 53), ([0], False, 55), ([4], False, 62),
        ([3], True, 63),
    ]),
])
def test_shuffling_after_a_checkpoint(numbered, lengths, chunk, window, seed, position, size, expected):
    options = {"randomization_window_in_chunks": window, "randomization_seed": seed}
    source = MinibatchSource(numbered(lengths, chunk), max_sweeps=expected[-1][2] // sum(lengths), **options)
    source.restore_from_checkpoint({"minibatchSourcePosition": position})
    assert list(taken(source, size)) == expected


class Chunks(UserDeserializer):
    def __init__(self, sizes):
        self.ends = np.cumsum(sizes)
        self.sizes = sizes

    def stream_infos(self):
        return [StreamInformation("x", 0, "dense", np.float32, (1,))]

    def num_chunks(self):
        return len(self.sizes)

    def get_chunk(self, chunk_id):
        end = self.ends[chunk_id]
        return {"x": np.arange(end - self.sizes[chunk_id], end, dtype=np.float32)[:, None]}


@pytest.mark.parametrize("sizes, windows, seed, expected", [
    ([3, 2, 4], (2, 0), 0,
     [4, 0, 3, 2, 1, 5, 6, 8, 7, 2, 1, 0, 5, 6, 8, 4, 3, 7, 3, 4, 6, 8, 7, 5, 0, 1, 2]),
    ([1, 2, 1], (6, 0), 1, [0, 3, 1, 2, 1, 2, 0, 3, 2, 1, 3, 0]),
    ([1, 4, 3], (0, 17), 2, [5, 0, 4, 7, 1, 2, 6, 3, 0, 1, 5, 4, 2, 7, 6, 3, 4, 1, 3, 2, 7, 5, 6, 0]),
])
def test_shuffling_of_user_chunks(sizes, windows, seed, expected):
    chunks, samples = windows
    options = {"randomization_window_in_chunks": chunks, "randomization_window_in_samples": samples}
    assert order(MinibatchSource(Chunks(sizes), max_sweeps=3, randomization_seed=seed, **options), 4) == expected


IMAGES = {
    (1, 0): [10, 0, 5, 6, 7, 1, 8, 4, 2, 3, 13, 11, 12, 9], (5, 0): [5, 10, 6, 0, 7, 4, 8, 1, 2, 3, 13, 9, 12, 11],
    (5, 1): [5, 9, 8, 13, 6, 4, 7, 1, 11, 3, 0, 12, 2, 10], (128, 0): [13, 10, 1, 8, 4, 0, 2, 7, 5, 6, 9, 11, 12, 3],
}


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Lists of fourteen images: of files, and embedded. The label of each is its number."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (2, 2)).save("a.png")
    image = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    (tmp_path / "files.txt").write_text("".join(f"a.png\t{i}\n" for i in range(14)))
    (tmp_path / "embedded.txt").write_text("".join(f"{i}\t{i}\t{image}\n" for i in range(14)))


def labels(deserializer, window, seed):
    streams = StreamDefs(image=StreamDef("image", transforms=[transforms.scale(2, 2, 3)]), y=StreamDef("label", 14))
    options = {"randomization_window_in_chunks": window, "randomization_seed": seed, "max_sweeps": 1}
    source, labels = MinibatchSource(deserializer(streams), **options), []
    while minibatch := source.next_minibatch(5):
        labels += minibatch[source.streams.y].ragged.data.indices.tolist()
    return labels


@pytest.mark.parametrize("window, seed", IMAGES)
def test_each_image_file_is_a_chunk(listed, window, seed):
    assert labels(lambda streams: ImageDeserializer("files.txt", streams), window, seed) == IMAGES[window, seed]


def test_embedded_images_have_chunks_of_bytes_like_text(listed):
    assert labels(lambda streams: Base64ImageDeserializer("embedded.txt", streams), 2, 0) == IMAGES[1, 0]


def test_shuffling_of_frames(tmp_path):
    lengths = [3, 2, 4]
    for i, frames in enumerate(lengths):
        data = np.stack([np.full(frames, i), np.arange(frames)], 1).astype(">f4")
        (tmp_path / f"{i}.mfc").write_bytes(struct.pack(">iihh", frames, 100000, 8, 9) + data.tobytes())
    scp = tmp_path / "f.scp"
    scp.write_text("".join(f"u{i}=.../{i}.mfc[0,{n - 1}]\n" for i, n in enumerate(lengths)))
    described = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=2, scp=str(scp))))
    source = MinibatchSource(described, frame_mode=True, randomization_seed=1)
    assert source.next_minibatch(9)[source.streams.x].ragged.data.tolist() == [
        [2, 2], [2, 1], [0, 0], [0, 2], [1, 0], [2, 3], [2, 0], [1, 1], [0, 1]
    ]


def test_training_with_shuffled_data_agrees_with_cntk(ctf):
    rows = [f"|x {' '.join(str((7 * i + 5 * k) % 11 - 5) for k in range(4))} |y {i * i % 3}:1\n" for i in range(40)]
    source = MinibatchSource(ctf("".join(rows), x=4, y=(3,)), max_sweeps=2)
    x, y = C.input_variable(4), C.input_variable(3)
    loss = C.cross_entropy_with_softmax(C.layers.Dense(3, init=C.glorot_uniform(seed=5))(x), y)
    rate = C.learning_parameter_schedule_per_sample(0.01)
    trainer, losses = C.Trainer(loss, (loss,), C.sgd(loss.parameters, rate)), []
    while minibatch := source.next_minibatch(16, {x: source.streams.x, y: source.streams.y}):
        trainer.train_minibatch(minibatch)
        losses.append(trainer.previous_minibatch_loss_average)
    np.testing.assert_allclose(losses, [3.48211, 1.91782, 1.26721, 2.57673, 1.23932], atol=2e-5)
