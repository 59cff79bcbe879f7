"""Pages in a real browser: `make test-browser`. Skipped where Playwright or Chromium is not installed."""

import pytest
from cntk.layers import LSTM, Dense, Embedding, Recurrence, Sequential

import cntk as C
from cntkjax.viewer import View, compare, page

HOSTILE = """</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><b>'"""


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page; at the end there must have been no error and no request but for the page itself."""
    problems = []

    def show(model_or_view, width=1200, height=800):
        view = model_or_view if isinstance(model_or_view, View) else C.logging.view(model_or_view)
        view.save(tmp_path / "page.html")
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda request: request.url.endswith("/page.html") or problems.append(request.url))
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    yield show
    assert problems == []


def tagger():
    words = C.sequence.input_variable(50, is_sparse=True, name="words")
    return Sequential([Embedding(8, name="embed"), Recurrence(LSTM(6)), Dense(3, name="tags")])(words)


def labels(tab):
    return tab.locator(".node .op").all_text_contents()


def test_blocks_unfold_and_fold(show):
    tab = show(tagger())
    assert "Dense" in labels(tab) and "StableSigmoid" not in labels(tab)
    tab.locator(".node.block", has_text="LSTM").dblclick()
    assert labels(tab).count("StableSigmoid") == 3 and "LSTM" not in labels(tab)
    tab.click("#fold")
    assert "StableSigmoid" not in labels(tab)
    tab.click("#unfold")
    assert tab.locator(".node.block").count() == 0


def test_search_finds_a_parameter_inside_a_folded_block(show):
    tab = show(tagger())
    tab.fill("#query", "stablesig")
    tab.locator("#matches button").first.click()
    assert tab.locator(".node.selected .op").text_content() == "StableSigmoid"
    tab.fill("#query", "no such thing")
    assert tab.locator("#matches").text_content() == "nothing matches"


def test_a_node_shows_its_attributes_parameters_and_histogram(show):
    tab = show(C.times(C.dropout(C.input_variable(3), 0.25), C.parameter((3, 2), init=C.glorot_uniform(), name="W")))
    tab.locator(".node", has_text="Times").click()
    panel = tab.locator("#panel").text_content()
    assert "W" in panel and "[3 x 2] float32" in panel and "first values" in panel
    assert tab.locator(".histogram rect").count() > 5
    tab.locator(".node", has_text="Dropout").click()
    assert "0.25" in tab.locator("#panel").text_content()


def test_the_keyboard_is_enough(show):
    tab = show(tagger())
    tab.locator(".node.block", has_text="Embedding").focus()
    tab.keyboard.press("Enter")
    assert "Embedding" in tab.locator("#panel h2").text_content()
    tab.keyboard.press("Enter")
    assert "Embedding" not in labels(tab)


def test_nothing_in_a_file_is_executed(show):
    x = C.input_variable(3, name=HOSTILE)
    model = C.alias(Dense(2, name=HOSTILE)(x) + C.parameter((2,), name=HOSTILE), name=HOSTILE)
    tab = show(model)
    tab.fill("#query", "script")
    for node in tab.locator(".node").all():
        node.click(force=True)
    tab.click("#unfold")
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("#panel img, #panel b, #graph img").count() == 0


def test_thousands_of_operations_are_laid_out(show):
    f = x = C.input_variable(4)
    for i in range(2000):
        f = C.tanh(f) if i % 2 else f + x
    tab = show(f)
    assert tab.locator(".node").count() == 2002
    tab.wait_for_function("document.querySelectorAll('.node:not([display])').length < 100")  # only these are drawn


def test_what_comes_into_view_of_a_large_graph_is_drawn(show):
    f = x = C.input_variable(4)
    for i in range(800):
        f = C.alias(f + x, name=f"step {i}")
    tab = show(f)
    last = tab.get_by_label("NoOp step 799")
    last.wait_for(state="hidden")
    tab.fill("#query", "step 799")
    tab.locator("#matches button").first.click()
    last.wait_for(state="visible")
    assert tab.locator(".node.selected").bounding_box()["y"] > 0


def test_differences_are_marked(show):
    x = C.input_variable(3)
    differences = compare(C.tanh(x * 2), C.sigmoid(C.tanh(x * 3)))
    tab = show(View(page(differences.document("a and b"))))
    assert tab.locator(".node.added .op").all_text_contents() == ["StableSigmoid"]
    tab.locator(".node.changed").click()
    assert "largest deviation 1" in tab.locator("#panel").text_content()


def test_the_page_fits_a_phone(show):
    tab = show(tagger(), width=360, height=640)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.locator("#graph").bounding_box()["height"] > 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(show, scheme):
    """Contrast, labels and headings, as axe-core sees them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    tab = show(tagger())
    tab.emulate_media(color_scheme=scheme)
    tab.locator(".node", has_text="Dense").first.click()
    violations = axe.Axe().run(tab).response["violations"]
    assert [(v["id"], node["html"][:100]) for v in violations for node in v["nodes"]] == []


def residual_network():
    """As deep as ResNet-50, with narrow layers."""

    def convolution(x, size, count):
        h = C.layers.Convolution2D((size, size), count, pad=True, bias=False, activation=None)(x)
        return C.relu(C.layers.BatchNormalization(map_rank=1)(h))

    h = C.input_variable((4, 8, 8), name="image")
    for i in range(16):
        p = C.placeholder(name="x")
        inner = convolution(convolution(convolution(p, 1, 2), 3, 2), 1, 4) + p
        h = C.as_block(C.relu(inner), [(p, h)], "Bottleneck", f"block{i}")
    return Dense(10, name="prob")(h)


def attention():
    x, y = C.sequence.input_variable(3, name="x"), C.sequence.input_variable(4, name="y")
    return C.layers.AttentionModel(5, name="attend")(x, y)


@pytest.mark.parametrize("network", [residual_network, attention])
def test_deep_networks_unfold(show, network):
    tab = show(network())
    folded = tab.locator(".node").count()
    tab.click("#unfold")
    assert tab.locator(".node").count() > folded and tab.locator(".node.block").count() == 0


def test_buttons_and_fields_have_names(show):
    tab = show(tagger())
    unnamed = "e => !(e.textContent.trim() || e.getAttribute('aria-label'))"
    assert tab.evaluate(f"[...document.querySelectorAll('button, input, [role=button]')].filter({unnamed}).length") == 0
    assert tab.locator("h1").count() == 1 and tab.get_attribute("html", "lang") == "en"
