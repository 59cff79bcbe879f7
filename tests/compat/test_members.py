"""Every member of CNTK 2.7's compiled classes and module exists here or is omitted for a reason.

The lists are what `dir` says there, without what begins with an underscore and the wrapper's this and thisown.
"""
import inspect

import numpy as np
import pytest

import cntkjax as C
from cntkjax.compat import cntk_py

MEMBERS = """
Axis: all_axes all_static_axes as_string default_batch_axis default_dynamic_axis default_input_variable_dynamic_axes
    end_static_axis is_batch_axis is_dynamic_axis is_ordered is_sequence_axis is_static_axis name
    new_unique_dynamic_axis operand_sequence_axis static_axis_index unknown_dynamic_axes
BackPropState: device function saved_forward_prop_values
Constant: asarray clone_as record_value_update scalar set_value value
DeviceDescriptor: all_devices as_string cpu_device get_gpu_properties gpu_device id is_locked set_excluded_devices
    try_set_default_device type use_default_device
Dictionary: add begin cbegin cend contains end keys load save size
DictionaryValue: Type_Axis Type_Bool Type_Dictionary Type_Double Type_Float Type_Int Type_NDArrayView Type_NDShape
    Type_SizeT Type_String Type_TrainingParameterSchedule Type_Vector Type__none has_value load save type_name
    value_type
DistributedCommunicator: aggregate aggregate_in_place all_reduce_sparse_block_column barrier concatenate
    current_worker finalize gather sub_group workers
DistributedLearner: do_aggregate_metrics_if_needed get_communicator is_metric_aggregator minibatch_size_scale_factor
    parallelization_after set_as_metric_aggregator
DistributedWorkerDescriptor: is_main m_global_rank m_host_id
Evaluator: evaluation_function print_node_timing progress_writers summarize_test_progress test_minibatch
    test_minibatch_overload_for_minibatchdata
Function: arguments as_string attributes block_arguments_mapping block_root clone clone_flattened constants
    current_version deserialize_method_name evaluate find_all_with_name find_by_name get_custom_attributes gradients
    inputs is_block is_composite is_primitive load load_from_buffer max_num_outputs module_name name
    native_user_function op_name output outputs parameters placeholders print_node_timing
    register_native_user_function replace_placeholder replace_placeholders reset_custom_attributes restore
    restore_from_checkpoint root_function save serialize set_attribute set_name set_native uid
Learner: add_progress_writers create_checkpoint current_version ignored_minibatch_size is_compatible_mode
    learning_rate minibatch_size parameters reset_learning_rate reset_smoothed_gradients restore_from_checkpoint
    set_need_to_update_master_parameter total_number_of_minibatches_seen total_number_of_samples_seen
    total_number_of_sweeps_seen
MinibatchData: as_string asarray data number_of_samples number_of_sequences sweep_end
MinibatchSource: default_randomization_window_in_chunks full_data_sweep get_checkpoint_state get_next_minibatch
    infinitely_repeat is_infinite restore_from_checkpoint stream_info stream_infos
NDArrayView: alias as_shape as_string asarray change_device copy_from deep_clone device get_data_type
    get_storage_format is_read_only is_slice_view is_sparse random_uniform_double random_uniform_float set_value
    shape slice_view to_ndarray
NDMask: alias asarray clear copy_from data_buffer deep_clone device invalidate_section mark_sequence_begin
    masked_count shape to_ndarray
NDShape: as_string dimensions has_free_dimension has_inferred_dimension has_unbound_dimension is_scalar is_unknown
    rank sub_shape total_size unknown
Parameter: asarray record_value_update set_value value
ProgressWriter: on_training_update_end on_write_distributed_sync_update on_write_test_summary on_write_test_update
    on_write_training_summary on_write_training_update total_test_updates total_training_updates write
StreamConfiguration: m_defines_mb_size m_dim m_is_sparse m_stream_alias m_stream_name
StreamInformation: as_string m_defines_mb_size m_element_type m_id m_is_binary m_name m_sample_layout
    m_storage_format
SwigDataDeserializer: chunk_infos get_chunk get_sequence_info sequence_infos_for_chunk stream_infos
SwigMinibatchSource: default_randomization_window_in_chunks full_data_sweep get_checkpoint_state get_next_minibatch
    infinitely_repeat is_infinite restore_from_checkpoint stream_info stream_infos
Trainer: loss_function model parameter_learners previous_minibatch_evaluation_average
    previous_minibatch_loss_average previous_minibatch_sample_count restore_from_checkpoint save_checkpoint
    summarize_training_progress total_number_of_samples_seen total_number_of_units_seen train_minibatch
    train_minibatch_overload_for_minibatchdata
TrainingSession: get_minibatch_size on_checkpoint_end on_checkpoint_start on_cross_validation_end
    on_cross_validation_start on_minibatch_end on_minibatch_start restore_from_checkpoint train
Value: alias as_string asarray copy_from copy_variable_value_to copy_variable_value_to_double
    copy_variable_value_to_float create create_batch_double create_batch_float create_dense_double
    create_dense_float create_one_hot_double create_one_hot_float create_sequence_double create_sequence_float data
    deep_clone device erase get_data_type get_storage_format is_read_only is_sparse is_valid mask masked_count
    one_hot_skip shape unpack_variable_value
Variable: as_string current_value_time_stamp dynamic_axes get_data_type get_value has_batch_axis has_sequence_axis
    is_constant is_initialized is_input is_output is_parameter is_placeholder is_sparse kind name needs_gradient
    owner shape uid
training_double_parameter_schedule: current_version deserialize full_data_sweep ignored_minibatch_size
    is_sweep_based minibatch_size serialize transform
AdditionalLearningOptions: dict_options gaussian_noise_injection_std_dev gradient_clipping_threshold_per_sample
    gradient_clipping_with_truncation l1_regularization_weight l2_regularization_weight
MinibatchSourceConfig: deserializers is_frame_mode_enabled is_multithreaded max_errors max_samples max_sweeps
    randomization_seed randomization_window_in_chunks randomization_window_in_samples trace_level truncation_length
OptionalBool: get is_initialized reset set
TensorBoardFileWriter: close flush write_image write_value
"""

NAMES = """
AdditionalLearningOptions Axis Axis_all_axes Axis_all_static_axes Axis_default_batch_axis Axis_default_dynamic_axis
Axis_default_input_variable_dynamic_axes Axis_end_static_axis Axis_eq Axis_new_unique_dynamic_axis
Axis_operand_sequence_axis Axis_unknown_dynamic_axes BackPropState CheckpointConfig Chunk ChunkInfo Constant
ConstantDouble ConstantFloat Constant_scalar CrossValidationConfig DataDeserializer DataType_Double DataType_Float
DataType_Float16 DataType_Int16 DataType_Int8 DataType_UChar DataType_Unknown DataUnit_Minibatch DataUnit_Sample
DataUnit_Sweep DenseDataFromPy DenseSequenceData DeserializerFactory DeviceDescriptor DeviceDescriptor_all_devices
DeviceDescriptor_cpu_device DeviceDescriptor_eq DeviceDescriptor_get_gpu_properties DeviceDescriptor_gpu_device
DeviceDescriptor_set_excluded_devices DeviceDescriptor_try_set_default_device DeviceDescriptor_use_default_device
DeviceKind_CPU DeviceKind_GPU Dictionary DictionaryValue DictionaryValueFromDict DictionaryValueFromNDArrayView
DictionaryValueFromTrainingDoubleParameterSchedule DictionaryValue_load DictionaryValue_type_name Dictionary_load
DistributedCommunicator DistributedCommunicator_finalize DistributedLearner DistributedWorkerDescriptor Evaluator
FreeDimension Function Function__deserialize Function_load Function_load_from_buffer Function_native_user_function
Function_register_native_user_function GPUProperties GilStateGuard HTKFeatureConfiguration IDictionarySerializable
InferredDimension Learner MaskKind_Invalid MaskKind_SequenceBegin MaskKind_Valid MinibatchData MinibatchInfo
MinibatchSource MinibatchSourceConfig ModelFormat_CNTKv2 ModelFormat_ONNX NDArrayView NDArrayViewDouble
NDArrayViewFloat NDArrayView_random_uniform_double NDArrayView_random_uniform_float NDMask NDShape NDShape_unknown
OptionalBool PaddingMode_CONSTANTPAD PaddingMode_REFLECTPAD PaddingMode_SYMMETRICPAD Parameter
ParameterCloningMethod_Clone ParameterCloningMethod_Freeze ParameterCloningMethod_Invalid
ParameterCloningMethod_Share ParameterDouble ParameterFloat PoolingType_Average PoolingType_Max ProgressWriter
QuantizedDistributedCommunicator SHARED_PTR_DISOWN SequenceDataBase SequenceInfo SequenceKey SizeTWrapper
SparseDataFromPy SparseSequenceData StorageFormat_Dense StorageFormat_SparseBlockCol StorageFormat_SparseCSC
StreamConfiguration StreamInformation SwigChunk SwigDataDeserializer SwigMinibatchSource SwigPyIterator
TensorBoardFileWriter TestConfig TimesNoInferredInputRank TimesReduceSequenceAxisWithoutInferredInputRank
TraceLevel_Error TraceLevel_Info TraceLevel_Warning Trainer TrainingSession UDFDeserializeCallbackWrapper
UserBackPropState UserBackPropState_create UserBackPropState_data Value Value_create Value_create_batch_double
Value_create_batch_float Value_create_dense_double Value_create_dense_float Value_create_one_hot_double
Value_create_one_hot_float Value_create_sequence_double Value_create_sequence_float Variable VariableKind_Constant
VariableKind_Input VariableKind_Output VariableKind_Parameter VariableKind_Placeholder Variable_eq abs acos
ada_delta_learner ada_grad_learner adam_learner alias allow_renaming_functions always_allow_setting_default_device
are_equal are_equivalent argmax argmin as_block as_composite asin asinh assign atan atanh base64_image_deserializer
batch_normalization bernoulli_random bernoulli_random_like bilinear_initializer binary_cross_entropy broadcast_as
cast cbf_deserializer ceil chunk_id_max classification_error clip combine
compute_input_per_dim_means_and_inv_std_devs constant_initializer constant_like convolution
convolution_sequence_shape convolution_transpose cos cosh cosine_distance cosine_distance_with_negative_samples
create_block_momentum_distributed_learner create_composite_minibatch_source create_data_parallel_distributed_learner
create_deserializer create_evaluator create_quantized_data_parallel_distributed_learner create_trainer
create_training_session crop cross_entropy_with_softmax ctf_deserializer custom_proxy_op cvar data_type_name
data_type_size default_param_init_filter_rank default_param_init_output_rank default_param_init_scale
default_profiler_buffer_size default_unit_gain_value depth_to_space device_kind_name disable_cpueval_optimization
disable_forward_values_sharing disable_gradient_accumulation_optimization disable_node_timeing disable_profiler
dropout edit_distance_error element_and element_divide element_max element_min element_not element_or element_select
element_times element_xor elu enable_cpueval_optimization enable_forward_values_sharing
enable_gradient_accumulation_optimization enable_node_timing enable_profiler
enable_reversing_tensor_shapes_in_error_messages enable_synchronous_gpukernel_execution eq equal exp expand_dims
eye_like first flatten float16 float16_create floor force_deterministic_algorithms forward_backward
fsada_grad_learner future_value gather gather_op gather_packed gemm generate_random_seed generate_uid
get_max_num_cputhreads get_mpipack_threshold get_random_seed get_trace_level glorot_normal_initializer
glorot_uniform_initializer greater greater_equal gumbel_random gumbel_random_like hard_sigmoid hardmax
he_normal_initializer he_uniform_initializer htk_feature_deserializer htk_mlf_binary_deserializer
htk_mlf_deserializer image_deserializer image_scaler input_variable is_first is_last
is_native_user_function_registered is_random_seed_fixed is_sparse_storage_format
is_synchronous_gpukernel_execution_enabled is_within klass labels_to_graph lambda_rank last lattice_deserializer
lattice_sequence_with_softmax leaky_re_lu less less_equal local_response_normalization log log_add_exp log_softmax
make_shared mat_mul mean mean_variance_normalization minibatch_size_schedule minibatch_size_schedule_deserialize
minus momentum_as_time_constant_schedule momentum_from_time_constant momentum_sgd_learner mpicommunicator nce_loss
ndcg_at_1 negate nesterov_learner new_unique_id normal_initializer normal_random normal_random_like not_equal
number_of_workers one_hot_op ones_like optimized_rnnstack output_variable packed_index pad past_value
per_dim_mean_variance_normalize placeholder_variable plus pooling pow pre_lu print_built_info print_gpu_info
quantized_mpicommunicator random_initializer_with_rank random_sample random_sample_inclusion_frequency re_lu
reader_color reader_crop reader_mean reader_scale reciprocal reconcile_dynamic_axes reduce_elements reduce_l1
reduce_l2 reduce_log_sum reduce_max reduce_mean reduce_min reduce_prod reduce_sum reduce_sum_square
reset_random_seed reshape rmsprop_learner roipooling round save_as_legacy_model scatter scatter_packed selu
sentinel_value_for_auto_select_random_seed sentinel_value_for_infer_param_init_rank sequence_len_max
sequence_reduce_max sequence_reduce_sum sequence_slice sequence_softmax set_automatic_unpacking_of_packed_values
set_checked_mode set_computation_network_trace_level set_default_unit_gain_value set_fixed_random_seed
set_gpumemory_allocation_trace_level set_math_lib_trace_level set_max_num_cputhreads set_mpipack_threshold
set_trace_level sgd_learner should_force_deterministic_algorithms
should_use_sparse_gradient_aggregation_in_data_parallel_sgd sigmoid sin sinh slice softmax softplus softsign
space_to_depth spatial_convolution spatial_convolution_sequence_shape splice sqrt square squared_error squeeze
start_profiler stop_gradient stop_profiler straight_through sum tan tanh text_format_minibatch_source times
times_transpose to_batch to_dictionary to_sequence to_sequence_like top_k trainer_impl
training_double_parameter_schedule training_double_parameter_schedule_deserialize transpose transpose_axes
truncated_normal_initializer uniform_initializer uniform_random uniform_random_like universal_learner unpack
unpack_batch unpooling unsqueeze use_sparse_gradient_aggregation_in_data_parallel_sgd variable_kind_name weakref
weakref_proxy weighted_binary_cross_entropy where worker_global_rank xavier_initializer
zeroes_with_dynamic_axes_like zeros_like
"""

LEFT_OUT = {
    "cannot be called from Python in CNTK either": """
        copy_variable_value_to copy_variable_value_to_double copy_variable_value_to_float aggregate concatenate
        DistributedCommunicator.gather all_reduce_sparse_block_column module_name deserialize_method_name
        Function.restore_from_checkpoint data_buffer
        make_shared print_gpu_info create_quantized_data_parallel_distributed_learner cvar GPUProperties set_native
    """,
    "not implemented in CNTK either": "sub_group set_need_to_update_master_parameter do_aggregate_metrics_if_needed",
    "memory and pieces of C++, where Python has objects": """
        begin end cbegin cend weakref weakref_proxy klass SwigPyIterator SHARED_PTR_DISOWN GilStateGuard
        UDFDeserializeCallbackWrapper UserBackPropState UserBackPropState_create UserBackPropState_data float16
        float16_create is_slice_view max_num_outputs Chunk ChunkInfo DataDeserializer DenseDataFromPy DenseSequenceData
        DeserializerFactory SequenceDataBase SequenceInfo SequenceKey SparseDataFromPy SparseSequenceData SwigChunk
        MinibatchInfo create_deserializer chunk_infos get_sequence_info sequence_infos_for_chunk m_is_binary
        IDictionarySerializable current_version new_unique_id generate_uid
    """,
    "another name of what is there: train_minibatch, test_minibatch, ==, DictionaryValue, global_rank, host_id": """
        train_minibatch_overload_for_minibatchdata test_minibatch_overload_for_minibatchdata eq m_global_rank m_host_id
        DictionaryValueFromTrainingDoubleParameterSchedule Type_TrainingParameterSchedule
    """,
    "the Python API has the same with names for its arguments": """
        HTKFeatureConfiguration htk_feature_deserializer htk_mlf_deserializer htk_mlf_binary_deserializer
        lattice_deserializer lattice_sequence_with_softmax custom_proxy_op
    """,
    "operations that only CNTK's own ones are made of": """
        convolution_sequence_shape gather_packed scatter_packed packed_index gemm mat_mul is_within reduce_elements
        spatial_convolution spatial_convolution_sequence_shape unsqueeze zeroes_with_dynamic_axes_like are_equivalent
    """,
    "settings that XLA or JAX decide": """
        get_max_num_cputhreads get_mpipack_threshold is_synchronous_gpukernel_execution_enabled print_built_info
        should_use_sparse_gradient_aggregation_in_data_parallel_sgd
    """,
    "gradients are exchanged in full": "QuantizedDistributedCommunicator quantized_mpicommunicator",
}
REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    """An object of each class."""
    x, w = C.input_variable(2), C.parameter((2, 1))
    z = C.times(x, w)
    loss, learner = C.reduce_sum(z), C.sgd([w], 0.1)
    source = C.io.MinibatchSourceFromData({"x": np.ones((2, 2), np.float32)})
    trainer = C.Trainer(z, (loss, loss), learner)
    trainer.train_minibatch({x: [[1, 2]]})
    distributed = C.train.distributed
    communicator = distributed.mpi_communicator()
    file = tmp_path_factory.mktemp("members") / "d.ctf"
    file.write_text("|x 1 2\n")
    described = C.io.CTFDeserializer(str(file), C.io.StreamDefs(x=C.io.StreamDef("x", 2)))
    return {
        "Axis": C.Axis(0), "BackPropState": z.forward({x: [[1, 2]]}, keep_for_backward=[z.output])[0],
        "Constant": C.constant(1), "DeviceDescriptor": C.cpu(), "Dictionary": described,
        "DictionaryValue": cntk_py.DictionaryValue(1), "DistributedCommunicator": communicator,
        "DistributedLearner": distributed.data_parallel_distributed_learner(learner),
        "DistributedWorkerDescriptor": communicator.current_worker(), "Evaluator": C.Evaluator(loss),
        "Function": C.layers.Dense(1)(x),
        "Learner": learner, "MinibatchData": source.next_minibatch(1)[source.streams.x],
        "MinibatchSource": C.io.MinibatchSource(described), "NDArrayView": w.get_value(),
        "NDMask": cntk_py.NDMask((1, 2)),
        "NDShape": cntk_py.NDShape((2, 3)), "Parameter": w, "ProgressWriter": C.logging.ProgressPrinter(),
        "StreamConfiguration": C.io.StreamConfiguration("x", 2), "StreamInformation": source.streams.x,
        "SwigDataDeserializer": C.io.UserDeserializer(), "SwigMinibatchSource": source, "Trainer": trainer,
        "TrainingSession": C.training_session(trainer, source, 1, {x: source.streams.x}),
        "Value": C.Value.one_hot([[0, 1], [2]], 3), "Variable": x,
        "training_double_parameter_schedule": C.learning_parameter_schedule(0.1),
        "AdditionalLearningOptions": cntk_py.AdditionalLearningOptions(), "OptionalBool": cntk_py.OptionalBool(),
        "MinibatchSourceConfig": cntk_py.MinibatchSourceConfig([]),
        "TensorBoardFileWriter": C.logging.TensorBoardProgressWriter,
    }


def listed():
    return [row.split(":") for row in MEMBERS.replace("\n    ", " ").strip().splitlines()]


@pytest.mark.parametrize(("owner", "names"), listed(), ids=[owner for owner, _ in listed()])
def test_members_exist_or_are_omitted_for_a_reason(instances, owner, names):
    instance = instances[owner]
    missing = [n for n in names.split() if not hasattr(type(instance), n) and not hasattr(instance, n)]
    assert [n for n in missing if n not in REASONS and f"{owner}.{n}" not in REASONS] == []


def test_names_of_the_module_exist_or_are_omitted_for_a_reason():
    assert [n for n in NAMES.split() if not hasattr(cntk_py, n) and n not in REASONS] == []


def test_omitted_members_do_not_exist(instances):
    """A reason is removed once its member exists."""
    members = {(owner, name) for owner, names in listed() for name in names.split()}
    everywhere = {name for _, name in members} | {f"{owner}.{name}" for owner, name in members} | set(NAMES.split())
    assert REASONS.keys() <= everywhere
    assert [n for n in REASONS if n in NAMES.split() and hasattr(cntk_py, n)] == []
    assert [(owner, n) for owner, n in members if n in REASONS and hasattr(instances[owner], n)] == []


@pytest.mark.parametrize(("function", "names"), [
    (C.logging.ProgressWriter.__init__,
     "trainingUpdateWriteFrequency trainingFirstUpdatesToWrite testUpdateWriteFrequency testFirstUpdatesToWrite "
     "distributedSyncUpdateWriteFrequency distributedSyncFirstUpdatesToWrite"),
    (C.Learner.reset_learning_rate, "learningRateSchedule"),
    (C.internal.sanitize.sanitize_precision, "precision"),
    (cntk_py.DictionaryValueFromNDArrayView, "value"),
])
def test_parameters_have_the_names_of_cntk(function, names):
    assert [p for p in inspect.signature(function).parameters if p != "self"] == names.split()
