"""The programs that build the site, which are no package."""

import importlib.util
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "site"


@pytest.fixture(scope="session")
def site_module():
    """Loads a module of docs/site by its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def reference_module(site_module):
    """What writes the reference."""
    return site_module("reference")
