"""Pages: one file with everything in it, whatever names a model has. How they look and act: test_browser.py."""

import json
import re

import cntk as C
from cntkjax.viewer import View

HOSTILE = """</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">' & --> <!--"""


def test_a_page_holds_the_document_whatever_the_names():
    html = C.logging.view(C.alias(C.tanh(C.input_variable(2, name=HOSTILE)), name=HOSTILE)).html
    data = re.search(r'<script type="application/json" id="model">(.*?)</script>', html, re.S).group(1)
    content = json.loads(data)
    assert HOSTILE in {node["name"] for node in content["nodes"]}
    assert "<" not in data and "window.hacked = 1</script>" not in html


def test_a_page_needs_no_network_and_allows_none():
    html = C.logging.view(C.tanh(C.input_variable(2))).html
    assert "default-src 'none'" in html
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?\w+:""", re.sub(r"<script.*?</script>", "", html, flags=re.S))


def test_a_page_is_written_to_a_file_and_shown_in_a_notebook(tmp_path):
    shown = C.logging.view(C.tanh(C.input_variable(2)), tmp_path / "page.html")
    assert isinstance(shown, View) and (tmp_path / "page.html").read_text() == shown.html
    frame = shown._repr_html_()
    assert 'sandbox="allow-scripts"' in frame and frame.count('"') == 8  # the page is escaped inside its attribute
