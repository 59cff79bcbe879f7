"""Names of CNTK's compiled module that do not exist here, with what to use instead."""

from __future__ import annotations

_INSTEAD = {  # what to use: the names
    "write a deserializer with cntk.io.UserDeserializer or cntk.io.deserializer": (
        "Chunk ChunkInfo DataDeserializer DenseDataFromPy DenseSequenceData DeserializerFactory SequenceDataBase "
        "SequenceInfo SequenceKey SparseDataFromPy SparseSequenceData SwigChunk create_deserializer MinibatchInfo "
        "_register_deserializer_factory"
    ),
    "use the functions of cntk.io, such as HTKFeatureDeserializer": (
        "HTKFeatureConfiguration htk_feature_deserializer htk_mlf_binary_deserializer htk_mlf_deserializer "
        "lattice_deserializer"
    ),
    "compute it with the public operations, such as cntk.times, cntk.convolution, cntk.reduce_sum, cntk.expand_dims "
    "and cntk.sequence.gather": (
        "gemm mat_mul reduce_elements unsqueeze gather_packed scatter_packed packed_index is_within eq "
        "zeroes_with_dynamic_axes_like spatial_convolution spatial_convolution_sequence_shape "
        "convolution_sequence_shape"
    ),
    "use cntk.losses.lattice_sequence_with_softmax": "lattice_sequence_with_softmax",
    "use cntk.ops.custom_proxy_op": "custom_proxy_op",
    "use cntk.train.distributed.data_parallel_distributed_learner, whose num_quantization_bits quantize gradients": (
        "QuantizedDistributedCommunicator create_quantized_data_parallel_distributed_learner quantized_mpicommunicator "
        "should_use_sparse_gradient_aggregation_in_data_parallel_sgd get_mpipack_threshold"
    ),
    "use numpy.float16": "float16 float16_create",
    "return the state from UserFunction.forward: it is passed to backward": (
        "UserBackPropState UserBackPropState_create UserBackPropState_data"
    ),
    "use cntk.ops.register_udf_deserialize_callback": (
        "UDFDeserializeCallbackWrapper _register_udf_deserialize_callback"
    ),
    "use cntk.device.get_gpu_properties, or `cntkjax doctor`": "GPUProperties print_gpu_info print_built_info",
    "XLA controls this; see the documentation of jax": (
        "get_max_num_cputhreads is_synchronous_gpukernel_execution_enabled GilStateGuard"
    ),
    "use the uid of a variable or function": "generate_uid new_unique_id",
    "use ==": "are_equivalent",
    "use a learning parameter schedule's serialize()": "DictionaryValueFromTrainingDoubleParameterSchedule",
}
INSTEAD = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}


def absence(name: str) -> AttributeError:
    """The error for a name that the module does not have.

    >>> absence("float16")
    AttributeError("cntk_py has no 'float16' here: use numpy.float16")
    """
    if name in INSTEAD:
        return AttributeError(f"cntk_py has no {name!r} here: {INSTEAD[name]}")
    if name.endswith("_swigregister"):
        return AttributeError(f"cntk_py has no {name!r} here: classes need no registration, leave the call out")
    return AttributeError(f"module 'cntk.cntk_py' has no attribute {name!r}")
