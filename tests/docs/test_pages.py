"""The code of the README and of pages of docs/ runs, from top to bottom of each page."""

import importlib.util
from pathlib import Path

import pytest

from cntkjax import debugging
from cntkjax.device import _Choice
from cntkjax.graph.settings import Settings

_spec = importlib.util.spec_from_file_location("executed", Path(__file__).parents[2] / "docs" / "site" / "executed.py")
executed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(executed)
NEEDED = {"interop": "flax", "onnx": "onnxruntime", "serving": "flatbuffers"}  # packages of the extra "test"
IN_A_PROCESS_OF_ITS_OWN = "keras"  # see tests/test_keras2.py


@pytest.mark.parametrize(
    "page", [page for page in executed.PAGES if page.stem != IN_A_PROCESS_OF_ITS_OWN], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    if package := NEEDED.get(page.stem):
        pytest.importorskip(package, reason=f"{package} is an extra")
    monkeypatch.chdir(tmp_path)
    for place, name in ((_Choice, "default"), (Settings, "checked"), (Settings, "timed")):
        monkeypatch.setattr(place, name, getattr(place, name))
    assert executed.blocks(page.read_text())
    try:
        executed.run(page, {})
    finally:
        debugging.stop_profiler()


def test_the_site_executes_the_pages_that_are_tested(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(executed.__file__).parent))
    import build

    build.assemble()
    notebooks = {page for page in build.pages() if "code-cell" in (build.SOURCE / build.pages()[page]).read_text()}
    assert notebooks == {*executed.PAGES, *executed.TUTORIALS}
