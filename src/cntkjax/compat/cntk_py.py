"""The names that scripts use from CNTK's compiled module: seeds, switches, enumerations and some classes."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..debugging.debug import set_checked_mode, set_computation_network_trace_level
from ..debugging.profiler import disable_profiler, enable_profiler, start_profiler, stop_profiler
from ..device import DeviceDescriptor
from ..formats.containers import Dictionary, DictionaryValue
from ..graph.seed import AUTO_SEED, get_random_seed, is_random_seed_fixed, reset_random_seed, set_fixed_random_seed
from ..graph.seed import next_seed as generate_random_seed
from ..graph.settings import Settings
from ..learners._user import universal_learner
from ..logging import ProgressWriter, get_trace_level, set_trace_level
from .absent import INSTEAD, absence

if TYPE_CHECKING:  # at run time some of these names are other classes in this module
    from .. import core
    from .._arrays import NDArrayView
    from ..learners import Learner
    from ..ops.functions import Function
    from ..variables import Parameter, Variable

(DataType_Unknown, DataType_Float, DataType_Double, DataType_UChar, DataType_Float16, DataType_Int8,
 DataType_Int16) = range(7)
DataUnit_Sweep, DataUnit_Sample, DataUnit_Minibatch = range(3)
DeviceKind_CPU, DeviceKind_GPU = range(2)
MaskKind_Invalid, MaskKind_Valid, MaskKind_SequenceBegin = range(3)
ModelFormat_CNTKv2, ModelFormat_ONNX = range(2)
PaddingMode_CONSTANTPAD, PaddingMode_REFLECTPAD, PaddingMode_SYMMETRICPAD = range(3)
(ParameterCloningMethod_Share, ParameterCloningMethod_Clone, ParameterCloningMethod_Freeze,
 ParameterCloningMethod_Invalid) = range(4)
PoolingType_Max, PoolingType_Average = range(2)
StorageFormat_Dense, StorageFormat_SparseCSC, StorageFormat_SparseBlockCol = range(3)
TraceLevel_Error, TraceLevel_Warning, TraceLevel_Info = range(3)
(VariableKind_Input, VariableKind_Output, VariableKind_Parameter, VariableKind_Constant,
 VariableKind_Placeholder) = range(5)

InferredDimension, FreeDimension = -1, -3
TimesNoInferredInputRank, TimesReduceSequenceAxisWithoutInferredInputRank = -1, -2
sentinel_value_for_auto_select_random_seed = AUTO_SEED
sentinel_value_for_infer_param_init_rank = 2**31 - 1
chunk_id_max = sequence_len_max = 2**32 - 1
default_profiler_buffer_size = 32 * 2**20
default_param_init_scale, default_param_init_output_rank, default_param_init_filter_rank = 1, 1, 0

_HOMES = {  # name: the module that defines it, "module:other name" if it differs there; imported at first use
    "Axis": "axis", "Function": "ops.functions", "Learner": "learners", "NDMask": "core", "NDShape": "graph.shape",
    "Variable": "graph.variable:Edge",  # that of the graph: parameters and constants are variables too
    "Value": "core:NativeValue",
    "BackPropState": "ops._computing", "Evaluator": "eval", "Trainer": "train.trainer",
    "MinibatchData": "io", "StreamConfiguration": "io", "StreamInformation": "io",
    "MinibatchSource": "io", "SwigMinibatchSource": "io:UserMinibatchSource",
    "SwigDataDeserializer": "io:UserDeserializer",
    "MinibatchSourceConfig": "io._config", "OptionalBool": "io._config", "to_dictionary": "io._config",
    "DistributedLearner": "train.distributed", "DistributedCommunicator": "train.distributed:Communicator",
    "DistributedWorkerDescriptor": "train.distributed:WorkerDescriptor",
    "mpicommunicator": "train.distributed:mpi_communicator",
    "number_of_workers": "parallel.workers:size", "worker_global_rank": "parallel.workers:rank",
    "save_as_legacy_model": "debugging.debug", "output_variable": "ops",
    "default_unit_gain_value": "learners", "set_default_unit_gain_value": "learners",
    "momentum_as_time_constant_schedule": "learners",
} | {
    f"{kind}_initializer": f"initializer:{kind}" for kind in (
        "bilinear", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "normal", "truncated_normal",
        "uniform", "xavier",
    )
} | {"random_initializer_with_rank": "initializer:initializer_with_rank"} | {
    f"reader_{transform}": f"io.transforms:{transform}" for transform in ("color", "crop", "mean", "scale")
} | {
    name: home for home, names in {
        "compat.native_classes": ("Constant", "ConstantDouble", "ConstantFloat", "NDArrayView", "NDArrayViewDouble",
                    "NDArrayViewFloat", "Parameter", "ParameterDouble", "ParameterFloat", "minibatch_size_schedule",
                    "training_double_parameter_schedule"),
        "compat.native_functions": (
            "Function_load", "TensorBoardFileWriter", "base64_image_deserializer", "cbf_deserializer",
            "constant_initializer",
            "create_block_momentum_distributed_learner", "create_composite_minibatch_source",
            "create_data_parallel_distributed_learner", "create_evaluator", "create_trainer", "create_training_session",
            "compute_input_per_dim_means_and_inv_std_devs", "constant_like", "ctf_deserializer", "image_deserializer",
            "input_variable", "momentum_from_time_constant", "pad", "placeholder_variable",
            "text_format_minibatch_source", "trainer_impl",
        ),
        "train.training_session": ("CheckpointConfig", "CrossValidationConfig", "TestConfig", "TrainingSession"),
        "compat.native_learners": ("AdditionalLearningOptions", *(f"{rule}_learner" for rule in (
            "sgd", "momentum_sgd", "nesterov", "ada_grad", "ada_delta", "fsada_grad", "adam", "rmsprop",
        ))),
    }.items() for name in names
}


def __getattr__(name: str) -> object:
    if name == "__all__":  # of `from cntk.cntk_py import *`
        return [public for public in __dir__() if not public.startswith("_")]
    if name in _HOMES:
        home, _, other = _HOMES[name].partition(":")
        return getattr(import_module("cntkjax." + home), other or name)
    if name.startswith("_") or name in INSTEAD or name.endswith("_swigregister"):
        raise absence(name)
    operations = import_module("cntkjax.compat.operations")
    if name in operations.OPERATIONS:
        return operations.cntk_operation(name)
    for end in (i for i, character in enumerate(name) if character == "_"):
        owner, member = name[:end], name[end + 1:]  # static methods are in the module too: Axis_all_axes
        if owner in _HOMES or owner in globals():
            of = globals()[owner] if owner in globals() else __getattr__(owner)
            return operator.eq if member == "eq" else getattr(of, member)
    raise absence(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *import_module("cntkjax.compat.operations").OPERATIONS})


def is_native_user_function_registered(op_id: str) -> bool:
    """Whether ``register_native_user_function`` was called with this id.

    >>> is_native_user_function_registered("no such operation")
    False
    """
    from ..primitives.native import NATIVE

    return op_id in NATIVE


def are_equal(
    first: NDArrayView | core.Value, second: NDArrayView | core.Value, relative_tolerance: float = 0.0,
    absolute_tolerance: float = 0.0,
) -> bool:
    """Whether two array views or values hold the same numbers, up to the tolerances, in the same shape.

    >>> import numpy as np
    >>> from cntkjax import NDArrayView
    >>> ones, nearly = (NDArrayView.from_dense(np.full(2, number)) for number in (1.0, 1.001))
    >>> are_equal(ones, nearly), are_equal(ones, nearly, 0.01)
    (False, True)
    """
    arrays = [held.asarray() for held in (first, second)]
    one, other = (a.toarray() if hasattr(a, "toarray") else a for a in arrays)
    if one.shape != other.shape:
        return False
    return bool((abs(one - other) <= absolute_tolerance + relative_tolerance * abs(one)).all())


def _names(what: str, names: dict[int, Any]) -> Callable[[int], Any]:
    def find(number: int) -> Any:
        if number not in names:
            raise RuntimeError(f"Unknown {what}: {number}")
        return names[number]
    find.__doc__ = f"The property of a {what} by its number. Errors: RuntimeError for an unknown number."
    return find


data_type_name = _names("DataType", {1: "Float", 2: "Double", 4: "Float16", 5: "Int8", 6: "Int16"})
data_type_size = _names("DataType", {1: 4, 2: 8, 4: 2, 5: 1, 6: 2})
device_kind_name = _names("DeviceKind", {0: "CPU", 1: "GPU"})
variable_kind_name = _names(
    "VariableKind", dict(enumerate(("Input", "Output", "Parameter", "Constant", "Placeholder")))
)


def is_sparse_storage_format(storage_format: int) -> bool:
    """Whether arrays of this format are sparse."""
    return storage_format != StorageFormat_Dense


def DictionaryValueFromNDArrayView(value: NDArrayView) -> DictionaryValue:
    """An array as a value of a dictionary."""
    return DictionaryValue(value.asarray())


DictionaryValueFromDict = DictionaryValue


@dataclass
class SizeTWrapper:
    """A number that a learner's attribute dictionary stores as unsigned.

    >>> SizeTWrapper(3).value
    3
    """

    value: int


def force_deterministic_algorithms() -> None:
    """Use deterministic algorithms only, so that a script gives the same bits on every run.

    Otherwise the padding of minibatches of varied sizes, and with it how sums are rounded, may differ between runs.

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
    """Allow functions that have a name to be renamed."""
    Settings.renaming = True


def enable_node_timing() -> None:
    """``debugging.set_node_timing(True)``."""
    Settings.timed = True


def disable_node_timeing() -> None:
    """``debugging.set_node_timing(False)``; the spelling is CNTK's."""
    Settings.timed = False


disable_forward_values_sharing = _without_effect("XLA plans the memory of each program.")
enable_forward_values_sharing = _without_effect("XLA plans the memory of each program.")
disable_cpueval_optimization = _without_effect("XLA compiles for the CPU.")
enable_cpueval_optimization = _without_effect("XLA compiles for the CPU.")
enable_synchronous_gpukernel_execution = _without_effect("a program is one launch; see start_profiler for timing.")
use_sparse_gradient_aggregation_in_data_parallel_sgd = _without_effect("XLA chooses how gradients are summed.")
enable_gradient_accumulation_optimization = _without_effect("XLA plans the gradients of each program.")
disable_gradient_accumulation_optimization = _without_effect("XLA plans the gradients of each program.")
enable_reversing_tensor_shapes_in_error_messages = _without_effect("shapes in messages are those of the Python API.")
set_automatic_unpacking_of_packed_values = _without_effect("values are never packed.")
set_gpumemory_allocation_trace_level = _without_effect("XLA allocates memory; jax.profiler reports its use.")
set_max_num_cputhreads = _without_effect("XLA creates its threads at startup: restrict the CPUs of the process.")
set_mpipack_threshold = _without_effect("gradients are exchanged one at a time.")
set_math_lib_trace_level = _without_effect("XLA has its own environment variable, TF_CPP_MIN_LOG_LEVEL.")
