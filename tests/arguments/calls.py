"""A valid call of every public function, class and method: what the walk replaces one argument of at a time.

Only what has no default is listed. The file is Python 3.6 too, so that CNTK 2.7 can be asked with the same calls:
`../shared/oracle/cntk27 -c "import calls; ..."`.
"""

import numpy as np

import cntk as C

WEIGHT = C.parameter(3, init=0.5)
SPARSE = C.input_variable(4, is_sparse=True)


def vector(n=3):
    return C.input_variable(n)


def image():
    return C.input_variable((2, 8, 8))


def sequence(n=3):
    return C.sequence.input_variable(n)


def weight(*shape):
    return C.parameter(shape or (3, 2), init=0.5)


def weights():
    C.save_weights(model(), "weights.safetensors")
    return "weights.safetensors"


def model():
    x = C.input_variable(3, name="x")
    return C.layers.Dense(2, name="dense")(x)


def criterion():
    z, y = model(), C.input_variable(2, name="y")
    return z, y, C.squared_error(z, y)


CRITERION = criterion()[2]


def learner():
    return C.sgd([weight(3)], 0.1)


def new_trainer():
    z, _, loss = criterion()
    return C.Trainer(z, (loss, loss), [C.sgd(z.parameters, 0.1)])


FEED = [np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)]


def feeds(of):
    return {v: FEED[i] for i, v in enumerate(of.arguments)}


def source():
    return C.io.MinibatchSourceFromData({"x": FEED[0], "y": FEED[1]})


def streams(*names):
    return C.io.StreamDefs(**{n: C.io.StreamDef(field=n, shape=3) for n in names})


def images():
    return C.io.StreamDefs(x=C.io.StreamDef("image", transforms=[]), y=C.io.StreamDef("label", shape=3))


def data():
    with open("data.ctf", "w") as file:
        file.write("|x 1 2 3 |y 1 0\n|x 4 5 6 |y 0 1\n")
    return C.io.CTFDeserializer(
        "data.ctf", C.io.StreamDefs(x=C.io.StreamDef("x", shape=3), y=C.io.StreamDef("y", shape=2))
    )


def session():
    t, s = new_trainer(), source()
    inputs = {v: s.streams["xy"[i]] for i, v in enumerate(t.loss_function.arguments)}
    return {"trainer": t, "mb_source": s, "mb_size": 2, "model_inputs_to_streams": inputs}


def value(n=3):
    return C.Value(np.ones((2, n), np.float32))


def saved(make, name):
    """The name of a file that holds what `make` creates."""
    made = make()
    made.save_checkpoint(name) if isinstance(made, C.Trainer) else made.save(name)
    return name


class Generator(C.io.UserMinibatchSource):
    """An endless source of one stream."""

    def stream_infos(self):
        return [C.io.StreamInformation("x", 0, "dense", np.float32, (3,))]

    def next_minibatch(self, num_samples, number_of_workers=1, worker_rank=0, device=None):
        return {}


class Update(C.UserLearner):
    """A learner of the user."""

    def update(self, gradient_values, training_sample_count, sweep_end):
        return True


def native():
    """The name of a native function; CNTK has none that is a JAX function."""
    name = C.relu(1).uid
    C.ops.register_native_user_function(name, "jax.numpy", "log1p")
    return name


def unary(name):
    return lambda: {name: vector()}


def binary(first, second, make=vector):
    return lambda: {first: make(), second: make()}


CALLS = {}
for _name in [
    "abs",
    "acos",
    "alias",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "element_not",
    "elu",
    "exp",
    "flatten",
    "hardmax",
    "leaky_relu",
    "log",
    "log_softmax",
    "negate",
    "ones_like",
    "reciprocal",
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum_exp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_square",
    "relu",
    "selu",
    "sigmoid",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "zeros_like",
    "argmax",
    "argmin",
    "dropout",
    "random.bernoulli_like",
    "random.gumbel_like",
    "random.normal_like",
    "random.uniform_like",
    "squeeze",
    "unpack_batch",
    "straight_through_impl",
]:
    CALLS[_name] = unary("x")
for _name in ["ceil", "floor", "round"]:
    CALLS[_name] = unary("arg")
for _name in [
    "element_divide",
    "element_max",
    "element_min",
    "element_times",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "log_add_exp",
    "minus",
    "not_equal",
    "plus",
]:
    CALLS[_name] = binary("left", "right")
for _name in ["element_and", "element_or", "element_xor", "cosine_distance"]:
    CALLS[_name] = binary("x", "y")
for _name in ["first", "is_first", "is_last", "last", "reduce_max", "reduce_sum", "softmax"]:
    CALLS["sequence." + _name] = lambda: {"seq": sequence()}
for _name in ["mean", "sum", "combine", "splice"]:
    CALLS[_name] = lambda: {"*0": vector(), "*1": vector()}
for _name in ["binary_cross_entropy", "squared_error"]:
    CALLS[_name] = binary("output", "target")
for _name in ["lambda_rank", "ndcg_at_1"]:
    CALLS[_name] = lambda: {"output": vector(1), "gain": vector(1), "group": vector(1)}
for _name in ["classification_error", "cross_entropy_with_softmax"]:
    CALLS[_name] = binary("output_vector", "target_vector")
for _name in ["adadelta", "adagrad", "sgd"]:
    CALLS[_name] = lambda: {"parameters": [weight()], "lr": 0.1}
for _name in ["adam", "fsadagrad", "momentum_sgd", "nesterov"]:
    CALLS[_name] = lambda: {"parameters": [weight()], "lr": 0.1, "momentum": 0.9}
for _name in ["GRU", "LSTM", "RNNStep", "RNNUnit", "Dense"]:
    CALLS["layers." + _name] = lambda: {"shape": 3}
for _name in ["AveragePooling", "MaxPooling", "MaxUnpooling"]:
    CALLS["layers." + _name] = lambda: {"filter_shape": (2, 2)}
for _rank in ["1D", "2D", "3D"]:
    for _name in "Convolution", "ConvolutionTranspose":
        CALLS["layers." + _name + _rank] = lambda: {"filter_shape": 2, "num_filters": 2}
for _name in ["Convolution", "ConvolutionTranspose", "SequentialConvolution"]:
    CALLS["layers." + _name] = lambda: {"filter_shape": (2, 2), "num_filters": 2}
for _name in [
    "Activation",
    "BatchNormalization",
    "Delay",
    "Dropout",
    "Embedding",
    "ForwardDeclaration",
    "GlobalAveragePooling",
    "GlobalMaxPooling",
    "LayerNormalization",
    "Stabilizer",
]:
    CALLS["layers." + _name] = dict
CALLS["layers.Dropout"] = lambda: {"dropout_rate": 0.5}
CALLS["layers.Embedding"] = lambda: {"shape": 3}
for _name in ["glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "xavier"]:
    CALLS[_name] = dict
for _name in ["normal", "uniform"]:
    CALLS[_name] = lambda: {"scale": 1}
for _name in ["bernoulli", "gumbel", "normal", "uniform"]:
    CALLS["random." + _name] = lambda: {"shape": 3}
for _name in ["input_variable", "parameter", "placeholder", "sequence.input_variable"]:
    CALLS[_name] = lambda: {"shape": 3}
for _name in ["avg_loss_since_last", "avg_loss_since_start", "avg_metric_since_last", "reset_last", "reset_start"]:
    pass
for _name in ["element_select"]:
    CALLS[_name] = lambda: {"flag": vector(), "value_if_true": vector(), "value_if_false": vector()}
for _name in ["all_devices", "cpu", "use_default_device", "default_unit_gain_value"]:
    CALLS[_name] = dict
for _name in ["HTKFeatureDeserializer", "HTKMLFBinaryDeserializer"]:
    CALLS["io." + _name] = lambda: {"streams": C.io.StreamDefs(x=C.io.StreamDef(shape=3, scp="x.scp", mlf="x.mlf"))}
for _name in ["CBFDeserializer", "CTFDeserializer"]:
    CALLS["io." + _name] = lambda: {"filename": "data", "streams": streams("x")}
for _name in ["ProgressPrinter", "TensorBoardProgressWriter"]:
    CALLS["logging." + _name] = dict
for _name in ["depth_first_search", "find_all_with_name", "find_by_name", "find_by_uid", "get_node_outputs", "plot"]:
    pass

CALLS.update(
    {
        # ---- operations
        "as_block": lambda: {"composite": C.relu(weight(3)), "block_arguments_map": [], "block_op_name": "b"},
        "as_composite": lambda: {"root_function": C.relu(vector()).root_function},
        "assign": lambda: {"ref": weight(3), "input": C.constant(1, (3,))},
        "batch_normalization": lambda: {
            "operand": vector(),
            "scale": weight(3),
            "bias": weight(3),
            "running_mean": C.constant(0, (3,)),
            "running_inv_std": C.constant(0, (3,)),
            "spatial": False,
            "running_count": C.constant(0, ()),
        },
        "cast": lambda: {"node_input": vector(), "dtype": np.float64},
        "clip": lambda: {"x": vector(), "min_value": 0, "max_value": 1},
        "constant": lambda: {"value": 1},
        "convolution": lambda: {"convolution_map": weight(3, 2, 3, 3), "operand": image()},
        "convolution_transpose": lambda: {"convolution_map": weight(2, 3, 3, 3), "operand": image()},
        "cosine_distance_with_negative_samples": lambda: {
            "x": vector(),
            "y": vector(),
            "shift": 1,
            "num_negative_samples": 2,
        },
        "crop_automatic": lambda: (lambda x: {"node_input": x, "node_referent": C.pooling(x, C.MAX_POOLING, (2, 2))})(
            image()
        ),
        "crop_automatic_with_ancestors": lambda: (
            lambda x: {
                "node_input": x,
                "node_referent": C.pooling(x, C.MAX_POOLING, (2, 2)),
                "ancestor_input": x,
                "ancestor_referent": x,
            }
        )(image()),
        "crop_manual": lambda: {"node_input": image(), "node_referent": image(), "offset_x": 0, "offset_y": 0},
        "custom_proxy_op": lambda: {
            "custom_op": "op",
            "output_shape": 3,
            "output_data_type": np.float32,
            "*0": vector(),
            "name": "",
        },
        "depth_to_space": lambda: {"operand": C.input_variable((4, 3, 3)), "block_size": 2},
        "edit_distance_error": binary("input_a", "input_b", sequence),
        "expand_dims": lambda: {"x": vector(), "axis": 0},
        "eye_like": unary("x"),
        "fmeasure": binary("output", "target"),
        "forward_backward": lambda: {"graph": C.labels_to_graph(sequence()), "features": sequence(), "blankTokenId": 2},
        "gather": lambda: {"reference": weight(3, 2), "indices": vector(1)},
        "hard_sigmoid": lambda: {"x": vector(), "alpha": 0.2, "beta": 0.5},
        "hierarchical_softmax_layer": lambda: {"input_var": vector(), "label_index": vector(1), "label_dim": 9},
        "image_scaler": lambda: {"x": image(), "scalar": 1.0, "biases": [0, 0]},
        "is_training": lambda: {"dtype": np.float32, "name": "training"},
        "labels_to_graph": lambda: {"labels": sequence()},
        "local_response_normalization": lambda: {
            "operand": image(),
            "depth_radius": 1,
            "bias": 1,
            "alpha": 1,
            "beta": 0.5,
        },
        "mean_variance_normalization": lambda: {"operand": vector()},
        "nce_loss": lambda: {
            "weights": weight(4, 3),
            "biases": weight(4, 1),
            "inputs": vector(),
            "labels": SPARSE,
            "noise_distribution": np.ones(4, np.float32),
        },
        "one_hot": lambda: {"x": vector(), "num_classes": 4},
        "optimized_rnnstack": lambda: {
            "operand": sequence(),
            "weights": weight(56, 1),
            "hidden_size": 2,
            "num_layers": 1,
        },
        "output_variable": lambda: {"shape": 3, "dtype": np.float32, "dynamic_axes": [C.Axis.default_batch_axis()]},
        "pad": lambda: {"x": vector(), "pattern": [(1, 1)]},
        "param_relu": lambda: {"alpha": weight(3), "x": vector()},
        "per_dim_mean_variance_normalize": lambda: {
            "operand": vector(),
            "mean": C.constant(0, (3,)),
            "inv_stddev": C.constant(1, (3,)),
        },
        "pooling": lambda: {"operand": image(), "pooling_type": C.MAX_POOLING, "pooling_window_shape": (2, 2)},
        "pow": lambda: {"base": vector(), "exponent": 2},
        "random_sample": lambda: {"weights": np.ones(4, np.float32), "num_samples": 2, "allow_duplicates": True},
        "random_sample_inclusion_frequency": lambda: {
            "weights": np.ones(4, np.float32),
            "num_samples": 2,
            "allow_duplicates": True,
        },
        "reconcile_dynamic_axes": lambda: {"x": vector(), "dynamic_axes_as": vector()},
        "reshape": lambda: {"x": vector(), "shape": (3, 1)},
        "roipooling": lambda: {
            "operand": image(),
            "rois": C.input_variable((2, 4)),
            "pooling_type": C.MAX_POOLING,
            "roi_output_shape": (2, 2),
            "spatial_scale": 1.0,
        },
        "slice": lambda: {"x": vector(), "axis": 0, "begin_index": 0, "end_index": 2},
        "space_to_depth": lambda: {"operand": C.input_variable((1, 4, 4)), "block_size": 2},
        "stop_gradient": unary("input"),
        "swapaxes": lambda: {"x": image()},
        "times": lambda: {"left": vector(), "right": weight(3, 2)},
        "times_transpose": lambda: {"left": vector(), "right": weight(2, 3)},
        "to_batch": lambda: {"x": C.constant(1, (2, 3))},
        "to_sequence": lambda: {"x": C.input_variable((2, 3))},
        "to_sequence_like": lambda: {"x": C.input_variable((2, 3)), "dynamic_axes_like": sequence()},
        "top_k": lambda: {"x": vector(), "k": 2},
        "transpose": lambda: {"x": image(), "perm": (2, 0, 1)},
        "unpooling": lambda: {
            "operand": C.pooling(image(), C.MAX_POOLING, (2, 2), (2, 2)),
            "pooling_input": image(),
            "unpooling_type": C.MAX_UNPOOLING,
            "unpooling_window_shape": (2, 2),
            "strides": (2, 2),
        },
        "weighted_binary_cross_entropy": lambda: {"output": vector(), "target": vector(), "weight": vector()},
        "sequence.broadcast_as": lambda: {"operand": vector(), "broadcast_as_operand": sequence()},
        "sequence.delay": lambda: {"x": sequence()},
        "sequence.future_value": lambda: {"x": sequence()},
        "sequence.past_value": lambda: {"x": sequence()},
        "sequence.gather": lambda: {"seq": sequence(), "condition": sequence(1)},
        "sequence.scatter": lambda: {"seq": sequence(), "condition": sequence(1)},
        "sequence.slice": lambda: {"seq": sequence(), "begin_index": 0, "end_index": 1},
        "sequence.unpack": lambda: {"x": sequence(), "padding_value": 0},
        "sequence.where": lambda: {"condition": sequence(1)},
        # ---- variables and values
        "Axis": lambda: {"axis": 0},
        "Axis.new_unique_dynamic_axis": lambda: {"name": "n"},
        "Axis(1).static_axis_index": dict,
        "Constant": lambda: {"value": 1},
        "Parameter": lambda: {"shape": 3},
        "Variable": lambda: {"shape": 3, "dtype": np.float32},
        "vector().__getitem__": lambda: {"arg": 0},
        "vector().__matmul__": lambda: {"other": weight(3, 2)},
        "weight(3).__getitem__": lambda: {"arg": 0},
        "NDArrayView": lambda: {"shape": 3, "data_type": np.float32},
        "NDArrayView.from_dense": lambda: {"np_array": np.ones(3, np.float32)},
        "NDArrayView.from_data": lambda: {"data": np.ones(3, np.float32)},
        "NDArrayView.from_csr": lambda: {
            "csr_array": __import__("scipy.sparse").sparse.csr_matrix(np.eye(3, dtype=np.float32))
        },
        "NDArrayView.from_dense(np.ones((3, 2), np.float32)).slice_view": lambda: {
            "start_offset": (0, 0),
            "extent": (2, 2),
        },
        "Value": lambda: {"batch": np.ones((2, 3), np.float32)},
        "Value.create": lambda: {"var": vector(), "data": [np.ones(3, np.float32)]},
        "Value.one_hot": lambda: {"batch": [0, 1], "num_classes": 3},
        "value().as_sequences": dict,
        "core.asarray": lambda: {"value": np.ones(3)},
        "asvalue": lambda: {"variable": vector(), "data_array": np.ones((2, 3), np.float32)},
        "user_function": lambda: {"user_func": C.relu(vector())},
        # ---- functions
        "model().__call__": lambda: {"*0": vector()},
        "model().argument_map": lambda: {"*0": vector()},
        "model().clone": lambda: {"method": "share"},
        "model().eval": lambda: {"arguments": FEED[0]},
        "model().forward": lambda: {"arguments": FEED[0]},
        "C.relu(C.input_variable(3, needs_gradient=True)).grad": lambda: {"at": FEED[0]},
        "model().find_all_with_name": lambda: {"name": "dense"},
        "model().find_by_name": lambda: {"name": "dense"},
        "model().save": lambda: {"filename": "m.model"},
        "model().restore": lambda: {"filename": saved(model, "r.model")},
        "C.dropout(vector(), 0.5).set_attribute": lambda: {"name": "dropoutRate", "value": 0.5},
        "C.relu(C.placeholder(3)).replace_placeholder": lambda: {"substitution": vector()},
        "C.relu(C.placeholder(3)).replace_placeholders": lambda: {"substitutions": {}},
        "C.layers.Dense(2).declare_args": lambda: {"*0": C.layers.Tensor[3]},
        "C.layers.Dense(2).update_signature": lambda: {"*0": C.layers.Tensor[3]},
        "Function.with_signature": lambda: {"*0": C.layers.Tensor[3]},
        "Function.load": lambda: {"model": saved(model, "l.model")},
        "load_model": lambda: {"model": saved(model, "l.model")},
        "Function.register_udf_deserialize_callback": lambda: {"op_name": "o", "callback": lambda *a: None},
        "CRITERION.train": lambda: {
            "minibatch_source": tuple(FEED),
            "parameter_learners": [C.sgd(CRITERION.parameters, 0.1)],
        },
        "CRITERION.test": lambda: {"minibatch_source": tuple(FEED)},
        "BlockFunction": lambda: {"op_name": "o", "name": "n"},
        "ops.native_user_function": lambda: {"op_id": native(), "operands": [vector()]},
        "ops.register_native_user_function": lambda: {
            "op_id": C.relu(1).uid,
            "module_name": "jax.numpy",
            "factory_method_name": "log1p",
        },
        # ---- layers
        "layers.AttentionModel": lambda: {"attention_dim": 3},
        "layers.Fold": lambda: {"folder_function": C.layers.GRU(3)},
        "layers.For": lambda: {"what_range": range(2), "constructor": lambda i: C.layers.Dense(2)},
        "layers.Label": lambda: {"name": "n"},
        "layers.PastValueWindow": lambda: {"window_size": 2, "axis": -2},
        "layers.Recurrence": lambda: {"step_function": C.layers.GRU(3)},
        "layers.RecurrenceFrom": lambda: {"step_function": C.layers.GRU(3)},
        "layers.ResNetBlock": lambda: {"f": C.layers.Dense(2)},
        "layers.Sequential": lambda: {"layers": [C.layers.Dense(2)]},
        "layers.SequentialClique": lambda: {"functions": [C.layers.Dense(2)]},
        "layers.Signature": lambda: {"*0": C.layers.Tensor[3]},
        "layers.UnfoldFrom": lambda: {"generator_function": C.layers.Dense(2)},
        "layers.Tensor.__getitem__": lambda: {"*0": 3},
        "layers.Dense(3)": lambda: {"*0": vector()},
        "layers.Convolution2D((3, 3), 2)": lambda: {"*0": image()},
        "layers.LSTM(3)": lambda: {"*0": vector(), "*1": vector(), "*2": vector()},
        "layers.Recurrence(C.layers.GRU(3))": lambda: {"*0": sequence()},
        # ---- initializers, options, devices
        "bilinear": lambda: {"kernel_width": 3, "kernel_height": 3},
        "truncated_normal": lambda: {"stdev": 1},
        "initializer.initializer_with_rank": lambda: {"initializer": C.normal(1)},
        "default_options": lambda: {"activation": C.relu},
        "default_options_for": lambda: {"functions": [C.layers.Dense], "activation": C.relu},
        "is_default_override": lambda: {"value": 1},
        "set_global_option": lambda: {"key": "align_axis", "value": 0},
        "get_global_option": lambda: {"key": "align_axis", "default_value": 0},
        "set_excluded_devices": lambda: {"excluded_devices": []},
        "try_set_default_device": lambda: {"new_default_device": C.cpu()},
        # ---- learners
        "rmsprop": lambda: {
            "parameters": [weight()],
            "lr": 0.1,
            "gamma": 0.9,
            "inc": 1.1,
            "dec": 0.9,
            "max": 1,
            "min": 0.1,
        },
        "universal": lambda: {
            "update_func": lambda p, g: C.combine([C.assign(a, b) for a, b in zip(p, g, strict=False)]),
            "parameters": [weight()],
        },
        "UserLearner": lambda: {"parameters": [weight()], "lr_schedule": C.learning_parameter_schedule(0.1)},
        "learning_parameter_schedule": lambda: {"schedule": 0.1},
        "learning_parameter_schedule_per_sample": lambda: {"schedule": 0.1},
        "learning_rate_schedule": lambda: {"lr": 0.1, "unit": C.UnitType.minibatch},
        "momentum_as_time_constant_schedule": lambda: {"momentum": 100},
        "momentum_schedule": lambda: {"momentum": 0.9},
        "momentum_schedule_per_sample": lambda: {"momentum": 0.9},
        "training_parameter_schedule": lambda: {"schedule": 0.1, "unit": C.UnitType.minibatch},
        "C.learning_parameter_schedule([0.1, 0.2], 4, 10).__getitem__": lambda: {"*0": 0},
        "set_default_unit_gain_value": lambda: {"value": True},
        "learner().reset_learning_rate": lambda: {"learningRateSchedule": C.learning_parameter_schedule(0.2)},
        "C.sgd([WEIGHT], 0.1).update": lambda: {
            "gradient_values": {WEIGHT: np.ones(3, np.float32)},
            "training_sample_count": 1,
        },
        # ---- readers
        "io.Base64ImageDeserializer": lambda: {"filename": "map", "streams": images()},
        "io.ImageDeserializer": lambda: {"filename": "map", "streams": images()},
        "io.HTKMLFDeserializer": lambda: {
            "label_mapping_file": "map",
            "streams": C.io.StreamDefs(x=C.io.StreamDef(shape=3, mlf="x.mlf")),
        },
        "io.LatticeDeserializer": lambda: {"lattice_index_file": "index", "streams": streams("x")},
        "io.MinibatchData": lambda: {"value": value(), "num_sequences": 2, "num_samples": 2, "sweep_end": False},
        "io.MinibatchData(value(), 2, 2, False).as_sequences": dict,
        "io.MinibatchSource": lambda: {"deserializers": data()},
        "C.io.MinibatchSource(data(), max_sweeps=1).next_minibatch": lambda: {"minibatch_size_in_samples": 2},
        "C.io.MinibatchSource(data()).stream_info": lambda: {"name": "x"},
        "C.io.MinibatchSource(data()).__getitem__": lambda: {"name": "x"},
        "C.io.MinibatchSource(data()).restore_from_checkpoint": lambda: {
            "checkpoint": C.io.MinibatchSource(data()).get_checkpoint_state()
        },
        "io.MinibatchSourceFromData": lambda: {"data_streams": {"x": FEED[0]}},
        "source().next_minibatch": lambda: {"num_samples": 2},
        "source().stream_info": lambda: {"name": "x"},
        "source().__getitem__": lambda: {"name": "x"},
        "source().restore_from_checkpoint": lambda: {"checkpoint": source().get_checkpoint_state()},
        "io.StreamConfiguration": lambda: {"name": "x", "dim": 3},
        "io.StreamDef": lambda: {"field": "x", "shape": 3},
        "io.StreamDefs": lambda: {"x": C.io.StreamDef("x", shape=3)},
        "io.StreamInformation": lambda: {
            "name": "x",
            "stream_id": 0,
            "storage_format": "dense",
            "dtype": np.float32,
            "shape": (3,),
        },
        "io.sequence_to_cntk_text_format": lambda: {"seq_idx": 0, "alias_tensor_map": {"x": np.ones((1, 3))}},
        "Generator().stream_info": lambda: {"name": "x"},
        "io.transforms.color": dict,
        "io.transforms.crop": dict,
        "io.transforms.mean": lambda: {"filename": "mean.xml"},
        "io.transforms.scale": lambda: {"width": 4, "height": 4, "channels": 3},
        # ---- training
        "Trainer": lambda: (
            lambda z, y, loss: {"model": z, "criterion": (loss, loss), "parameter_learners": [C.sgd(z.parameters, 0.1)]}
        )(*criterion()),
        "new_trainer().train_minibatch": lambda: {"arguments": tuple(FEED)},
        "new_trainer().test_minibatch": lambda: {"arguments": tuple(FEED)},
        "new_trainer().save_checkpoint": lambda: {"filename": "t.ckp"},
        "new_trainer().restore_from_checkpoint": lambda: {"filename": saved(new_trainer, "s.ckp")},
        "eval.Evaluator": lambda: {"eval_function": CRITERION},
        "Predictor": lambda: {"function": CRITERION},
        "C.eval.Evaluator(CRITERION).test_minibatch": lambda: {"arguments": tuple(FEED)},
        "train.CheckpointConfig": lambda: {"filename": "c.ckp"},
        "train.CrossValidationConfig": lambda: {"minibatch_source": source()},
        "train.TestConfig": lambda: {"minibatch_source": source()},
        "train.minibatch_size_schedule": lambda: {"schedule": [1, 2]},
        "train.training_session": session,
        "train.TrainingSession": lambda: dict(
            session(), max_samples=2, progress_frequency=None, checkpoint_config=None, cv_config=None, test_config=None
        ),
        "train.distributed.block_momentum_distributed_learner": lambda: {"learner": learner(), "block_size": 10},
        "train.distributed.data_parallel_distributed_learner": lambda: {"learner": learner()},
        # ---- logging and debugging
        "logging.TrainingSummaryProgressCallback": lambda: {"epoch_size": 10, "callback": lambda *a: None},
        "logging.log_number_of_parameters": lambda: {"model": model()},
        "logging.depth_first_search": lambda: {"root": model(), "visitor": lambda n: True},
        "logging.find_all_with_name": lambda: {"node": model(), "node_name": "dense"},
        "logging.find_by_name": lambda: {"node": model(), "node_name": "dense"},
        "logging.find_by_uid": lambda: {"node": model(), "node_uid": "x"},
        "logging.get_node_outputs": lambda: {"node": model()},
        "logging.graph.plot": lambda: {"root": model()},
        "logging.set_trace_level": lambda: {"value": 0},
        "C.logging.ProgressPrinter(1).update": lambda: {"loss": 1.0, "minibatch_size": 2},
        "C.logging.ProgressPrinter(1).write": lambda: {"key": "k", "value": 1.0},
        "C.logging.ProgressPrinter(1).log": lambda: {"message": "m"},
        "C.logging.ProgressPrinter(1).end_progress_print": dict,
        "C.logging.ProgressPrinter(1).update_with_trainer": lambda: {"trainer": new_trainer()},
        "C.logging.TensorBoardProgressWriter().write_value": lambda: {"name": "n", "value": 1.0, "step": 1},
        "save_weights": lambda: {"model": model(), "path": "w.safetensors"},
        "load_weights": lambda: {"model": model(), "weights": weights()},
        "debugging.dump_function": lambda: {"root": model()},
        "debugging.dump_signature": lambda: {"root": model()},
        "debugging.force_deterministic": lambda: {"seed": 1},
        "debugging.debug_model": lambda: {"model": model()},
        "debugging.save_as_legacy_model": lambda: {"root_op": model(), "filename": "legacy.model"},
        "debugging.set_checked_mode": lambda: {"enable": False},
        "debugging.set_computation_network_trace_level": lambda: {"level": 0},
        "debugging.set_node_timing": lambda: {"enable": False},
        "debugging.start_profiler": dict,
        "device.use_all_devices": lambda: {"use": False},
        # ---- converters
        "misc.convert": lambda: {"root_func": model(), "filter": lambda f: False, "converter": lambda f: f},
        "misc.convert_optimized_rnnstack": lambda: {"cudnn_model": model()},
        # ---- what CNTK does not have
        "gradient": lambda: {"loss": C.reduce_sum(C.square(WEIGHT)), "wrt": [WEIGHT]},
        "from_optax": lambda: {"parameters": [weight()], "transformation": __import__("optax").sgd(0.1)},
        "core.NDMask": lambda: {"shape": (2, 3)},
        "io.from_iterable": lambda: {"data": [{"x": FEED[0][0]}] * 4, "streams": {"x": 3}},
        "C.io.from_iterable([{'x': FEED[0][0]}] * 4).next_minibatch": lambda: {"num_samples": 2},
        "interop.from_jax": lambda: {"f": lambda p, x: p * x, "parameters": np.ones(3), "operands": vector()},
        "interop.to_jax": lambda: {"function": model()},
        "logging.ProgressBar": dict,
        "logging.ProgressWriter": dict,
        "logging.summary": lambda: {"model": model()},
    }
)
