"""The level of detail, as a TraceLevel or its number."""
import pytest

from cntkjax.logging import TraceLevel, get_trace_level, set_trace_level


@pytest.fixture(autouse=True)
def _restore():
    level = get_trace_level()
    yield
    set_trace_level(level)


def test_warnings_are_the_default():
    assert get_trace_level() == TraceLevel.Warning == 1


@pytest.mark.parametrize("level", [TraceLevel.Info, 0, 5])
def test_a_level_can_be_set(level):
    set_trace_level(level)
    assert get_trace_level() == level


def test_other_levels_are_refused():
    with pytest.raises(TypeError, match="needs a TraceLevel"):
        set_trace_level("verbose")
