"""What tests and the examples in docstrings begin with."""

import gc

import pytest

from cntkjax.graph.settings import Settings


def pytest_collection_finish(session):
    """Leave the hundreds of thousands of objects of the collected tests out of every garbage collection from here."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_settings():
    """A test begins with the settings of a new process, whatever ran before it."""
    settings = {name: value for name, value in vars(Settings).items() if not name.startswith("__")}
    yield
    for name, value in settings.items():
        setattr(Settings, name, value)
