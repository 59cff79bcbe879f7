"""The code on the pages of docs/ runs, from top to bottom of each page."""

import re
from pathlib import Path

import pytest

from cntkjax import debugging
from cntkjax.device import _Choice
from cntkjax.graph.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["axes", "debugging", "interop", "learning_rates", "onnx", "own_code", "sgd_block"])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    if page == "interop":
        pytest.importorskip("flax", reason="flax is an extra")
    if page == "onnx":
        pytest.importorskip("onnxruntime", reason="onnxruntime is a package of the tests")
    monkeypatch.chdir(tmp_path)
    for place, name in ((_Choice, "default"), (Settings, "checked"), (Settings, "timed")):
        monkeypatch.setattr(place, name, getattr(place, name))
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) > 3
    lines = [text[: text.index(block)].count("\n") for block in blocks]
    names = {}
    try:
        for line, block in zip(lines, blocks, strict=True):
            exec(compile("\n" * line + block, f"{page}.md", "exec"), names)
    finally:
        debugging.stop_profiler()
