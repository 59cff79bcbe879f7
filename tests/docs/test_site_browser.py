"""The documentation site in a real browser: `make test-browser`. Skipped where its packages or Chromium are missing."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright, for tests in a browser").expect
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
if importlib.util.find_spec("myst_nb") is None:
    pytest.skip("needs the packages of '.[docs]'", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "layers.html", "reference/cntk.ops.html", "tutorials/1_first_steps.html", "compatibility.html")


@pytest.fixture(scope="module")
def site():
    """The site as `make docs` has built it; otherwise built here, without running code."""
    built = sorted((ROOT / "build" / "docs").glob("*/index.html"))
    if not built:
        subprocess.run([sys.executable, ROOT / "docs" / "site" / "build.py", "--execute", "off"], check=True)
        built = sorted((ROOT / "build" / "docs").glob("*/index.html"))
    return built[-1].parent


@pytest.fixture
def show(browser, site):
    """Opens a page; in the end there must have been no error and no request for anything but files of the site."""
    problems = []

    def show(page, width=1200, scheme="light", site=site):
        tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda request: problems.append(request.url) if "http" in request.url[:5] else None)
        tab.on("requestfailed", lambda request: problems.append(request.url))
        tab.goto(f"{site.as_uri()}/{page}")
        return tab

    yield show
    assert problems == []


def test_search_finds_an_operation_without_a_server(show):
    tab = show("search.html?q=past_value")
    tab.wait_for_selector("ul.search li a")
    links = tab.locator("ul.search li a").all_text_contents()
    assert any("past_value" in text for text in links)


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(show, site, page):
    tab = show(page)
    links = tab.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)")
    local = {link for link in links if link.startswith("file:")}
    assert len(local) > 10
    for link in local:
        path, _, anchor = link.removeprefix("file://").partition("#")
        assert Path(path).exists(), link
        if anchor and Path(path).name == Path(page).name:
            assert tab.evaluate("id => document.getElementById(decodeURIComponent(id)) !== null", anchor), link


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(show, page, scheme):
    """Headings, labels and contrast, as axe-core sees them."""
    rules = ["color-contrast", "heading-order", "label", "image-alt", "link-name", "button-name", "html-has-lang"]
    violations = axe.Axe().run(show(page, scheme=scheme), options={"runOnly": rules}).response["violations"]
    assert [(v["id"], node["html"][:100]) for v in violations for node in v["nodes"]] == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_a_phone(show, page):
    tab = show(page, width=360)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture(scope="module")
def two_versions(site, site_module, tmp_path_factory):
    """The site as two versions side by side; the older one has no page about ONNX."""
    folder = tmp_path_factory.mktemp("versions")
    for name in ("0.1.0", "dev"):
        shutil.copytree(site, folder / name)
    (folder / "0.1.0" / "onnx.html").unlink()
    site_module("versions").write_list(folder)
    return folder


@pytest.mark.parametrize(("page", "expected"), [("reference/cntk.ops.html",) * 2, ("onnx.html", "index.html")])
def test_the_menu_of_versions_leads_to_the_same_page_if_that_exists(show, two_versions, page, expected):
    tab = show(page, site=two_versions / "dev")
    menu = tab.get_by_label("Version")
    assert menu.locator("option").all_text_contents() == ["dev", "0.1.0"] and menu.input_value() == "dev"
    menu.select_option("0.1.0")
    tab.wait_for_url(f"**/0.1.0/{expected}")
    assert tab.get_by_label("Version").input_value() == "0.1.0"
    tab.go_back()
    assert tab.get_by_label("Version").input_value() == "dev"


def test_the_development_version_names_the_newest_release_and_the_entrance_leads_there(show, two_versions):
    show("layers.html", site=two_versions / "dev").get_by_role("link", name="newest release").click()
    tab = show("index.html", site=two_versions)
    tab.wait_for_url("**/0.1.0/index.html")
    assert not tab.get_by_role("link", name="newest release").is_visible()


def test_the_menu_of_versions_is_in_the_drawer_of_a_phone(show, two_versions):
    tab = show("index.html", width=360, site=two_versions / "0.1.0")
    expect(tab.get_by_label("Version")).not_to_be_in_viewport()
    tab.locator("label.nav-overlay-icon").click()
    expect(tab.get_by_label("Version")).to_be_in_viewport()
