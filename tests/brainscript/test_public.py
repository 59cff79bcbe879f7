"""Public configurations, where a copy of them is there: all are read, and the smallest gives the recorded numbers."""

import pytest

from . import run_public

pytestmark = pytest.mark.skipif(not run_public.is_available(), reason=f"no public tree in {run_public.PUBLIC}")


def test_every_configuration_is_read():
    assert run_public.parse_all() == []


def test_simple2d_gives_the_recorded_numbers():
    assert run_public.differences(run_public.CASES[0]) == []
