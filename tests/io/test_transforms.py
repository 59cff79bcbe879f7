"""Transforms called on arrays do what the reader of images does."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.io import transforms

IMAGE = np.random.RandomState(0).randint(0, 256, (20, 30, 3)).astype(np.uint8)


def test_they_give_what_the_reader_gives(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    (tmp_path / "map.txt").write_text(f"{tmp_path / 'image.png'}\t0\n")
    steps = [transforms.crop("center", side_ratio=0.8), transforms.scale(8, 6, 3)]
    source = C.io.MinibatchSource(C.io.ImageDeserializer(str(tmp_path / "map.txt"), C.io.StreamDefs(
        features=C.io.StreamDef(field="image", transforms=steps), labels=C.io.StreamDef(field="label", shape=1),
    )), randomize=False, max_sweeps=1)  # fmt: skip
    read = source.next_minibatch(1)[source.streams.features].asarray().reshape(3, 6, 8)
    image = IMAGE[:, :, ::-1]
    for step in steps:
        image = step(image)
    np.testing.assert_array_equal(image.transpose(2, 0, 1), read)


def test_a_seed_gives_the_same_cut_again():
    cut = transforms.crop("randomside", side_ratio=0.5)
    np.testing.assert_array_equal(cut(IMAGE, seed=3), cut(IMAGE, seed=3))
    assert len({cut(IMAGE, seed=seed).tobytes() for seed in range(8)}) > 1


def test_what_is_no_image_is_an_error():
    with pytest.raises(ValueError, match=r"Scale: an image is uint8 or float32 \[height, width, channels\], not int64"):
        transforms.scale(4, 4, 3)(IMAGE.astype(np.int64))


def places(rows, columns):
    """An image that says in its first two colours where its pixels are."""
    y, x = np.mgrid[:rows, :columns]
    return np.stack([x, y, 0 * x], -1).astype(np.uint8)


@pytest.mark.parametrize("options, image, cut", [  # left, top, width and height in CNTK 2.7
    ({"side_ratio": 0.7}, (5, 5), (1, 1, 3, 3)),  # 3.5 in double precision, but less in single
    ({"side_ratio": 0.9}, (5, 5), (0, 0, 4, 4)),
    ({"side_ratio": 0.5}, (5, 5), (1, 1, 3, 3)),
    ({"area_ratio": 0.5}, (16, 12), (1, 3, 10, 10)),
    ({"area_ratio": 0.5}, (7, 21), (0, 0, 21, 7)),  # what is higher than the image is not cut out at all
    ({"area_ratio": 0.9}, (16, 12), (0, 0, 12, 16)),
    ({"aspect_ratio": 0.8, "side_ratio": 1.0}, (16, 12), (1, 1, 10, 13)),  # standing, as lying it would not fit
    ({"aspect_ratio": 0.8, "side_ratio": 1.0}, (9, 10), (0, 0, 10, 8)),
    ({"aspect_ratio": 2.0, "side_ratio": 1.0}, (9, 10), (0, 0, 10, 9)),
    ({"crop_size": (5, 40)}, (16, 12), (3, 0, 5, 16)),
])  # fmt: skip
def test_what_is_cut_out_is_what_cntk_cuts_out(options, image, cut):
    for seed in range(4):
        part = transforms.crop("center", **options)(places(*image), seed)
        assert (*part[0, 0, :2], part.shape[1], part.shape[0]) == cut


@pytest.mark.parametrize("mode, size, image, first_row, first_column", [
    ("crop", (3, 3), (30, 20), [0, 6, 13], [6, 12, 18]),
    ("crop", (7, 7), (30, 20), [0, 2, 5, 8, 11, 14, 17], [5, 8, 10, 13, 16, 19, 21]),
    ("pad", (5, 5), (9, 10), [0, 2, 4, 6, 8], [0, 1, 3, 5, 7]),
])  # fmt: skip
def test_half_a_row_is_a_row(mode, size, image, first_row, first_column):
    """When proportions are kept; the numbers are CNTK's."""
    made = transforms.scale(*size, 3, interpolations="nearest", scale_mode=mode)(places(*image))
    assert (made[0, :, 0].tolist(), made[:, 0, 1].tolist()) == (first_row, first_column)


@pytest.mark.parametrize("options, name", [
    ({"side_ratio": 1.2}, "sideRatio"), ({"side_ratio": (0, 0.5)}, "sideRatio"), ({"area_ratio": -1}, "areaRatio"),
    ({"aspect_ratio": 0}, "aspectRatio"), ({"crop_size": -1}, "cropSize"), ({"jitter_type": "bogus"}, "jitter type"),
])  # fmt: skip
def test_crops_that_cannot_be(options, name):
    with pytest.raises(RuntimeError, match=f"Invalid {name}"):
        transforms.crop("center", **options)(places(4, 4))
