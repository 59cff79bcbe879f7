"""Custom attributes of functions."""

import numpy as np
import pytest

import cntkjax as C


def test_files_and_clones_keep_custom_attributes(tmp_path):
    f = C.relu(C.input_variable(2), name="f")
    array = np.arange(3, dtype=np.int8)
    attributes = {"a": 1, "b": "text", "c": 1.5, "d": True, "l": [1, [2]], "n": array, "m": {"k": 2}}
    f.custom_attributes = attributes
    f.custom_attributes["later"] = 3
    model = f + 1
    model.save(str(tmp_path / "f"))
    for copy in (model.clone("clone"), C.load_model(str(tmp_path / "f"))):
        loaded = copy.find_by_name("f").custom_attributes
        np.testing.assert_array_equal(loaded.pop("n"), attributes["n"])
        assert loaded == {k: v for k, v in attributes.items() if k != "n"} | {"later": 3}
        assert copy.eval([[1, -1]]).tolist() == [[2, 1]]
        loaded["a"] = 5
    assert f.custom_attributes["a"] == 1


def test_custom_attributes_are_a_dictionary_that_can_be_reset():
    f = C.relu(C.input_variable(2))
    assert f.custom_attributes == {}
    with pytest.raises(TypeError, match="must be a dictionary"):
        f.custom_attributes = 3
    f.custom_attributes = {"a": 1}
    f.reset_custom_attributes()
    assert f.custom_attributes == {}


def test_attributes_of_an_operation_include_custom_ones_and_composites_have_none():
    f = C.dropout(C.input_variable(2), 0.5, seed=3)
    assert f.attributes == {}
    assert f.root_function.attributes == {"dropoutRate": 0.5, "rngSeed": 3, "rngOffset": 0}
    f.custom_attributes = {"a": 1}
    assert f.root_function.attributes["customAttributes"] == {"a": 1} and f.attributes == {}
    f.reset_custom_attributes()
    assert f.root_function.attributes["customAttributes"] == {}
