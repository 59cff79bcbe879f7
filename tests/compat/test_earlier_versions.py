"""Errors for modules and names of earlier versions say what CNTK 2.7 has in their place."""
import importlib

import pytest

import cntk as C
from cntkjax.compat import earlier_versions


@pytest.mark.parametrize("statement, message", [
    ("import cntk.learner", r"No module named 'cntk.learner': CNTK 2.7 has cntk.learners"),
    ("from cntk import blocks", r"No module named 'cntk.blocks': CNTK 2.7 has cntk.layers"),
    ("from cntk.utils import get_train_loss", "previous_minibatch_loss_average"),
    ("from cntk.ops import placeholder_variable", "name 'placeholder_variable': CNTK 2.7 has cntk.placeholder"),
    ("from cntk import set_default_device", "cntk.try_set_default_device"),
])
def test_imports(statement, message):
    with pytest.raises(ImportError, match=message):
        exec(statement, {})


def test_attributes():
    with pytest.raises(AttributeError, match="'cntkjax.ops' has no attribute 'past_value': CNTK 2.7 has cntk.sequence"):
        _ = C.ops.past_value
    with pytest.raises(AttributeError, match="'cntkjax.device' has no .*: CNTK 2.7 has cntk.try_set_default_device"):
        _ = C.device.set_default_device
    with pytest.raises(AttributeError, match="CNTK 2.7 has cntk.learning_parameter_schedule_per_sample"):
        _ = C.learning_parameter_per_sample


def test_other_names_are_missing_as_in_any_module():
    assert not hasattr(C, "past_value")
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'$") as error:
        _ = C.layers.no_such_name
    assert error.value.obj is C.layers
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec("from cntk.layers import no_such_name", {})
    with pytest.raises(ModuleNotFoundError, match="No module named 'cntk.no_such_module'"):
        importlib.import_module("cntk.no_such_module")


def test_only_names_that_are_missing_are_explained():
    assert not any(hasattr(C, name) for name in earlier_versions._NAMES)
