"""Names where scripts expect them, and the samples' installer."""

import functools
import http.server
import importlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

import cntkjax as C


@pytest.mark.parametrize("name, same", [
    ("C", "C"), ("layers.C", "C"), ("io.cntk", "C"), ("ops.functions.Value", "Value"),
    ("variables.NDArrayView", "NDArrayView"), ("logging.Variable", "Variable"), ("logging.graph.Variable", "Variable"),
    ("ops.INFINITELY_REPEAT", "io.INFINITELY_REPEAT"), ("core.user_function", "user_function"),
    ("evaluator", "eval.evaluator"), ("ops.functions.native_user_function", "ops.native_user_function"),
    ("typemap", "internal.swig_helper.typemap"), ("learners.typemap", "typemap"), ("np", "internal.sanitize.np"),
    ("ops.sanitize_axis", "internal.sanitize.sanitize_axis"), ("utils", "internal.utils"), ("io.cntk_py", "cntk_py"),
])
def test_reexported_names_are_the_original_objects(name, same):
    def attribute(path):
        return functools.reduce(getattr, path.split("."), C)

    assert attribute(name) is attribute(same)


# What `from module import *` brings in CNTK 2.7, by module.
STAR_IMPORTS = json.loads((Path(__file__).parent / "compat/star_imports.json").read_text())
WITHOUT = {
    "getargspec",  # not in Python any more
    "pip", "module_is_unreleased",  # CNTK's own installation
    "bounded_cache", "map_function_arguments", "sanitize_Function_attributes", "sanitize_var_map",
    "sanitize_variable_value_dict", "AVAILABLE_TENSOR_OPS", "DictionaryValueFromDict",
    "DictionaryValueFromNDArrayView",  # helpers of its wrapper
}


@pytest.mark.parametrize("module", STAR_IMPORTS)
def test_star_imports_bring_what_the_modules_import(module):
    names: dict[str, object] = {}
    exec(f"from {f'cntk.{module}' if module != '.' else 'cntk'} import *", names)
    without = WITHOUT | {"sparse"} if module in (".", "tensor") else WITHOUT  # there an attribute only: it loads SciPy
    assert set(STAR_IMPORTS[module].split()) - without <= set(names)
    hints = {name for name, value in names.items() if getattr(value, "__module__", "") in ("typing", "collections.abc")}
    assert hints <= set(STAR_IMPORTS[module].split())  # such as Sequence, which is a type of the layers too


def test_the_compiled_module_brings_its_classes_and_functions_too():
    names: dict[str, object] = {}
    exec("from cntk.cntk_py import *", names)
    assert {"Axis", "Function", "Trainer", "Value", "Variable", "sgd_learner", "times"} <= set(names)


def test_scipy_is_loaded_at_first_use():
    script = "import sys, cntk; assert 'scipy.sparse' not in sys.modules; cntk.sparse.csr_matrix, cntk.core.sparse"
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        C.nothing  # noqa: B018


def test_the_drop_in_package_reexports_them_too():
    assert importlib.import_module("cntk.ops.functions").Value is C.Value
    assert importlib.import_module("cntk.cntk_py_init").__doc__


@pytest.fixture
def archive_url():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("Examples/a.py", "x = 1")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data.getvalue())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/samples.zip"
        server.shutdown()


def test_samples_are_unpacked_into_an_empty_folder_only(tmp_path, archive_url, capsys):
    C.install_samples(archive_url, tmp_path / "samples")
    assert (tmp_path / "samples/Examples/a.py").read_text() == "x = 1"
    assert "samples.zip" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is there already"):
        C.install_samples(archive_url, tmp_path / "samples", quiet=True)
