"""What CNTK takes by its own types: axes, schedules, units, devices, shapes and streams, wherever they may stand.

CNTK 2.7 accepts each of these calls.
"""

import numpy as np
import pytest
from cntk.layers.typing import ParameterTensor, Sequence, SequenceOver, SparseTensor, Tensor

import cntk as C

A, schedule = C.Axis, C.learning_parameter_schedule


def x(*shape):
    return C.input_variable(shape or (3,))


def s(*shape):
    return C.sequence.input_variable(shape or (3,))


def parameters():
    return [C.parameter((3, 2))]


ones = np.ones((1, 3), np.float32)
CALLS = {
    "lr unit": lambda: C.learning_rate_schedule(0.1, C.UnitType.minibatch),
    "lr unit s": lambda: C.learning_rate_schedule([0.1, 0.2], C.UnitType.sample, 100),
    "lr pairs": lambda: C.learning_rate_schedule([(2, 0.1), (1, 0.2)], C.UnitType.sample, 100),
    "lr unit enum": lambda: C.learning_rate_schedule(0.1, C.learners.UnitType.sample),
    "mom unit": lambda: C.momentum_schedule(0.9),
    "mom tc": lambda: C.momentum_as_time_constant_schedule(100),
    "mom tc list": lambda: C.momentum_as_time_constant_schedule([100, 200], epoch_size=10),
    "tps": lambda: C.training_parameter_schedule(0.1, C.UnitType.sample),
    "tps2": lambda: C.learners.training_parameter_schedule([0.1], unit=C.UnitType.minibatch, epoch_size=10),
    "lps sched sched": lambda: schedule(schedule(0.1)),
    "lps int": lambda: schedule(1),
    "lps mbs": lambda: schedule(0.1, minibatch_size=C.learners.IGNORE),
    "lps ps": lambda: C.learning_parameter_schedule_per_sample(0.1, epoch_size=10),
    "sgd sched": lambda: C.sgd(parameters(), schedule(0.1)),
    "sgd float": lambda: C.sgd(parameters(), 0.1),
    "sgd list": lambda: C.sgd(parameters(), [0.1, 0.2], epoch_size=10),
    "sgd tuple params": lambda: C.sgd(tuple(parameters()), schedule(0.1)),
    "sgd noise sched": lambda: C.sgd(parameters(), schedule(0.1), gaussian_noise_injection_std_dev=schedule(0.01)),
    "sgd noise tps": lambda: (
        C.sgd(parameters(), 0.1, gaussian_noise_injection_std_dev=C.training_parameter_schedule(0.1, C.UnitType.sample))
    ),
    "mom sgd": lambda: C.momentum_sgd(parameters(), schedule(0.1), C.momentum_schedule(0.9)),
    "mom sgd f": lambda: C.momentum_sgd(parameters(), schedule(0.1), 0.9),
    "mom sgd l": lambda: C.momentum_sgd(parameters(), schedule(0.1), [0.9, 0.8]),
    "adam": lambda: (
        C.adam(parameters(), schedule(0.1), C.momentum_schedule(0.9), variance_momentum=C.momentum_schedule(0.99))
    ),
    "adam vf": lambda: C.adam(parameters(), 0.1, 0.9, variance_momentum=0.99),
    "reset lr": lambda: C.sgd(parameters(), schedule(0.1)).reset_learning_rate(schedule(0.2)),
    "universal": lambda: C.universal(lambda P, G: C.combine([C.assign(P[0], P[0]-G[0])]), parameters()),
    "axis reduce": lambda: C.reduce_sum(x(2, 3), axis=A(0)),
    "axis reduce list": lambda: C.reduce_sum(x(2, 3), axis=[A(0), 1]),
    "axis reduce all": lambda: C.reduce_sum(x(2, 3), axis=A.all_axes()),
    "axis reduce allstat": lambda: C.reduce_sum(x(2, 3), axis=A.all_static_axes()),
    "axis reduce batch": lambda: C.reduce_sum(x(2, 3), axis=A.default_batch_axis()),
    "axis reduce tuple": lambda: C.reduce_sum(x(2, 3), axis=(0, 1)),
    "axis splice": lambda: C.splice(x(2, 3), x(2, 3), axis=A(1)),
    "axis splice new": lambda: C.splice(x(2, 3), x(2, 3), axis=A.new_leading_axis()),
    "axis splice neg": lambda: C.splice(x(2, 3), x(2, 3), axis=-2),
    "axis softmax": lambda: C.softmax(x(2, 3), axis=A(-1)),
    "axis logsoftmax": lambda: C.log_softmax(x(2, 3), axis=A(0)),
    "axis hardmax": lambda: C.argmax(x(2, 3), axis=A(0)),
    "axis slice": lambda: C.slice(x(4, 3), axis=A(0), begin_index=0, end_index=1),
    "axis slice lists": lambda: C.slice(x(4, 3), axis=[A(0), 1], begin_index=[0, 0], end_index=[1, 2]),
    "axis reshape": lambda: C.reshape(x(4, 3), (12,), A(0), A.end_static_axis()),
    "axis swap": lambda: C.swapaxes(x(4, 3), A(0), A(1)),
    "axis swap i": lambda: C.swapaxes(x(4, 3), 0, A(-1)),
    "axis squeeze": lambda: C.squeeze(x(4, 1, 3), A(1)),
    "axis squeeze l": lambda: C.squeeze(x(4, 1, 1), [A(1), 2]),
    "axis expand": lambda: C.expand_dims(x(4, 3), A(0)),
    "axis flatten": lambda: C.flatten(x(4, 3, 2), A(1)),
    "axis topk": lambda: C.top_k(x(4, 3), 2, axis=A(0)),
    "axis gather": lambda: C.gather(C.parameter((4, 3)), x(1), axis=A(0)),
    "axis toseq": lambda: C.to_sequence(x(4, 3), sequence_axis_name_prefix="q"),
    "axis toseqlike": lambda: C.to_sequence_like(x(4, 3), s(2)),
    "axis ce": lambda: C.cross_entropy_with_softmax(x(2, 3), x(2, 3), axis=A(-1)),
    "axis ce0": lambda: C.classification_error(x(2, 3), x(2, 3), axis=0),
    "axis onehot": lambda: C.one_hot(x(2), 5, axis=A(-1)),
    "axis seqred": lambda: C.sequence.reduce_sum(s(2)),
    "axis input": lambda: C.input_variable(3, dynamic_axes=[A.default_batch_axis(), A("q")]),
    "axis input2": lambda: C.input_variable(3, dynamic_axes=A.default_batch_axis()),
    "axis input str": lambda: C.sequence.input_variable(3, sequence_axis=A("q")),
    "axis uniq": lambda: C.sequence.input_variable(3, sequence_axis=A.new_unique_dynamic_axis("q")),
    "axis dims": lambda: C.input_variable(3, dynamic_axes=(A.default_batch_axis(),)),
    "axis unknown": lambda: C.placeholder((3,), dynamic_axes=A.unknown_dynamic_axes()),
    "axis default in": lambda: C.input_variable(3, dynamic_axes=A.default_input_variable_dynamic_axes()),
    "axis ph": lambda: C.placeholder(dynamic_axes=[A.default_batch_axis()]),
    "axis cumsum mean": lambda: C.layers.LayerNormalization()(x(3)),
    "axis gmn": lambda: C.reduce_mean(x(3), axis=A.default_batch_axis()),
    "axis unpack": lambda: C.sequence.unpack(s(3), 0),
    "dev eval": lambda: C.plus(x(3), 1).eval([ones], device=C.cpu()),
    "dev eval desc": lambda: C.plus(x(3), 1).eval([ones], device=C.DeviceDescriptor.cpu_device()),
    "dev param": lambda: C.parameter((3,), device=C.cpu()),
    "dev const": lambda: C.constant(1, (3,), device=C.cpu()),
    "dev value": lambda: C.Value.create(x(3), [np.ones((3,), np.float32)], device=C.cpu()),
    "dev nd": lambda: C.NDArrayView.from_dense(np.ones((3,), np.float32), device=C.cpu()),
    "dev nd2": lambda: C.NDArrayView((2, 3), np.float32, device=C.cpu()),
    "dev grad": lambda: C.reduce_sum(C.square(C.input_variable(3, needs_gradient=True))).grad([ones], device=C.cpu()),
    "dev fwd": lambda: C.plus(x(3), 1).forward([ones], device=C.cpu()),
    "dev load": lambda: (C.plus(x(3), 1).save("walk.model"), C.load_model("walk.model", device=C.cpu())),
    "dev onehot": lambda: C.Value.one_hot([[1, 2]], 4, device=C.cpu()),
    "dt cast": lambda: C.cast(x(3), np.float64),
    "dt np": lambda: C.input_variable(3, dtype=np.dtype("float32")),
    "dt str": lambda: C.input_variable(3, dtype="float"),
    "dt str2": lambda: C.input_variable(3, dtype="float32"),
    "dt f16": lambda: C.parameter((3,), dtype=np.float16),
    "dt default": lambda: C.default_options(dtype=np.float64),
    "sh np": lambda: C.input_variable(np.array([2, 3])),
    "sh list": lambda: C.input_variable([2, 3]),
    "sh npint": lambda: C.input_variable(np.int64(3)),
    "sh free": lambda: C.input_variable((C.FreeDimension, 3)),
    "sh inf": lambda: C.parameter((C.InferredDimension, 3), init=C.glorot_uniform()),
    "init np": lambda: C.parameter(init=np.ones((2, 3), np.float32)),
    "init fn": lambda: C.parameter((2, 3), init=C.normal(0.1)),
    "init param": lambda: C.constant(C.parameter((2,)).value),
    "stream defs": lambda: C.io.StreamDefs(a=C.io.StreamDef("a", 3), b=C.io.StreamDef("b", 2, is_sparse=True)),
    "stream def inf": lambda: C.io.StreamDef(field="a", shape=3, context=(1, 1)),
    "stream info": lambda: C.io.StreamInformation("a", 0, "dense", np.float32, (3,)),
    "mbfd": lambda: C.io.MinibatchSourceFromData({"x": np.ones((4, 3), np.float32)}).streams.x,
    "mbfd t": lambda: C.io.MinibatchSourceFromData({"x": ([np.ones((4, 3), np.float32)], Sequence[Tensor[3]])}),
    "mbfd next": lambda: (
        C.io.MinibatchSourceFromData({"x": np.ones((4, 3), np.float32)}).next_minibatch(2, device=C.cpu())
    ),
    "mbsize sched": lambda: C.minibatch_size_schedule(32),
    "mbsize sched l": lambda: C.minibatch_size_schedule([32, (2, 64)], 100),
    "prog": lambda: C.logging.ProgressPrinter(freq=10, first=2, tag="T", num_epochs=3),
    "clone enum": lambda: C.plus(x(3), 1).clone(C.CloneMethod.share),
    "clone str": lambda: C.plus(x(3), 1).clone("share"),
    "clone cls": lambda: C.plus(x(3), 1).clone(C.ops.functions.CloneMethod.clone),
    "pool enum": lambda: C.pooling(x(1, 4, 4), C.AVG_POOLING, (2, 2)),
    "pool enum2": lambda: C.pooling(x(1, 4, 4), C.MAX_POOLING, (2, 2), (2, 2), [True]),
    "roi": lambda: C.roipooling(x(1, 8, 8), x(2, 4), C.MAX_POOLING, (2, 2), 1.0),
    "save fmt": lambda: C.plus(x(3), 1).save("walk.onnx", format=C.ModelFormat.ONNX),
    "save fmt2": lambda: C.plus(x(3), 1).save("walk2.model", format=C.ModelFormat.CNTKv2),
    "ckpt": lambda: C.CheckpointConfig("walkck", frequency=10),
    "ckpt u": lambda: C.CheckpointConfig("walkck", frequency=(10, C.train.DataUnit.minibatch)),
    "sig": lambda: C.layers.Dense(2).update_signature(Tensor[3]),
    "sig seq": lambda: C.layers.Recurrence(C.layers.LSTM(2)).update_signature(Sequence[Tensor[3]]),
    "sig so": lambda: C.layers.Recurrence(C.layers.LSTM(2)).update_signature(SequenceOver[A("q")][Tensor[3]]),
    "sig sp": lambda: C.layers.Embedding(2).update_signature(SparseTensor[30]),
    "sig kw": lambda: C.Function(lambda a: a+1).update_signature(a=Tensor[3]),
    "sig shape": lambda: C.layers.Dense(2).update_signature(3),
    "sig shape2": lambda: C.layers.Dense(2).update_signature((3,)),
    "sig nested": lambda: C.layers.Recurrence(C.layers.LSTM(2)).update_signature(Sequence[SparseTensor[3]]),
    "sig py": lambda: C.Function(lambda a: a).update_signature(ParameterTensor[3]),
}


@pytest.mark.filterwarnings("ignore:learning_rate_schedule is deprecated", "ignore:.*epoch_size is ignored")
@pytest.mark.parametrize("name", CALLS)
def test_what_cntk_accepts_by_its_own_types_is_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CALLS[name]()
