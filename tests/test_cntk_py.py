"""What scripts reach for in CNTK's compiled module."""
import numpy as np
import pytest

import cntkjax
from cntkjax import cntk_py, device, logging, variables
from cntkjax.graph.settings import Settings


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(Settings, "deterministic", False)
    yield
    cntk_py.reset_random_seed()


def test_numbers_are_those_of_cntk():
    assert (cntk_py.DataType_Float, cntk_py.DataType_Double, cntk_py.DataType_Float16) == (1, 2, 4)
    assert (cntk_py.DataUnit_Sweep, cntk_py.DataUnit_Minibatch, cntk_py.MaskKind_SequenceBegin) == (0, 2, 2)
    assert (cntk_py.VariableKind_Placeholder, cntk_py.ParameterCloningMethod_Freeze) == (4, 2)
    assert (cntk_py.PoolingType_Max, cntk_py.PoolingType_Average, cntk_py.DataType_Int16) == (0, 1, 6)
    assert cntk_py.sentinel_value_for_auto_select_random_seed == 18446744073709551613
    assert device.cpu().type() == cntk_py.DeviceKind_CPU != cntk_py.DeviceKind_GPU


def test_seeds():
    cntk_py.set_fixed_random_seed(5)
    assert (cntk_py.get_random_seed(), cntk_py.is_random_seed_fixed(), cntk_py.generate_random_seed()) == (5, True, 5)
    cntk_py.reset_random_seed(7)
    assert [cntk_py.generate_random_seed() for _ in range(2)] == [7, 8]


def test_deterministic_algorithms_can_be_forced():
    assert not cntk_py.should_force_deterministic_algorithms()
    cntk_py.force_deterministic_algorithms()
    assert cntk_py.should_force_deterministic_algorithms()


@pytest.mark.parametrize("name", ["always_allow_setting_default_device", "disable_forward_values_sharing",
                                  "enable_synchronous_gpukernel_execution"])
def test_switches_without_effect_say_why(name):
    switch = getattr(cntk_py, name)
    assert switch() is None
    assert "without effect: " in switch.__doc__


def test_functions_can_be_renamed_when_that_is_allowed(monkeypatch):
    monkeypatch.setattr(cntk_py.Settings, "renaming", False)
    f = cntkjax.plus(1, 2, name="first")
    with pytest.raises(ValueError, match="cannot be changed"):
        f.name = "second"
    cntk_py.allow_renaming_functions()
    f.name = "second"
    assert f.name == f.output.name == "second"


def test_a_wrapped_number_can_change():
    wrapped = cntk_py.SizeTWrapper(3)
    wrapped.value = 5
    assert wrapped == cntk_py.SizeTWrapper(5)


def test_a_parameter_is_made_with_the_arguments_of_the_compiled_module():
    parameter = cntk_py.Parameter((1, 2), cntk_py.DataType_Double, 5.0)
    assert type(parameter) is variables.Parameter
    assert parameter.dtype is np.float64
    assert parameter.value.tolist() == [[5.0, 5.0]]


def test_classes_are_those_of_their_modules():
    assert cntk_py.ProgressWriter is logging.ProgressWriter
    assert cntk_py.DeviceDescriptor is device.DeviceDescriptor


@pytest.mark.parametrize("name", sorted(cntk_py._HOMES))
def test_classes_of_the_graph_are_found_when_asked_for(name):
    assert getattr(cntk_py, name).__name__ == ("NativeValue" if name == "Value" else name)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        cntk_py.no_such_name  # noqa: B018
