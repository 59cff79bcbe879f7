"""Fixtures that several test modules use."""

import shutil
import signal

import hypothesis
import pytest

from cntkjax.engine.data.packing import GridShape, pack_with_more_rows
from cntkjax.engine.data.shapes import MinibatchShape
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.run.shape_choice import Packing, ShapeChoice
from cntkjax.graph.seed import reset_random_seed

# A slow machine is no failure: examples have no time limit.
hypothesis.settings.register_profile("cntkjax", deadline=None)
hypothesis.settings.load_profile("cntkjax")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """A test draws the same numbers, whatever ran before it."""
    reset_random_seed()


@pytest.fixture(scope="session", autouse=True)
def sigint_is_not_ignored():
    """Shells let background jobs ignore the signal, and processes that tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def terminal_signals():
    """Ctrl-C raises KeyboardInterrupt, as in a terminal."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(params=["one sequence a row", "several sequences a row"])
def grid(request, monkeypatch):
    """Run a test with both kinds of grid, whatever the packer would choose."""
    simple = request.param == "one sequence a row"

    def choose(self, sizes, variables, agreed):
        (sizes,) = sizes  # of the only share
        size = max(sizes.number, 1)
        room, rows = (1, size) if simple else (2, 1)
        grids = [
            pack_with_more_rows(lengths, size, GridShape(int(lengths.max()) + room, rows, simple))
            for lengths in sizes.lengths.values()
        ]
        return [Packing(MinibatchShape(size, False, tuple(grid.shape for grid in grids), sizes.widths), grids)]

    monkeypatch.setattr(ShapeChoice, "choose", choose)
    programs.clear()
    yield
    programs.clear()


@pytest.fixture(scope="module")
def browser():
    """Chromium; skipped where Playwright or Chromium is not installed (`make test-browser`)."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright, for tests in a browser")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
