"""Reader blocks of images."""

import numpy as np
import pytest

from cntkjax.brainscript.configuration import load
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
