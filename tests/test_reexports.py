"""Names where scripts expect them, and the samples' installer."""

import functools
import http.server
import importlib
import io
import threading
import zipfile

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
def test_incidental_names_are_those_of_their_homes(name, same):
    def found(path):
        return functools.reduce(getattr, path.split("."), C)

    assert found(name) is found(same)


def test_the_drop_in_name_has_them_too():
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
