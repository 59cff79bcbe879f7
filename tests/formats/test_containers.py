"""`Dictionary` and `DictionaryValue` (sizes of files recorded from CNTK 2.7)."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.compat.cntk_py import Dictionary, DictionaryValue
from cntkjax.formats.containers import unwrap_values


@pytest.mark.parametrize("value", [True, 3, 2.5, "x", [1, "a"], {"a": {"b": 1}}, None])
def test_a_value_round_trips_through_a_file(tmp_path, value):
    path = tmp_path / "value"
    wrapped = C._to_cntk_dict_value(value)
    wrapped.save(path)
    assert DictionaryValue.load(path) == wrapped and DictionaryValue.load(path).value == value
    assert C._to_cntk_dict_value(wrapped) is wrapped


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_small_integers_survive_a_file(tmp_path, dtype):
    data = np.arange(64, dtype=dtype).reshape(16, 4)
    path = tmp_path / "value"
    C._to_cntk_dict_value(data).save(path)
    assert path.stat().st_size == 82
    f = C.input_variable(2) * 2
    f.custom_attributes = {"data": C._to_cntk_dict_value(data), "list": [DictionaryValue(3)]}
    f.save(str(tmp_path / "model"))
    attributes = C.load_model(str(tmp_path / "model")).custom_attributes
    assert attributes["data"].dtype == dtype and (attributes["data"] == data).all() and attributes["list"] == [3]


def test_dictionaries_survive_a_file(tmp_path):
    dictionary = Dictionary(a=1)
    dictionary.add({"b": [2.5, "x"]})
    dictionary.save(tmp_path / "dictionary")
    loaded = Dictionary.load(tmp_path / "dictionary")
    assert loaded == dictionary == {"a": 1, "b": [2.5, "x"]} and loaded.size() == 2 and loaded.contains("b")


def test_unsupported_values():
    with pytest.raises(TypeError, match="of type object"):
        DictionaryValue(object())
    with pytest.raises(TypeError, match="a has no type|a is of type"):
        Dictionary(a=object()).save("never written")
    assert unwrap_values([DictionaryValue({"a": DictionaryValue(1)})]) == [{"a": 1}]


def test_types_of_values():
    """The numbers and names are CNTK's."""
    samples = [None, True, 3, 2.5, "a", [1], {"a": 1}, np.ones(2, np.float32)]
    values = [DictionaryValue(sample) for sample in samples]
    assert [value.value_type() for value in values] == [0, 1, 2, 5, 6, 9, 10, 11]
    assert [DictionaryValue.type_name(value.value_type()) for value in values] == [
        "None", "Bool", "Int", "Double", "String", "Vector", "Dictionary", "NDArrayView",
    ]
    assert [value.has_value() for value in values] == [False, *[True] * 7]
    with pytest.raises(RuntimeError, match="no type 13"):
        DictionaryValue.type_name(13)
