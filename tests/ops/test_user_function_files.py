"""User functions in files: they are recreated, and no code of other modules runs."""

import sys

import numpy as np
import pytest

import cntkjax as C
from cntkjax.ops.functions import Function
from tests.ops.user_functions import Scaled


def test_clones_and_files_recreate_it(tmp_path):
    x = C.input_variable(2)
    f = C.user_function(Scaled(x, C.parameter((2,), init=1), scale=3.0)) + 1
    copy = f.clone("clone")
    assert [v.shape for v in copy.arguments] == [(2,)] and copy.find_by_name("scaled").scale == 2
    f.save(str(tmp_path / "f"))
    loaded = Function.load(str(tmp_path / "f"))
    assert loaded.find_by_name("scaled").op_name == "UserFunction" and loaded.find_by_name("scaled").scale == 3
    np.testing.assert_array_equal(loaded.eval([[1, 2]]), [[5, 8]])


def test_a_file_runs_no_code_of_modules_that_are_not_imported(tmp_path, monkeypatch):
    f = C.user_function(Scaled(C.input_variable(2)))
    monkeypatch.setattr(Scaled, "__module__", "elsewhere")
    f.save(str(tmp_path / "f"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "elsewhere.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="'elsewhere.Scaled', which is not known"):
        Function.load(str(tmp_path / "f"))
    callbacks = {"elsewhere.Scaled": lambda inputs, name, state: Scaled(*inputs, scale=5)}  # for this file alone
    loaded = Function.load(str(tmp_path / "f"), udf_factory_callback_map=callbacks)
    assert loaded.eval([[1, 2]]).tolist() == [[5, 10]]
    with pytest.raises(ValueError, match="'elsewhere.Scaled', which is not known"):
        Function.load(str(tmp_path / "f"))
    Function.register_udf_deserialize_callback("elsewhere.Scaled", lambda inputs, name, state: Scaled(*inputs, **state))
    assert Function.load(str(tmp_path / "f")).eval([[1, 2]]).tolist() == [[2, 4]]
    with pytest.raises(ValueError, match="there is a callback for"):
        Function.register_udf_deserialize_callback("elsewhere.Scaled", print)
