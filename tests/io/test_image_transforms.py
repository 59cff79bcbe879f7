"""The pixels of transformed images are those of CNTK 2.7."""

import numpy as np
import pytest

from cntkjax.io import transforms
from cntkjax.io._image_transforms import TransformRandom, as_transform


def places(rows, columns):
    """An image whose first two channels hold the coordinates of its pixels."""
    y, x = np.mgrid[:rows, :columns]
    return np.stack([x, y, 0 * x], -1).astype(np.uint8)


@pytest.mark.parametrize("options, image, cut", [  # left, top, width and height in CNTK 2.7
    ({"side_ratio": 0.7}, (5, 5), (1, 1, 3, 3)),  # 3.5 in double precision, but less in single
    ({"side_ratio": 0.9}, (5, 5), (0, 0, 4, 4)),
    ({"side_ratio": 0.5}, (5, 5), (1, 1, 3, 3)),
    ({"area_ratio": 0.5}, (16, 12), (1, 3, 10, 10)),
    ({"area_ratio": 0.5}, (7, 21), (0, 0, 21, 7)),  # a crop higher than the image is not applied
    ({"area_ratio": 0.9}, (16, 12), (0, 0, 12, 16)),
    ({"aspect_ratio": 0.8, "side_ratio": 1.0}, (16, 12), (1, 1, 10, 13)),  # portrait: in landscape it would not fit
    ({"aspect_ratio": 0.8, "side_ratio": 1.0}, (9, 10), (0, 0, 10, 8)),
    ({"aspect_ratio": 2.0, "side_ratio": 1.0}, (9, 10), (0, 0, 10, 9)),
    ({"crop_size": (5, 40)}, (16, 12), (3, 0, 5, 16)),
])
def test_crops_agree_with_cntk(options, image, cut):
    for seed in range(4):
        part = transforms.crop("center", **options)(places(*image), seed)
        assert (*part[0, 0, :2], part.shape[1], part.shape[0]) == cut


JITTER = {"jitter_type": "uniratio"}


@pytest.mark.parametrize("kind, options, cuts", [  # left, top, width, height, mirrored, for four images in CNTK 2.7
    ("side", {"crop_size": (250, 100)}, [(0, 55, 250, 100, 0), (0, 72, 250, 100, 0), (0, 60, 250, 100, 0)]),
    ("side", {"side_ratio": (0.4, 0.9), **JITTER},
     [(68, 47, 135, 135, 0), (95, 33, 140, 140, 0), (80, 51, 122, 122, 1), (37, 68, 124, 124, 1)]),
    ("area", {"area_ratio": (0.1, 0.6), "aspect_ratio": (0.7, 1.0), **JITTER},
     [(88, 44, 146, 128, 0), (74, 40, 132, 139, 1), (6, 86, 141, 111, 1), (97, 47, 131, 111, 1)]),
    ("side", {"side_ratio": 0.8, "aspect_ratio": 0.5},  # in portrait it does not fit
     [(14, 62, 226, 113, 0), (21, 47, 226, 113, 0), (16, 33, 226, 113, 1), (1, 84, 226, 113, 1)]),
    ("side", {"side_ratio": (0.5, 1.0), "aspect_ratio": (0.4, 1.0), **JITTER},
     [(61, 40, 178, 134, 0), (65, 25, 146, 161, 1), (3, 88, 189, 109, 1), (69, 46, 166, 114, 1)]),
    ("side", {"side_ratio": 1.0, "aspect_ratio": (0.3, 0.5), **JITTER},  # never fits
     [(0, 0, 250, 200, 0), (0, 0, 250, 200, 1), (0, 0, 250, 200, 0), (0, 0, 250, 200, 0)]),
])
def test_random_crops_agree_with_cntk(kind, options, cuts):
    crop, random = as_transform(transforms.crop(f"random{kind}", **options)), TransformRandom(0)
    for cut in cuts:
        part = crop(places(200, 250), random)
        left, right = sorted(part[0, [0, -1], 0].tolist())
        assert (left, part[0, 0, 1], right - left + 1, len(part), part[0, 0, 0] > part[0, -1, 0]) == cut


def test_random_colours_agree_with_cntk():
    color, random = as_transform(transforms.color(0.3, 0.2, 0.4)), TransformRandom(0)
    pixels = [color(np.array([[[60, 120, 180]]] * 2, np.uint8)[:, :, ::-1], random)[0, 0] for _ in range(3)]
    recorded = [[190.1994, 117.2584, 44.3175], [212.1861, 131.8321, 51.4782], [208.2337, 144.0732, 79.9128]]
    np.testing.assert_allclose(pixels, recorded, atol=1e-3)


def intensity(tmp_path, **options):
    """Jitter along axes of which the second is the third of the file, in the order red, green, blue."""
    path = tmp_path / "axes.xml"
    matrices = (("EigVal", "3 2 1"), ("EigVec", "1 0 0 0 0 1 0 1 0"))
    path.write_text("<opencv_storage>" + "".join(f"<{n}><data>{v}</data></{n}>" for n, v in matrices)
                    + "</opencv_storage>")
    return transforms.ImageTransform(type="Intensity", intensityFile=str(path), **options)


def test_random_intensities_agree_with_cntk(tmp_path):
    """The seventh image needs a number of which the first draw is rejected."""
    shifts = [[-0.67815, 1.31082, 1.15548], [0.97482, -1.82086, 0.00003], [-0.55075, 0.51105, 0.01765],
              [-0.92886, -0.097, 0.3381], [-1.522, -1.1, 0.638], [0.387, -0.054, 0.569], [-1.309, 0.977, 0.265]]
    for seed, (first, second, third) in enumerate(shifts):
        pixel = intensity(tmp_path, intensityStdDev=2.0)(np.full((1, 1, 3), 100, np.uint8), seed)[0, 0]
        np.testing.assert_allclose(pixel - 100, [4 * second, 2 * third, 6 * first], atol=3e-3)
    dark, bright = (intensity(tmp_path, intensityStdDev=1000.0)(np.full((1, 1, 3), 100, np.uint8), 0)[0, 0, i]
                    for i in (2, 0))
    assert (dark, bright) == (0, 255)
    image = np.full((1, 1, 3), 100, np.uint8)
    assert intensity(tmp_path)(image) is image  # without a deviation


def test_the_axes_of_intensities_are_checked(tmp_path):
    jitter = intensity(tmp_path, intensityStdDev=1.0)
    path = tmp_path / "axes.xml"
    path.write_text(path.read_text().replace("3 2 1", "3 2"))
    with pytest.raises(RuntimeError, match=r"Invalid EigVal data in file: .*axes.xml: it has to be 3 numbers"):
        jitter(np.full((1, 1, 3), 100, np.uint8))


def test_saturation_of_negative_intensities_agrees_with_cntk():
    color, random = as_transform(transforms.color(0, 0, 0.5)), TransformRandom(0)
    pixels = [color(np.array([[[-166, -249, -204]]], np.float32), random)[0, 0] for _ in range(2)]
    np.testing.assert_allclose(pixels, [[-166, -78.94849, -126.14513], [-166, -75.2939, -124.47194]], atol=1e-3)


@pytest.mark.parametrize("mode, size, image, first_row, first_column", [
    ("crop", (3, 3), (30, 20), [0, 6, 13], [6, 12, 18]),
    ("crop", (7, 7), (30, 20), [0, 2, 5, 8, 11, 14, 17], [5, 8, 10, 13, 16, 19, 21]),
    ("pad", (5, 5), (9, 10), [0, 2, 4, 6, 8], [0, 1, 3, 5, 7]),
    ("pad", (2, 4), (12, 7), [0, 3], [0, 3, 6, 9]),  # a higher image gets the height
    ("pad", (2, 4), (11, 7), [0, 3], [0, 3, 7, 7]),  # unless its width does not fit, where CNTK fails
])
def test_sizes_are_rounded_as_in_cntk(mode, size, image, first_row, first_column):
    """When proportions are kept; the numbers are CNTK's."""
    pixels = transforms.scale(*size, 3, interpolations="nearest", scale_mode=mode)(places(*image))
    assert (pixels[0, :, 0].tolist(), pixels[:, 0, 1].tolist()) == (first_row, first_column)


@pytest.mark.parametrize("options, name", [
    ({"side_ratio": 1.2}, "sideRatio"), ({"side_ratio": (0, 0.5)}, "sideRatio"), ({"area_ratio": -1}, "areaRatio"),
    ({"aspect_ratio": 0}, "aspectRatio"), ({"crop_size": -1}, "cropSize"), ({"jitter_type": "bogus"}, "jitter type"),
])
def test_an_invalid_crop_is_an_error(options, name):
    with pytest.raises(RuntimeError, match=f"Invalid {name}"):
        transforms.crop("center", **options)(places(4, 4))


def test_colors_without_jitter_leave_whole_numbers():
    """CNTK rounds what it scales then."""
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    changed = as_transform(transforms.color(0, 0, 0))(image, TransformRandom(0))
    assert changed.dtype == np.uint8 and (changed == image).all()
    assert as_transform(transforms.color(0, 0, 1e-9))(image, TransformRandom(0)).dtype == np.float32
