"""Transforms called on arrays do what the reader of images does."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.io import transforms

IMAGE = np.random.RandomState(0).randint(0, 256, (20, 30, 3)).astype(np.uint8)


def test_results_are_those_of_the_deserializer(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    (tmp_path / "map.txt").write_text(f"{tmp_path / 'image.png'}\t0\n")
    steps = [transforms.crop("center", side_ratio=0.8), transforms.scale(8, 6, 3)]
    source = C.io.MinibatchSource(C.io.ImageDeserializer(str(tmp_path / "map.txt"), C.io.StreamDefs(
        features=C.io.StreamDef(field="image", transforms=steps), labels=C.io.StreamDef(field="label", shape=1),
    )), randomize=False, max_sweeps=1)
    read = source.next_minibatch(1)[source.streams.features].asarray().reshape(3, 6, 8)
    image = IMAGE[:, :, ::-1]
    for step in steps:
        image = step(image)
    np.testing.assert_array_equal(image.transpose(2, 0, 1), read)


def test_a_seed_reproduces_a_crop():
    cut = transforms.crop("randomside", side_ratio=0.5)
    np.testing.assert_array_equal(cut(IMAGE, seed=3), cut(IMAGE, seed=3))
    assert len({cut(IMAGE, seed=seed).tobytes() for seed in range(8)}) > 1


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match=r"Scale: an image is uint8 or float32 \[height, width, channels\], not int64"):
        transforms.scale(4, 4, 3)(IMAGE.astype(np.int64))
