"""Sphinx's configuration of the documentation; `make docs` builds it (build.py)."""

import os

project, author = "cntkjax", "the cntkjax contributors"
copyright = author
version = release = os.environ["CNTKJAX_DOCS_VERSION"]
extensions = ["myst_nb", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"cntkjax {version}"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_sidebars = {"**": [
    "sidebar/brand.html", "versions.html", "sidebar/search.html", "sidebar/scroll-start.html",
    "sidebar/navigation.html", "sidebar/scroll-end.html",
]}
templates_path = ["_templates"]
html_show_sphinx = False
html_show_search_summary = False  # would fetch pages, which a browser refuses without a server
html_copy_source = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
# Figures of another machine, and links to repository files that are no pages, are text only.
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

nb_execution_mode = os.environ.get("CNTKJAX_DOCS_EXECUTE", "cache")
if nb_execution_mode == "off":
    suppress_warnings.append("myst-nb.lexer")  # a notebook's language is known when its kernel has run
nb_execution_cache_path = os.environ.get("CNTKJAX_DOCS_CACHE", "")
nb_execution_timeout = 120  # seconds for a cell; a whole tutorial should not take longer
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_text_lexer = "none"
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
