"""Images are read as CNTK 2.7 reads them, to the pixel; images.json has its results for the image here."""

import base64
import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from cntkjax.io import (
    Base64ImageDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
    _image_decoding,
    _resize,
    transforms,
)

Image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")

RECORDED = json.loads(Path(__file__).with_name("images.json").read_text())
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PIXELS = np.random.RandomState(0).randint(0, 256, (9, 13, 3)).astype("uint8")  # red, green, blue


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A folder with the image, lists of it, and a mean image; paths in lists are relative to where the script runs."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(PIXELS).save("a.png")
    Image.fromarray(PIXELS[::-1]).save("b.png")
    (tmp_path / "map.txt").write_text("a.png\t1\nb.png\t0\n")
    values = " ".join(map(str, range(9 * 13 * 3)))
    (tmp_path / "mean.xml").write_text(
        '<?xml version="1.0" ?><opencv_storage><Channel>3</Channel><Row>9</Row><Col>13</Col>'
        f'<MeanImg type_id="opencv-matrix"><rows>1</rows><cols>351</cols><dt>f</dt><data>{values}</data></MeanImg>'
        "</opencv_storage>"
    )
    return tmp_path


def source(steps, path="map.txt", kind=ImageDeserializer, labels=3, **options):
    streams = StreamDefs(x=StreamDef("image", transforms=steps), y=StreamDef("label", labels))
    return MinibatchSource(kind(path, streams), **({"randomize": False, "max_sweeps": 1} | options))


def images(reader, size=100):
    """All images of a source: [images, channels, height, width]."""
    parts = []
    while minibatch := reader.next_minibatch(size):
        parts.append(minibatch[reader.streams.x].asarray()[:, 0])
    return np.concatenate(parts)


def scale(width, height, **options):
    return transforms.scale(width, height, 3, **options)


KINDS = ("nearest", "linear", "cubic", "lanczos")
COLORS = transforms.color(brightness_radius=0.2, contrast_radius=0.2, saturation_radius=0.4)
STEPS = {f"down_{kind}": [scale(5, 4, interpolations=kind)] for kind in KINDS} | {
    f"up_{kind}": [scale(20, 17, interpolations=kind)] for kind in KINDS
} | {
    "crop_center_size": [transforms.crop("center", crop_size=(4, 6)), scale(4, 6)],
    "crop_center_side": [transforms.crop("center", side_ratio=0.5), scale(8, 8)],
    "mode_crop_-1": [scale(10, 10, scale_mode="crop")],
    "mode_pad_114": [scale(10, 10, scale_mode="pad", pad_value=114)],
    "mode_pad_-1": [scale(10, 10, scale_mode="pad")],
    "multi": [transforms.crop("multiview10", side_ratio=0.5), scale(4, 4)],
    "mean": [scale(13, 9), transforms.mean("mean.xml")],
    "crop_random": [transforms.crop("randomside", side_ratio=(0.5, 1.0), jitter_type="uniratio"), scale(6, 8)],
    "color_all": [scale(13, 9), COLORS],
    "color_before_scale": [COLORS, scale(7, 5, interpolations="cubic")],
}


@pytest.fixture(params=["OpenCV", "Pillow alone"])
def decoder(request, monkeypatch):
    """Images are read with OpenCV and without."""
    if request.param == "OpenCV":
        pytest.importorskip("cv2", reason="reads images with OpenCV")
    else:
        for module in (_image_decoding, _resize):
            monkeypatch.setattr(module, "opencv", lambda: None)


@pytest.mark.parametrize("name", STEPS)
def test_transforms_agree_with_cntk(listed, decoder, name):
    reader = source(STEPS[name])
    expected = np.array(RECORDED[name]["values"]).reshape(RECORDED[name]["shape"])
    assert reader.streams.x.sample_shape == expected.shape
    if expected.dtype.kind == "f":  # CNTK converts to hue and saturation and back in single precision
        np.testing.assert_allclose(images(reader)[0], expected, atol=2e-4)
    else:
        np.testing.assert_array_equal(images(reader)[0], expected)


def test_pixels_are_blue_green_red_and_labels_sparse(listed):
    reader = source([scale(13, 9)])
    minibatch = reader.next_minibatch(2)
    expected = np.stack([PIXELS, PIXELS[::-1]])[..., ::-1].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(minibatch[reader.streams.x].asarray()[:, 0], expected)
    assert reader.streams.y.is_sparse
    np.testing.assert_array_equal(minibatch[reader.streams.y].asarray()[:, 0], [[0, 1, 0], [1, 0, 0]])


def test_without_scaling_the_shape_is_that_of_the_images(listed):
    assert source([transforms.crop("center", crop_size=4)]).streams.x.sample_shape == (3, 4, 4)
    Image.fromarray(PIXELS[:5]).save("b.png")
    with pytest.raises(RuntimeError, match=r"line 2: the image is \(3, 5, 13\), others are \(3, 9, 13\)"):
        images(source([]))


def test_random_crops_differ_between_sweeps_and_lie_inside_of_the_image(listed):
    (listed / "map.txt").write_text("a.png\t1\n" * 20)
    steps = [transforms.crop("randomside", side_ratio=(0.4, 0.9), jitter_type="uniratio")]
    pixels = images(source([*steps, scale(6, 6, interpolations="nearest")], max_sweeps=2))
    assert pixels.shape == (40, 3, 6, 6)
    assert len({part.tobytes() for part in pixels}) > 30
    known = {tuple(p) for p in PIXELS.reshape(-1, 3)[:, ::-1]}
    assert {tuple(p) for p in pixels.transpose(0, 2, 3, 1).reshape(-1, 3).astype(int)} <= known
    again = images(source([*steps, scale(6, 6, interpolations="nearest")], max_sweeps=2))
    np.testing.assert_array_equal(pixels, again)


def test_minibatches_and_parts_of_them_stay_as_they_were_read(listed):
    reader = source([transforms.crop("randomside", crop_size=5)], max_sweeps=40)
    kept, expected = [], []
    while minibatch := reader.next_minibatch(2):
        pixels = minibatch[reader.streams.x].ragged.data
        expected.append(pixels.copy())
        kept.append([pixels, pixels[1:], jnp.asarray(pixels)][len(kept) % 3])  # of most only a part, or what reads it
    for number, (array, before) in enumerate(zip(kept, expected, strict=True)):
        np.testing.assert_array_equal(array, before[1:] if number % 3 == 1 else before)


@pytest.mark.parametrize("sizes, expected", [  # left, top, mirrored in CNTK 2.7
    ([2, 2, 2], [(18, 13, 0), (13, 22, 0), (27, 13, 0), (30, 0, 1), (17, 19, 1), (9, 22, 1)]),
    ([1, 2], [(18, 13, 0), (17, 19, 1), (13, 22, 0)]),  # the second image was read for a minibatch of another size
])
@pytest.mark.parametrize("behind_text", [False, True])
def test_random_numbers_depend_on_the_index_in_the_minibatch(sizes, expected, behind_text, listed, ctf):
    y, x = np.mgrid[:30, :40]
    Image.fromarray(np.stack([x, y, 0 * x], -1).astype("uint8")).save("a.png")
    (listed / "map.txt").write_text("a.png\t1\n" * 9)
    streams = StreamDefs(x=StreamDef("image", transforms=[transforms.crop("randomside", crop_size=8)]))
    deserializers = [ctf("|t 1\n" * 9, t=1)] * behind_text + [ImageDeserializer("map.txt", streams)]
    reader = MinibatchSource(deserializers, randomize=False)
    parts = [part for n in sizes for part in reader.next_minibatch(n)[reader.streams.x].asarray()[:, 0]]
    crops = [(int(part[2].min()), int(part[1].min()), int(part[2, 0, 0] > part[2, 0, -1])) for part in parts]
    assert crops == expected


def test_two_lists_of_the_same_images_are_cropped_at_the_same_places(listed):
    (listed / "map.txt").write_text("".join(f"a.png\t{i}\n" for i in range(10)))
    (listed / "deep").mkdir()
    (listed / "deep" / "more.txt").write_text("".join(f".../../a.png\t{i}\n" for i in range(10)))
    steps = [transforms.crop("randomside", side_ratio=(0.4, 0.9), jitter_type="uniratio"), scale(6, 6)]
    parts = [
        ImageDeserializer(path, StreamDefs(**{name: StreamDef("image", transforms=steps)}))
        for path, name in (("map.txt", "x"), ("deep/more.txt", "y"))
    ]
    reader = MinibatchSource(parts, max_sweeps=4)
    crops_seen = set()
    while minibatch := reader.next_minibatch(3):
        x, y = (minibatch[reader.streams[name]].asarray() for name in "xy")
        np.testing.assert_array_equal(x, y)
        crops_seen |= {part.tobytes() for part in x}
    assert len(crops_seen) > 30


def test_a_crop_after_scaling_determines_the_shape(listed):
    assert source([scale(8, 8), transforms.crop("center", crop_size=(4, 6))]).streams.x.sample_shape == (3, 6, 4)


def test_colours_of_an_image_vary_by_one_factor(listed):
    (listed / "map.txt").write_text("a.png\t1\n" * 5)
    plain = images(source([scale(13, 9)]))[0]
    for pixels in images(source([scale(13, 9), transforms.color(contrast_radius=0.5)])):
        inside = (plain > 0) & (pixels < 255)
        factors = (pixels / np.maximum(plain, 1))[inside]
        np.testing.assert_allclose(factors, factors[0], rtol=1e-5)
        assert 0.5 <= factors[0] <= 1.5
    for pixels in images(source([scale(13, 9), transforms.color(brightness_radius=0.3)])):
        added = (pixels - plain)[(pixels > 0) & (pixels < 255)]
        np.testing.assert_allclose(added, added[0], atol=1e-3)
    for pixels in images(source([scale(13, 9), transforms.color(saturation_radius=0.5)])):
        np.testing.assert_array_equal(pixels.max(0), plain.max(0))  # the brightest colour stays
    np.testing.assert_array_equal(images(source([scale(13, 9), transforms.color()]))[0], plain)


def test_archives_base64_and_sequence_ids(listed):
    with zipfile.ZipFile("z.zip", "w") as archive:
        archive.write("a.png", "in/a.png")
    (listed / "map.txt").write_text("7\tz.zip@/in/a.png\t1\n")
    expected = PIXELS[..., ::-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(images(source([scale(13, 9)]))[0], expected)
    encoded = io.BytesIO()
    Image.fromarray(PIXELS).save(encoded, "PNG")
    (listed / "b64.txt").write_text(f"7\t1\t{base64.b64encode(encoded.getvalue()).decode()}\n")
    reader = source([scale(13, 9)], "b64.txt", Base64ImageDeserializer)
    np.testing.assert_array_equal(images(reader)[0], expected)


def test_the_byte_order_mark_of_a_list_is_skipped(listed):
    """Notepad writes one."""
    (listed / "map.txt").write_text("a.png\t1\n", encoding="utf-8-sig")
    np.testing.assert_array_equal(images(source([])), [PIXELS[..., ::-1].transpose(2, 0, 1)])


def test_labels_and_ids_may_be_written_as_decimals(listed):
    (listed / "map.txt").write_text("7.0\ta.png\t1.\n+8\ta.png\t+2\n")
    reader = source([scale(4, 4)])
    labels = reader.next_minibatch(2)[reader.streams.y].asarray()
    assert labels.reshape(2, -1).argmax(1).tolist() == [1, 2]


def test_scaling_to_one_channel_reads_greyscale(listed):
    Image.fromarray(PIXELS[..., 0]).save("a.png")
    (listed / "map.txt").write_text("a.png\t1\n")
    np.testing.assert_array_equal(images(source([scale(13, 9)]))[0], np.stack([PIXELS[..., 0]] * 3))
    np.testing.assert_array_equal(images(source([transforms.scale(13, 9, 1)]))[0, 0], PIXELS[..., 0])


def test_a_mean_of_another_size_is_not_subtracted_with_a_warning(listed):
    with pytest.warns(UserWarning, match="mean image 'mean.xml' is not subtracted"):
        pixels = images(source([scale(5, 4), transforms.mean("mean.xml")], multithreaded_deserializer=False))
    np.testing.assert_allclose(pixels[0].ravel(), RECORDED["down_linear"]["values"], atol=1)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("nope.png\t1", "line 1: Cannot open file 'nope.png'"),
        ("map.txt\t1", "line 1: Cannot open file 'map.txt': it is damaged, or no image"),
        ("a.png 1", "line 1: has 1 columns"),
        ("a.png\t7", "label 7 is outside of stream 'y'"),
        ("a.png\tx", "cannot parse the label 'x'"),
        ("a.png\t1.5", "cannot parse the label '1.5'"),
        ("none.zip@/a.png\t1", "Cannot open file 'none.zip@/a.png'"),
        ("", "1 columns"),
    ],
)
def test_errors_in_lists_name_the_line(listed, row, reason):
    (listed / "map.txt").write_text(row + "\n")
    with pytest.raises(RuntimeError, match=reason):
        images(source([scale(4, 4)]))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (scale(4, 4, interpolations="foo"), "Invalid interpolations value"),
        (scale(4, 4, scale_mode="foo"), "Invalid scaleMode value"),
        (transforms.crop("foo"), "Invalid crop type: foo"),
        (transforms.crop("center", side_ratio=0.5, area_ratio=0.5), "cannot be specified simultaneously"),
        (transforms.mean("nowhere.xml"), "Could not open file: nowhere.xml"),
    ],
)
def test_invalid_transforms_are_reported_when_the_source_is_created(listed, step, reason):
    with pytest.raises(RuntimeError, match=reason):
        source([step])
    with pytest.raises(RuntimeError, match="Could not open nowhere"):
        source([], "nowhere")


@pytest.mark.skipif(not DATA.exists(), reason="needs the images in ../shared/data")
@pytest.mark.parametrize(
    ("name", "kind"),
    [("ImageReaderZip", ImageDeserializer), ("Base64ImageReaderSimple", Base64ImageDeserializer)],
)
def test_jpegs_of_the_tests_of_cntk(monkeypatch, name, kind):
    monkeypatch.chdir(DATA)
    pixels = images(source([scale(4, 8)], f"images/{name}_map.txt", kind, labels=4))
    pure = 255 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])  # black, blue, green, red
    np.testing.assert_allclose(pixels, np.broadcast_to(pure[:, :, None, None], (4, 3, 8, 4)), atol=2)


def png_header(width, height):
    """A PNG file of such a size that ends before its pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + checksum + struct.pack(">I", 100) + b"IDAT"


@pytest.mark.parametrize(("size", "reason"), [
    ((10_000, 8_000), "it has 10000 x 8000 pixels, more than 67108864; scale it down, or set max_pixels"),
    ((60_000, 60_000), "Image size .3600000000 pixels. exceeds limit"),  # Pillow's own
])
def test_huge_images_are_not_decoded(listed, size, reason):
    (listed / "huge.png").write_bytes(png_header(*size))
    (listed / "map.txt").write_text("a.png\t1\nhuge.png\t1\n")
    with pytest.raises(RuntimeError, match=f"map.txt, line 2: Cannot open file 'huge.png': {reason}"):
        images(source([scale(4, 4)]))


@pytest.mark.parametrize("kind", ["file", "archive", "list"])
def test_the_limit_of_pixels_is_an_argument_and_limits_files_too(listed, kind):
    def read(max_pixels):
        describe = Base64ImageDeserializer if kind == "list" else ImageDeserializer
        streams = StreamDefs(x=StreamDef("image", transforms=[scale(4, 4)]))
        return images(MinibatchSource(describe("map.txt", streams, max_pixels), randomize=False, max_sweeps=1))

    def write(content):
        (listed / "c.png").write_bytes(content)
        with zipfile.ZipFile("c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("c.png", content)
        rows = {"file": "c.png\t0", "archive": "c.zip@/c.png\t0", "list": f"0\t{base64.b64encode(content).decode()}"}
        (listed / "map.txt").write_text(rows[kind] + "\n")

    image = (listed / "a.png").read_bytes()
    write(image)
    assert len(read(13 * 9)) == 1
    with pytest.raises(RuntimeError, match=r"map.txt, line 1: .* it has 13 x 9 pixels, more than 116"):
        read(13 * 9 - 1)
    write(image + bytes(2 * 2**20))
    with pytest.raises(RuntimeError, match=r"line 1: .*, too many for an image of 117 pixels; set max_pixels"):
        read(13 * 9)
    with pytest.raises(ValueError, match="max_pixels has to be positive, not 0"):
        read(0)


def test_encrypted_archives_name_the_line(listed):
    with zipfile.ZipFile("c.zip", "w") as archive:
        archive.write("a.png")
    content = bytearray((listed / "c.zip").read_bytes())
    content[6] |= 1  # the flag in the header of the entry, and in the directory
    content[content.index(b"PK\1\2") + 8] |= 1
    (listed / "c.zip").write_bytes(content)
    (listed / "map.txt").write_text("c.zip@/a.png\t1\n")
    with pytest.raises(RuntimeError, match=r"map.txt, line 1: Cannot open file 'c.zip@/a.png': .* is encrypted"):
        images(source([scale(4, 4)]))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unusual", ["/dev/zero", "pipe", ".", "nul\0", "/dev/zero@/a.png"])
def test_devices_pipes_and_folders_are_no_images(listed, unusual):
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe")
    (listed / "map.txt").write_text(f"a.png\t1\n{unusual}\t1\n")
    reason = "only regular files are read|contains a NUL character"
    with pytest.raises(RuntimeError, match=f"map.txt, line 2: Cannot open file .*({reason})"):
        images(source([scale(4, 4)]))


@pytest.mark.parametrize("row", ["a.png\t²", "a.png\t١", "x\ta.png\t1", f"{2**64}\ta.png\t1", "9" * 5000 + "\tb\t1"])
def test_ids_and_labels_are_ascii_digits_of_64_bits(listed, row):
    (listed / "map.txt").write_text(f"a.png\t1\n{row}\n")
    with pytest.raises(RuntimeError, match="map.txt, line 2: cannot parse the (label|sequence id)"):
        source([scale(4, 4)])


def test_a_damaged_byte_is_an_error_with_the_line_or_another_image(listed):
    with zipfile.ZipFile("c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("c.png", (listed / "a.png").read_bytes()[:150])
    for file, row in (("c.png", "c.png\t0"), ("c.zip", "c.zip@/c.png\t0")):
        good = (listed / ("a.png" if file == "c.png" else "c.zip")).read_bytes()
        for i in range(0, min(len(good), 200), 3):
            (listed / file).write_bytes(good[:i] + bytes([good[i] ^ 255]) + good[i + 1 :])
            (listed / "map.txt").write_text(row + "\n")
            try:
                assert images(source([scale(4, 4)])).shape == (1, 3, 4, 4)
            except RuntimeError as error:
                assert "map.txt, line 1: Cannot open file" in str(error)


def test_images_and_text_are_joined_by_line_number(listed):
    from cntkjax.io import CTFDeserializer

    large = 2**64 - 7
    (listed / "map.txt").write_text(f"5\ta.png\t1\n{large}\tb.png\t2\n")
    (listed / "more.ctf").write_text(f"{large} |v 70\n5 |v 50\n")
    streams = StreamDefs(x=StreamDef("image", transforms=[scale(13, 9)]))
    more = CTFDeserializer("more.ctf", StreamDefs(v=StreamDef("v", 1)))
    reader = MinibatchSource([ImageDeserializer("map.txt", streams), more], randomize=False, max_sweeps=1)
    np.testing.assert_array_equal(reader.next_minibatch(9)[reader.streams.v].asarray().ravel(), [50, 70])


def test_a_photograph_is_turned_as_its_camera_noted_unless_it_is_in_an_archive(listed, decoder):
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    Image.fromarray(PIXELS).save("photo.jpg", exif=turned, quality=95)
    Image.fromarray(PIXELS).save("plain.jpg", quality=95)
    with zipfile.ZipFile("z.zip", "w") as archive:
        archive.write("photo.jpg")
    (listed / "map.txt").write_text("plain.jpg\t1\nphoto.jpg\t1\nz.zip@/photo.jpg\t1\n")
    plain, photo, member = images(source([scale(13, 9)]))
    np.testing.assert_array_equal(photo, plain[:, ::-1, ::-1])
    np.testing.assert_array_equal(member, plain)


def test_a_file_that_was_cut_is_an_error(listed, decoder):
    for name in ("cut.jpg", "cut.png"):
        Image.fromarray(np.tile(PIXELS, (10, 10, 1))).save(name)
        (listed / name).write_bytes((listed / name).read_bytes()[:-2000])
        (listed / "map.txt").write_text(f"{name}\t1\n")
        with pytest.raises(RuntimeError, match=f"map.txt, line 1: Cannot open file '{name}'"):
            source([scale(13, 9)]).next_minibatch(1)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
def test_both_decoders_give_the_same_pixels(listed, monkeypatch, mode):
    pytest.importorskip("cv2", reason="compares OpenCV with Pillow")
    name = f"{mode}.{'jpg' if mode in ('L', 'RGB') else 'png'}"
    Image.fromarray(np.tile(PIXELS, (4, 4, 1))).convert(mode).save(name)
    (listed / "map.txt").write_text(f"{name}\t1\n")
    by_opencv = images(source([scale(52, 36)]))
    monkeypatch.setattr(_image_decoding, "opencv", lambda: None)
    np.testing.assert_array_equal(images(source([scale(52, 36)])), by_opencv)
