"""Graphs as records: what is kept, and what cannot be saved."""

import pytest

import cntkjax as C
from cntkjax.formats.dictionary import SizeT, StoredShape, decode, encode
from tests.formats.networks import dense, record_of


def test_an_untrained_parameter_of_unknown_shape_cannot_be_saved(tmp_path):
    f = C.times(C.placeholder(), C.parameter((C.InferredDimension, 3), init=C.glorot_uniform()))
    with pytest.raises(ValueError, match="inferred"):
        f.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_placeholders_are_kept(tmp_path):
    f = C.sin(C.placeholder(name="later"))
    f.save(tmp_path / "m")
    (later,) = C.load_model(tmp_path / "m").placeholders
    assert (later.name, later.shape, later.dynamic_axes) == ("later", (-2,), C.Axis.unknown_dynamic_axes())


def test_unknown_attributes_are_preserved(tmp_path):
    record = record_of(dense()[0], tmp_path)
    added = {"futureShape": StoredShape((2, 3)), "futureCount": SizeT(7), "futureText": "x"}
    record["primitive_functions"][0]["attributes"] |= added
    (tmp_path / "m").write_bytes(encode(record))
    C.load_model(tmp_path / "m").save(tmp_path / "again")
    assert decode((tmp_path / "again").read_bytes())["primitive_functions"][0]["attributes"].items() >= added.items()
