"""The documentation site: every public name is in the reference; a dead link ends the build."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
API = ROOT / "tests" / "api.json"


@pytest.fixture(scope="module")
def reference(tmp_path_factory, reference_module):
    folder = tmp_path_factory.mktemp("reference")
    reference_module.write(folder, ROOT / "docs" / "compatibility.md")
    return {path.stem: path.read_text() for path in folder.glob("*.rst")}


def test_functions_have_signature_docstring_example_and_cntks_difference(reference):
    page = reference["cntk.ops"]
    top_k = page[page.index(".. py:function:: top_k(") :].split(".. py:function::")[1]
    assert top_k.startswith(" top_k(x, k, axis=-1, name='')")
    assert ":Shapes:" in top_k and ">>> " in top_k and "In CNTK 2.7" in top_k


def test_an_object_is_described_once_and_linked_elsewhere(reference):
    assert sum(page.count(".. py:function:: plus(") for page in reference.values()) == 1
    assert "* ``plus``: :py:obj:`cntk.ops.plus`" in reference["cntk"]


def test_every_public_name_of_cntk_is_in_the_reference(reference):
    described = "\n".join(reference.values())
    missing = []
    for module, names in json.loads(API.read_text()).items():
        for name, entry in names.items():
            if entry.get("kind") == "module" or not (entry.get("home") or "").startswith("cntk"):
                continue
            if not re.search(rf":: {name}\b|``{name}``", reference[module]):
                missing.append(f"{module}.{name}")
            members = (m for m in entry.get("members", {}) if not m.startswith("_"))
            missing += [f"{name}.{m}" for m in members if not re.search(rf":: {m}\b|``{m}``", described)]
    assert missing == []


def test_links_lead_to_pages_and_dead_ones_are_errors(site_module):
    build = site_module("build")
    page_of = build.pages()
    axes = ROOT / "docs" / "axes.md"
    text = "[a](layers.md#dense) [b](../examples/digits.py) [c](../src/cntkjax/axis.py) [d](https://x.org)"
    assert build.linked(text, axes, page_of) == "[a](layers.md#dense) [b](examples/digits.md) c [d](https://x.org)"
    assert build.linked("[a](docs/axes.md)", ROOT / "README.md", page_of) == "[a](../axes.md)"
    with pytest.raises(ValueError, match=r"there is no nowhere.md"):
        build.linked("[a](nowhere.md)", axes, page_of)


def test_all_links_of_the_pages_lead_somewhere(site_module):
    build = site_module("build")
    page_of = build.pages()
    for file in page_of:
        if file.suffix == ".md":
            build.linked(file.read_text(), file, page_of)


def test_every_page_is_in_the_navigation(site_module):
    listed = (ROOT / "docs" / "site" / "index.md").read_text().splitlines()
    page_of = site_module("build").pages()
    pages = [str(page.with_suffix("")) for file, page in page_of.items() if file.parent == ROOT / "docs"]
    assert [page for page in pages if page not in listed] == []
