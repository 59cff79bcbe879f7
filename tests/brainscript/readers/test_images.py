"""Reader blocks of images."""

import base64
import io

import numpy as np
import pytest

from cntkjax.brainscript.readers import open_reader
from cntkjax.configuration import load
from tests.brainscript.readers.test_speech import minibatch


def test_images(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for i in range(3):
        Image.fromarray(np.full((6, 8, 3), 40 * i, np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "map.txt").write_text("".join(f"{tmp_path}/{i}.png\t{i % 2}\n" for i in range(3)))
    (tmp_path / "a.cntk").write_text("""
        reader = [ readerType = ImageReader ; file = "$Map$" ; randomize = none
            features = [ width = 4 ; height = 4 ; channels = 3 ; cropType = Center ; sideRatio = 0.5
                         jitterType = UniRatio ; interpolations = linear ]
            labels = [ labelDim = 2 ] ]
        other = { reader = { randomize = false ; deserializers = ({
            type = "ImageDeserializer" ; module = "ImageReader" ; file = "$Map$"
            input = {
                features = { transforms = (
                    { type = "Crop" ; cropType = "Center" ; sideRatio = 0.5 } :
                    { type = "Scale" ; width = 4 ; height = 4 ; channels = 3 ; interpolations = "linear" } :
                    { type = "Transpose" }) }
                labels = { labelDim = 2 }
            } }) } }
    """)
    root = load([f"configFile={tmp_path}/a.cntk", f"Map={tmp_path}/map.txt"])
    old, new = minibatch(root, 3), minibatch(root.block("other"), 3)
    values = old["features"].asarray()
    assert values.reshape(3, -1).mean(1).tolist() == [0, 40, 80] and values.shape[-3:] == (3, 4, 4)
    np.testing.assert_array_equal(values, new["features"].asarray())
    assert np.squeeze(old["labels"].asarray()).tolist() == [[1, 0], [0, 1], [1, 0]]


def test_image_reader_flips_and_changes_colors(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5).save(tmp_path / "0.png")
    (tmp_path / "map.txt").write_text(f"{tmp_path}/0.png\t0\n" * 20)
    (tmp_path / "a.cntk").write_text("""
        reader = [ readerType = ImageReader ; file = "$Map$" ; randomize = none
            features = [ width = 4 ; height = 4 ; channels = 3 ] ; labels = [ labelDim = 2 ] ]
    """)

    def images(more):
        root = load([f"configFile={tmp_path}/a.cntk", f"Map={tmp_path}/map.txt", f"reader=[features=[{more}]]"])
        return minibatch(root, 20)["features"].asarray().reshape(20, 3, 4, 4)

    original = images("cropType = Center")[0]
    flips = images("cropType = Center ; hflip = true")
    mirrored = [np.array_equal(image, original[:, :, ::-1]) for image in flips]
    assert 0 < sum(mirrored) < 20
    assert all(np.array_equal(image, original) for image in flips[~np.array(mirrored)])
    assert (images("cropType = RandomSide ; hflip = false") == original).all()
    assert not (images("cropType = Random ; sideRatio = 0.9:0.5") == original).all()  # ranges may descend
    assert len({image.mean() for image in images("brightnessRadius = 0.3")}) > 10
    (tmp_path / "axes.xml").write_text("<o><EigVal><data>1 0 0</data></EigVal><EigVec><data>0 0 1 0 1 0 1 0 0</data>"
                                       "</EigVec></o>")
    jittered = images(f'cropType = Center ; intensityFile = "{tmp_path}/axes.xml" ; intensityStdDev = 1')
    np.testing.assert_allclose((jittered - original)[0][0, 1:], -0.67815, atol=1e-4)  # CNTK's first number
    assert np.array_equal(jittered[0][1:], original[1:])
    assert (images(f'cropType = Center ; intensityFile = "{tmp_path}/axes.xml"') == original).all()


def test_images_within_a_list_may_have_names(tmp_path):
    """As in CNTK's test Base64Write, whose rows begin with good1, bad1 and so on."""
    Image = pytest.importorskip("PIL.Image")
    rows = []
    for i, name in enumerate(("good1", "bad", "good2")):
        Image.fromarray(np.full((4, 4, 3), 40 * i, np.uint8)).save(file := io.BytesIO(), "png")
        rows.append(f"{name}\t{i % 2}\t{base64.b64encode(file.getvalue()).decode()}\n")
    (tmp_path / "list.txt").write_text("".join(rows))
    (tmp_path / "a.cntk").write_text("""
        reader = { randomize = false ; useNumericSequenceKeys = false ; deserializers = ({
            type = "Base64ImageDeserializer" ; module = "ImageReader" ; file = "$Map$"
            input = {
                features = { transforms = (
                    { type = "Scale" ; width = 4 ; height = 4 ; channels = 3 } : { type = "Transpose" }) }
                labels = { labelDim = 2 }
            } }) }
    """)
    arguments = [f"configFile={tmp_path}/a.cntk", f"Map={tmp_path}/list.txt"]
    data = minibatch(load(arguments), 3)
    assert data["features"].asarray().reshape(3, -1).mean(1).tolist() == [0, 40, 80]
    assert np.squeeze(data["labels"].asarray()).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert open_reader(load(arguments).required_block("reader"), shuffled=False).keys() == ["good1", "bad", "good2"]
    with pytest.raises(RuntimeError, match="cannot parse the sequence id 'good1'"):
        minibatch(load([*arguments, "reader=[useNumericSequenceKeys=true]"]), 3)
