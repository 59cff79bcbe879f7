import pytest

from cntkjax.io import ImageDeserializer, StreamDef, StreamDefs, transforms
from cntkjax.io._config import MinibatchSourceConfig, to_dictionary

IMAGES = ImageDeserializer("map.txt", StreamDefs(f=StreamDef("image", transforms=[transforms.mean("m.xml")])))


def test_settings_have_the_names_of_cntk():
    config = MinibatchSourceConfig([{"type": "CNTKTextFormatDeserializer"}])
    config.truncation_length = 7
    assert to_dictionary(config) == {
        "deserializers": [{"type": "CNTKTextFormatDeserializer"}],
        "traceLevel": 1,
        "frameMode": False,
        "multiThreadedDeserialization": False,
        "randomize": True,
        "randomizationWindow": 128,
        "sampleBasedRandomizationWindow": False,
        "randomizationSeed": 0,
        "truncated": True,
        "truncationLength": 7,
    }


def test_images_are_decoded_by_several_threads_by_default():
    config = MinibatchSourceConfig([IMAGES], randomize=False)
    assert to_dictionary(config)["multiThreadedDeserialization"] is True
    config.is_multithreaded.set(False)
    assert (config.is_multithreaded.is_initialized(), config.is_multithreaded.get()) == (True, False)
    assert to_dictionary(config)["multiThreadedDeserialization"] is False
    config.is_multithreaded.reset()
    assert not config.is_multithreaded.is_initialized()


def test_descriptions_of_images():
    assert IMAGES["input"] == {"f": {"transforms": [{"type": "Mean", "meanFile": "m.xml"}, {"type": "Transpose"}]}}
    with pytest.raises(ValueError, match="stream 'l' has the field 'lab'"):
        ImageDeserializer("map.txt", StreamDefs(f=StreamDef("image", transforms=[]), l=StreamDef("lab", 3)))
    with pytest.raises(ValueError, match="needs a stream with the field 'image'"):
        ImageDeserializer("map.txt", StreamDefs(l=StreamDef("label", 3)))



@pytest.mark.parametrize("options, text", [
    ({}, ("0:0", "0:0", "0:0", "1:1")),
    ({"crop_size": (3, 4), "side_ratio": (0.2, 0.5)}, ("3:4", "0.2:0.5", "0:0", "1:1")),
    ({"crop_size": 3, "area_ratio": 0.5, "aspect_ratio": (0.3, 1)}, ("3:3", "0:0", "0.5:0.5", "0.3:1")),
])
def test_descriptions_of_crops(options, text):
    description = transforms.crop(**options)
    keys = ("cropSize", "sideRatio", "areaRatio", "aspectRatio")
    assert tuple(description[key] for key in keys) == text


@pytest.mark.parametrize("ratio", [(0.1, 0.2, 0.3), (0.5, 0.2)])
def test_a_range_is_two_ascending_numbers(ratio):
    with pytest.raises(ValueError, match="two numbers, the smaller one first"):
        transforms.crop(side_ratio=ratio)
