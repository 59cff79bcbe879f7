"""What scripts reach for in CNTK's compiled module."""
import numpy as np
import pytest

import cntkjax
import cntkjax as C
from cntkjax import device, logging, variables
from cntkjax.compat import cntk_py
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


def test_seeds_are_set_and_reset():
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
    assert (f.name, f.root_function.name, f.output.name) == ("second", "first", "first")


def test_a_wrapped_number_can_change():
    wrapped = cntk_py.SizeTWrapper(3)
    wrapped.value = 5
    assert wrapped == cntk_py.SizeTWrapper(5)


def test_a_parameter_takes_the_arguments_of_the_compiled_module():
    parameter = cntk_py.Parameter((1, 2), cntk_py.DataType_Double, 5.0)
    assert type(parameter) is variables.Parameter
    assert parameter.dtype is np.float64
    assert parameter.value.tolist() == [[5.0, 5.0]]


def test_classes_are_those_of_their_modules():
    assert cntk_py.ProgressWriter is logging.ProgressWriter
    assert cntk_py.DeviceDescriptor is device.DeviceDescriptor


@pytest.mark.parametrize("name", sorted(cntk_py._HOMES))
def test_names_of_other_modules_are_resolved_on_access(name):
    assert callable(getattr(cntk_py, name))


def test_each_object_is_an_instance_of_its_compiled_classes_only():
    """As programs ask: isinstance(arg, (cntk_py.Variable, cntk_py.Value, cntk_py.NDArrayView))."""
    x, w, c = C.input_variable(2), C.parameter((2, 1)), C.constant(1)
    z, view = C.times(x, w), C.NDArrayView.from_dense(np.ones(2, np.float32))
    learner = C.sgd([w], 0.1)
    source = C.io.MinibatchSourceFromData({"x": np.ones((2, 2), np.float32)})
    things = {
        "x": x, "w": w, "c": c, "z": z, "output": z.output, "view": view, "value": C.Value(np.ones((2, 2), np.float32)),
        "learner": learner, "trainer": C.Trainer(z, (C.reduce_sum(z), None), learner), "init": C.glorot_uniform(),
        "ctf": C.io.CTFDeserializer("x.ctf", C.io.StreamDefs(x=C.io.StreamDef("x", 2))),
        "sizes": C.minibatch_size_schedule(3), "source": source,
        "worker": C.train.distributed.mpi_communicator().current_worker(),
        "data": source.next_minibatch(1)[source.streams.x],
    }
    instances = {
        "Variable": {"x", "w", "c", "output"}, "Parameter": {"w"}, "Constant": {"c"}, "Function": {"z"},
        "NDArrayView": {"view"}, "Value": {"value"}, "Learner": {"learner"}, "Trainer": {"trainer"},
        "Evaluator": {"trainer"}, "Dictionary": {"init", "ctf"}, "minibatch_size_schedule": {"sizes"},
        "SwigMinibatchSource": {"source"}, "DistributedWorkerDescriptor": {"worker"}, "MinibatchData": {"data"},
    }
    for name, expected in instances.items():
        cls = getattr(cntk_py, name)
        assert {key for key, thing in things.items() if isinstance(thing, cls)} == expected, name


def test_compiled_constructors_take_arguments_in_their_own_order():
    view = C.NDArrayView.from_dense(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert str(cntk_py.NDArrayView(cntk_py.DataType_Double, (2, 3), C.cpu())) == "NDArrayView([2 x 3], CPU)"
    sparse = cntk_py.NDArrayView(cntk_py.DataType_Float, cntk_py.StorageFormat_SparseCSC, (2, 3), C.cpu())
    assert sparse.is_sparse and sparse.dtype is np.float32
    assert cntk_py.NDArrayViewFloat(2.5, (2,)).asarray().tolist() == [2.5, 2.5]
    assert cntk_py.NDArrayViewDouble(2.5).dtype is np.float64
    assert (cntk_py.Parameter(view, "n").value == view.asarray()).all() and cntk_py.Constant(view, "n").name == "n"
    assert cntk_py.Constant((2, 3), 1, 2.5).value.tolist() == [[2.5] * 3] * 2
    drawn = cntk_py.Parameter((2,), 1, C.glorot_uniform(), C.cpu(), "nn")
    assert (drawn.name, drawn.shape) == ("nn", (2,))
    assert cntk_py.ConstantDouble((2, 3), 3.5, C.cpu(), "nm").as_string() == "Constant('nm', [], [2 x 3])"
    assert cntk_py.ParameterFloat((2,), 3.5).value.tolist() == [3.5, 3.5]


def test_static_methods_are_functions_of_the_module_too():
    assert cntk_py.Axis_all_axes() == C.Axis.all_axes()
    assert cntk_py.Axis_eq(C.Axis(0), C.Axis(0)) and not cntk_py.Axis_eq(C.Axis(0), C.Axis(1))
    assert cntk_py.DeviceDescriptor_use_default_device() == C.use_default_device()
    assert cntk_py.NDArrayView_random_uniform_float((3,), 0, 1, 7).asarray().shape == (3,)
    assert cntk_py.Constant_scalar(cntk_py.DataType_Float, 2.5).value == 2.5


def test_enumerations_have_the_names_of_cntk():
    assert [cntk_py.data_type_name(i) for i in (1, 2, 4, 5, 6)] == ["Float", "Double", "Float16", "Int8", "Int16"]
    assert [cntk_py.data_type_size(i) for i in (1, 2, 4, 5, 6)] == [4, 8, 2, 1, 2]
    assert (cntk_py.device_kind_name(1), cntk_py.variable_kind_name(4)) == ("GPU", "Placeholder")
    assert [cntk_py.is_sparse_storage_format(i) for i in range(3)] == [False, True, True]
    with pytest.raises(RuntimeError, match="Unknown DataType"):
        cntk_py.data_type_name(3)


def test_views_and_values_are_equal_up_to_tolerances():
    """The answers are CNTK's."""
    def view(*numbers):
        return C.NDArrayView.from_dense(np.array(numbers, np.float32))
    pairs = [
        ((1, 2), (1, 2.001), ()), ((1, 2), (1, 2.001), (0.01, 0.01)), ((1, 2), (1, 2.001), (0.0001, 0.0001)),
        ((1000,), (1000.01,), (0.0, 0.001)), ((1000,), (1000.01,), (0.1,)), ((1000,), (1000.01,), (2e-5, 0.0)),
        ((1000,), (1000.01,), (1e-6, 0.0)),
    ]
    equalities = [cntk_py.are_equal(view(*a), view(*b), *tolerances) for a, b, tolerances in pairs]
    assert equalities == [False, True, False, False, True, True, False]
    assert not cntk_py.are_equal(view(1, 2), view(1, 2).as_shape((1, 2)))
    ones = np.ones((2, 2), np.float32)
    assert cntk_py.are_equal(C.Value(ones), C.Value(ones))


def test_initializers_of_the_compiled_module():
    assert cntk_py.normal_initializer(0.1, 2, 1, 4) == {
        "initializerType": "normal", "scale": 0.1, "outputRank": 2, "filterRank": 1, "randomSeed": 4,
    }
    assert cntk_py.bilinear_initializer(3, 4) == {"initializerType": "bilinear", "kernelWidth": 3, "kernelHeight": 4}
    assert cntk_py.constant_initializer(2) == {"initializerType": "constant", "value": 2.0}
    assert C.layers.Dense(2, init=cntk_py.constant_initializer(3))(C.input_variable(1)).W.value.tolist() == [[3, 3]]
    assert cntk_py.random_initializer_with_rank(C.glorot_uniform(), 2, 1)["filterRank"] == 1
    assert C.glorot_uniform().contains("scale") and C.glorot_uniform().size() == 5


def test_deserializers_and_sources_of_the_compiled_module(tmp_path):
    file = tmp_path / "d.ctf"
    file.write_text("|x 1 2 |y 1\n|x 2 3 |y 2\n")
    x = cntk_py.StreamConfiguration("x", 2)
    described = cntk_py.ctf_deserializer(str(file), [cntk_py.StreamConfiguration("x", 2, False, "xx", True)])
    assert described["input"] == {"x": {"alias": "xx", "definesMBSize": True, "format": "dense", "dim": 2}}
    source = cntk_py.text_format_minibatch_source(str(file), [x], 4, False)
    assert source.next_minibatch(2)[source.streams.x].asarray().ravel().tolist() == [1, 2, 2, 3]
    config = cntk_py.MinibatchSourceConfig([cntk_py.ctf_deserializer(str(file), [x])], False)
    config.max_sweeps = 1
    source = cntk_py.create_composite_minibatch_source(config)
    assert source.next_minibatch(9)[source.streams.x].num_samples == 2 and not source.next_minibatch(9)
    crop = {"cropSize": "1:2", "sideRatio": "0.5:0.6", "jitterType": "uniratio", "cropType": "randomside"}
    transform = cntk_py.reader_crop("randomside", (1, 2), (0.5, 0.6), (0.0, 0.0), (1.0, 1.0), "uniratio")
    assert transform.items() >= crop.items()
    assert cntk_py.image_deserializer("m", "l", 3, "i", [cntk_py.reader_mean("q")]) == {
        "type": "ImageDeserializer", "file": "m",
        "input": {
            "l": {"labelDim": 3}, "i": {"transforms": [{"type": "Mean", "meanFile": "q"}, {"type": "Transpose"}]},
        },
    }


def test_trainers_and_learners_of_the_compiled_module():
    x, w = C.input_variable(2), C.parameter((2, 1))
    z = C.times(x, w)
    loss, sgd = C.reduce_sum(z), C.sgd([w], 0.1)
    assert cntk_py.create_trainer(z, loss, [sgd], []).evaluation_function is None
    assert cntk_py.create_trainer(z, loss, loss, [sgd], []).evaluation_function is loss
    assert cntk_py.create_evaluator(loss, []).evaluation_function is loss
    alone = cntk_py.mpicommunicator()
    assert (cntk_py.number_of_workers(), cntk_py.worker_global_rank()) == (1, 0)
    learner = cntk_py.create_data_parallel_distributed_learner(alone, sgd, 7, False)
    assert learner.strategy.after == 7
    block = cntk_py.create_block_momentum_distributed_learner(alone, sgd, 5, 100, 10.0, True, False, 2.0).strategy
    assert (block.after, block.size, block.time_constant, block.resets_momentum, block.rate) == (5, 100, 10.0, False, 2)
    block = cntk_py.create_block_momentum_distributed_learner(alone, sgd, 0, 100, False).strategy
    assert (block.time_constant, block.nesterov, block.resets_momentum) == (None, False, True)


def test_models_are_loaded_with_the_number_of_their_format(tmp_path):
    C.times(C.input_variable(2), C.parameter((2, 1)), name="z").save(tmp_path / "z.model")
    assert cntk_py.Function_load(str(tmp_path / "z.model"), C.cpu(), cntk_py.ModelFormat_CNTKv2).name == "z"


def test_nodes_are_timed_by_the_names_of_the_compiled_module():
    cntk_py.enable_node_timing()
    assert Settings.timed
    cntk_py.disable_node_timeing()
    assert not Settings.timed


def test_names_resolved_on_access_are_listed():
    assert {"Parameter", "plus", "set_fixed_random_seed", "DataType_Float"} <= set(dir(cntk_py))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        cntk_py.no_such_name  # noqa: B018


def test_means_and_deviations_of_streams(tmp_path):
    """The numbers are CNTK's."""
    file = tmp_path / "d.ctf"
    file.write_text("|x 1 2\n|x 2 3\n|x 4 3\n|x 7 3\n")
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 2))
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(file), streams), max_sweeps=1)
    statistics = {source.streams.x: (None, None)}
    cntk_py.compute_input_per_dim_means_and_inv_std_devs(source, statistics, C.cpu())
    ((mean, inverse),) = statistics.values()
    np.testing.assert_allclose(mean.asarray(), [3.5, 2.75])
    np.testing.assert_allclose(inverse.asarray(), [0.43643576, 2.309401], rtol=1e-6)
    assert not source.next_minibatch(1)


def test_schedules_of_the_compiled_module():
    schedule = cntk_py.training_double_parameter_schedule([(2, 0.5), (1, 0.2)], 10, 4)
    assert [schedule[n] for n in (19, 20)] == [0.5, 0.2] and schedule.minibatch_size == 4
    assert cntk_py.training_double_parameter_schedule(0.5, 3).minibatch_size == 3
    assert schedule.serialize() == {
        "type": "TrainingParameterSchedule", "version": 2, "ref_mb_size": 4, "epoch_size": 10,
        "schedule": {"20": 0.5, "30": 0.2},
    }
    assert cntk_py.training_double_parameter_schedule_deserialize(schedule.serialize()) == schedule
    sizes = cntk_py.minibatch_size_schedule([(1, 3), (1, 4)], 10)
    assert cntk_py.minibatch_size_schedule_deserialize(sizes.serialize())[10] == 4
    assert cntk_py.momentum_from_time_constant(100.0) == cntk_py.momentum_as_time_constant_schedule(100.0)[0]


@pytest.mark.parametrize(
    "name, instead",
    [
        ("gemm", "compute it with the public operations, such as cntk.times"),
        ("HTKFeatureConfiguration", "use the functions of cntk.io"),
        ("UserBackPropState", "return the state from UserFunction.forward"),
        ("Value_swigregister", "classes need no registration"),
        ("no_such_name", "module 'cntk.cntk_py' has no attribute 'no_such_name'"),
    ],
)
def test_names_that_are_absent_say_what_to_use(name, instead):
    assert not hasattr(cntk_py, name)
    with pytest.raises(AttributeError, match=instead):
        getattr(cntk_py, name)
