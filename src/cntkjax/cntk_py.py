"""The names that scripts take from CNTK's compiled module: seeds, switches, enumerations and some classes."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cntkjax.debugging.debug import set_checked_mode, set_computation_network_trace_level
from cntkjax.debugging.profiler import disable_profiler, enable_profiler, start_profiler, stop_profiler
from cntkjax.device import DeviceDescriptor
from cntkjax.formats.containers import Dictionary, DictionaryValue
from cntkjax.graph.seed import (
    AUTO_SEED,
    get_random_seed,
    is_random_seed_fixed,
    reset_random_seed,
    set_fixed_random_seed,
)
from cntkjax.graph.seed import next_seed as generate_random_seed
from cntkjax.graph.settings import Settings
from cntkjax.logging import ProgressWriter, get_trace_level, set_trace_level

(DataType_Unknown, DataType_Float, DataType_Double, DataType_UChar, DataType_Float16, DataType_Int8,
 DataType_Int16) = range(7)
DataUnit_Sweep, DataUnit_Sample, DataUnit_Minibatch = range(3)
DeviceKind_CPU, DeviceKind_GPU = range(2)
MaskKind_Invalid, MaskKind_Valid, MaskKind_SequenceBegin = range(3)
ModelFormat_CNTKv2, ModelFormat_ONNX = range(2)
PaddingMode_CONSTANTPAD, PaddingMode_REFLECTPAD, PaddingMode_SYMMETRICPAD = range(3)
ParameterCloningMethod_Share, ParameterCloningMethod_Clone, ParameterCloningMethod_Freeze = range(3)
PoolingType_Max, PoolingType_Average = range(2)
StorageFormat_Dense, StorageFormat_SparseCSC, StorageFormat_SparseBlockCol = range(3)
TraceLevel_Error, TraceLevel_Warning, TraceLevel_Info = range(3)
(VariableKind_Input, VariableKind_Output, VariableKind_Parameter, VariableKind_Constant,
 VariableKind_Placeholder) = range(5)

InferredDimension, FreeDimension = -1, -3
TimesNoInferredInputRank, TimesReduceSequenceAxisWithoutInferredInputRank = -1, -2
sentinel_value_for_auto_select_random_seed = AUTO_SEED
sentinel_value_for_infer_param_init_rank = 2**31 - 1
default_param_init_scale, default_param_init_output_rank, default_param_init_filter_rank = 1, 1, 0

_HOMES = {  # what lies in modules that need the whole package, so that they are looked up when somebody asks
    "Axis": "axis", "Constant": "variables", "Variable": "variables",
    "Function": "ops.functions", "Learner": "learners", "MinibatchSource": "io", "MinibatchSourceConfig": "io._config",
    "to_dictionary": "io._config", "NDArrayView": "core", "NDMask": "core", "Value": "core",
    "Trainer": "train.trainer",
} | dict.fromkeys(
    ["AdditionalLearningOptions", *(f"{rule}_learner" for rule in (
        "sgd", "momentum_sgd", "nesterov", "ada_grad", "ada_delta", "fsada_grad", "adam", "rmsprop",
    ))],
    "learners._native",
)


_RENAMED = {"Value": "NativeValue"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module("cntkjax." + _HOMES[name]), _RENAMED.get(name, name))
    raise AttributeError(f"module 'cntkjax.cntk_py' has no attribute '{name}'")


def Parameter(shape: Any, data_type: int, value: float) -> Any:
    """A parameter, its arguments in the order of CNTK's compiled module.

    Example:
        >>> Parameter((1, 2), DataType_Float, 5.0).value
        array([[5., 5.]], dtype=float32)
    """
    from cntkjax import variables

    return variables.Parameter(shape, init=value, dtype=data_type)


def is_native_user_function_registered(op_id: str) -> bool:
    """Whether ``register_native_user_function`` was called with this id.

    Example:
        >>> is_native_user_function_registered("no such operation")
        False
    """
    from cntkjax.primitives.native import NATIVE

    return op_id in NATIVE


def are_equal(first: Any, second: Any) -> bool:
    """Whether two array views hold the same numbers in the same shape.

    Example:
        >>> import numpy as np
        >>> from cntkjax import NDArrayView
        >>> are_equal(NDArrayView.from_dense(np.ones(2)), NDArrayView.from_dense(np.zeros(2)))
        False
    """
    arrays = [view.asarray() for view in (first, second)]
    dense = [a.toarray() if hasattr(a, "toarray") else a for a in arrays]
    return first.shape == second.shape and bool((dense[0] == dense[1]).all())


def universal_learner(parameters: Any, gradients: Any, update: Any) -> Any:
    """A learner whose step is the graph `update`, in which `gradients` stand for those of the parameters.

    Example:
        >>> import numpy as np
        >>> import cntkjax as C
        >>> w, g = C.parameter((1,), init=1), C.constant(0, (1,))
        >>> learner = universal_learner([w], [g], C.assign(w, w - 0.5 * g))
        >>> learner.update({w: np.ones(1)}, 1), w.value
        (True, array([0.5], dtype=float32))
    """
    from cntkjax import learners

    def step(_: Any, given: Any) -> Any:
        return update.clone("share", dict(zip(gradients, given, strict=True)))

    return learners.universal(step, parameters)


@dataclass
class SizeTWrapper:
    """A number that a learner's attribute dictionary stores as unsigned.

    Example:
        >>> SizeTWrapper(3).value
        3
    """

    value: int


def force_deterministic_algorithms() -> None:
    """Use only algorithms that give the same bits each time; this matters on accelerators, the CPU's always do.

    Example:
        >>> force_deterministic_algorithms()
        >>> should_force_deterministic_algorithms()
        True
    """
    Settings.deterministic = True


def should_force_deterministic_algorithms() -> bool:
    """Whether ``force_deterministic_algorithms`` was called."""
    return Settings.deterministic


def _without_effect(why: str) -> Callable[..., None]:
    def switch(*args: Any) -> None:
        pass
    switch.__doc__ = f"Accepted, and without effect: {why}"
    return switch


always_allow_setting_default_device = _without_effect("the default device can be set at any time.")


def allow_renaming_functions() -> None:
    """Let functions that have a name be given another."""
    Settings.renaming = True

disable_forward_values_sharing = _without_effect("XLA plans the memory of each program.")
enable_forward_values_sharing = _without_effect("XLA plans the memory of each program.")
disable_cpueval_optimization = _without_effect("XLA compiles for the CPU.")
enable_cpueval_optimization = _without_effect("XLA compiles for the CPU.")
enable_synchronous_gpukernel_execution = _without_effect("a program is one launch; see start_profiler for timing.")
use_sparse_gradient_aggregation_in_data_parallel_sgd = _without_effect("XLA chooses how gradients are summed up.")
set_math_lib_trace_level = _without_effect("XLA has its own environment variable, TF_CPP_MIN_LOG_LEVEL.")
