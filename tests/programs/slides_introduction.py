"""The examples of a talk that introduced CNTK 2.0; what it elides is filled in with small shapes."""

import os
import tempfile

import numpy as np
from cntk.initializer import he_normal
from cntk.io import INFINITELY_REPEAT, CTFDeserializer, MinibatchSource, StreamDef, StreamDefs
from cntk.layers import (
    Activation,
    AveragePooling,
    BatchNormalization,
    Convolution,
    Convolution2D,
    Dense,
    Dropout,
    For,
    MaxPooling,
    Sequential,
    default_options,
)
from cntk.learners import UserLearner
from cntk.ops.functions import CloneMethod

import cntk
import cntk as C
from cntk import load_model, parameter, relu, roipooling, times
from tests.programs.common import fix, losses, numbers, one_hot, program, train


@program
def layers_one_by_one():
    scaled_input, label_var = C.input_variable((3, 24, 24)), C.input_variable(4)
    with default_options(activation=cntk.ops.relu, pad=False):
        conv1 = Convolution2D((5, 5), 4, pad=True)(scaled_input)
        pool1 = MaxPooling((3, 3), (2, 2))(conv1)
        conv2 = Convolution2D((3, 3), 5)(pool1)
        pool2 = MaxPooling((3, 3), (2, 2))(conv2)
        conv3 = Convolution2D((3, 3), 6)(pool2)
        f4 = Dense(9)(conv3)
        drop4 = Dropout(0.0)(f4)
        z = Dense(4, activation=None)(drop4)
    fix(z, 0.1)
    ce = cntk.losses.cross_entropy_with_softmax(z, label_var)
    pe = cntk.metrics.classification_error(z, label_var)
    return train(z, ce, [{scaled_input: numbers(4, 3, 24, 24), label_var: one_hot(4, 4)}], 0.02, pe)


class MySgd(UserLearner):
    def __init__(self, parameters, lr_schedule):
        super(MySgd, self).__init__(parameters, lr_schedule, as_numpy=False)

    def update(self, gradient_values, training_sample_count, sweep_end):
        eta = self.learning_rate() / training_sample_count
        for p, g in gradient_values.items():
            new_p = p - eta * C.constant(g)
            p.set_value(new_p.eval(as_numpy=False).data)
        return True


@program
def learner_in_python():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(Dense(3)(Dense(5, C.tanh)(x)))
    trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), MySgd(z.parameters, C.learning_parameter_schedule(0.5)))
    result = {"loss": losses(trainer, [{x: numbers(6, 4), y: one_hot(6, 3)}], 6)}
    result["b"] = z.parameters[1].value
    return result


@program
def vgg16():
    input, y = C.input_variable((3, 16, 16)), C.input_variable(5)
    with default_options(activation=None, pad=True, bias=True):
        z = Sequential(
            [
                For(
                    range(2),
                    lambda i: [
                        Convolution2D((3, 3), 4, name='conv1_{}'.format(i)),
                        Activation(activation=relu, name='relu1_{}'.format(i)),
                    ],
                ),
                MaxPooling((2, 2), (2, 2), name='pool1'),
                For(
                    range(2),
                    lambda i: [
                        Convolution2D((3, 3), 6, name='conv2_{}'.format(i)),
                        Activation(activation=relu, name='relu2_{}'.format(i)),
                    ],
                ),
                MaxPooling((2, 2), (2, 2), name='pool2'),
                Dense(12, name='fc6'),
                Activation(activation=relu, name='relu6'),
                Dropout(0.0, name='drop6'),
                Dense(12, name='fc7'),
                Activation(activation=relu, name='relu7'),
                Dropout(0.0, name='drop7'),
                Dense(5, name='fc8'),
            ]
        )(input)
    fix(z, 0.2)
    result = train(z, C.cross_entropy_with_softmax(z, y), [{input: numbers(4, 3, 16, 16), y: one_hot(4, 5)}], 0.02)
    result["names"] = [z.find_by_name(name).op_name for name in ("conv1_1", "relu2_0", "pool2", "fc7", "drop7")]
    return result


def conv_bn(input, filter_size, num_filters, strides=(1, 1), init=he_normal()):
    c = Convolution(filter_size, num_filters, activation=None, init=init, pad=True, strides=strides)(input)
    r = BatchNormalization(map_rank=1, normalization_time_constant=4096, use_cntk_engine=False)(c)
    return r


def conv_bn_relu(input, filter_size, num_filters, strides=(1, 1), init=he_normal()):
    r = conv_bn(input, filter_size, num_filters, strides, init)
    return relu(r)


def resnet_basic(input, num_filters):
    c1 = conv_bn_relu(input, (3, 3), num_filters)
    c2 = conv_bn(c1, (3, 3), num_filters)
    p = c2 + input
    return relu(p)


def resnet_basic_inc(input, num_filters):
    c1 = conv_bn_relu(input, (3, 3), num_filters, (2, 2))
    c2 = conv_bn(c1, (3, 3), num_filters)
    return relu(c2 + conv_bn(input, (1, 1), num_filters, (2, 2)))


def resnet_basic_stack(input, num_stack_layers, num_filters):
    l = input
    for _ in range(num_stack_layers):
        l = resnet_basic(l, num_filters)
    return l


def create_cifar10_model(input, num_stack_layers, num_classes):
    c_map = [3, 4, 5]

    conv = conv_bn_relu(input, (3, 3), c_map[0])
    r1 = resnet_basic_stack(conv, num_stack_layers, c_map[0])

    r2_1 = resnet_basic_inc(r1, c_map[1])
    r2_2 = resnet_basic_stack(r2_1, num_stack_layers - 1, c_map[1])

    r3_1 = resnet_basic_inc(r2_2, c_map[2])
    r3_2 = resnet_basic_stack(r3_1, num_stack_layers - 1, c_map[2])

    pool = AveragePooling(filter_shape=(2, 2))(r3_2)
    z = Dense(num_classes)(pool)
    return z


@program
def resnet_of_cifar10():
    x, y = C.input_variable((3, 12, 12)), C.input_variable(5)
    z = fix(create_cifar10_model(x, 1, 5))
    feed = {x: numbers(8, 3, 12, 12), y: one_hot(8, 5)}
    result = train(z, C.cross_entropy_with_softmax(z, y), [feed], 0.02, C.classification_error(z, y))
    result["evaluated"] = z.eval({x: feed[x]})
    return result


def clone_part(model, from_names, to_names, clone_method):
    places = {model.find_by_name(name): C.placeholder(name=name) for name in from_names}
    return C.combine([model.find_by_name(name) for name in to_names]).clone(clone_method, places)


def frcn_predictor(features, rois, n_classes, model_path, roi_dim):
    loaded_model = load_model(model_path)
    conv_layers = clone_part(loaded_model, ["features"], ["conv_out"], CloneMethod.freeze)
    fc_layers = clone_part(loaded_model, ["pool"], ["hidden"], CloneMethod.clone)
    feat_norm = features - C.Constant(114)
    conv_out = conv_layers(feat_norm)
    roi_out = roipooling(conv_out, rois, cntk.MAX_POOLING, (roi_dim, roi_dim), 0.5)
    fc_out = fc_layers(roi_out)
    W = parameter(shape=(7, n_classes), init=numbers(7, n_classes, seed=3))
    b = parameter(shape=n_classes, init=0)
    z = times(fc_out, W) + b
    return z


@program
def fast_rcnn():
    path = os.path.join(tempfile.mkdtemp(), "base.model")
    base = Sequential(
        [
            Convolution2D((3, 3), 4, strides=(2, 2), pad=True, activation=relu, name="conv_out"),
            MaxPooling((2, 2), (2, 2), name="pool"),
            Dense(7, activation=relu, name="hidden"),
            Dense(3),
        ]
    )
    fix(base(C.input_variable((3, 16, 16), name="features")), 0.05).save(path)
    features, rois, labels = C.input_variable((3, 16, 16)), C.input_variable((4, 4)), C.input_variable((4, 5))
    z = frcn_predictor(features, rois, 5, path, 4)
    corners = np.abs(numbers(2, 4, 2, seed=5)) * 2
    feed = {
        features: 114 + 30 * numbers(2, 3, 16, 16),
        rois: np.concatenate([corners, corners + 9], axis=2),
        labels: one_hot(8, 5).reshape(2, 4, 5),
    }
    loss = C.reduce_sum(C.cross_entropy_with_softmax(z, labels, axis=1))
    result = train(z, loss, [feed], 0.005, C.reduce_mean(C.classification_error(z, labels, axis=1)))
    result["learned"] = len(z.parameters)
    return result


@program
def two_text_files_in_one_reader():
    folder = tempfile.mkdtemp()
    roi_file, label_file = os.path.join(folder, "rois.ctf"), os.path.join(folder, "labels.ctf")
    with open(roi_file, "w") as f:
        f.writelines("%d |rois %s\n" % (i, " ".join("%.3f" % v for v in row)) for i, row in enumerate(numbers(6, 8)))
    with open(label_file, "w") as f:
        f.writelines("%d |roiLabels %s\n" % (i, " ".join("%d" % v for v in row)) for i, row in enumerate(one_hot(6, 3)))
    roi_source = CTFDeserializer(roi_file, StreamDefs(rois=StreamDef(field="rois", shape=8, is_sparse=False)))
    label_source = CTFDeserializer(
        label_file, StreamDefs(roiLabels=StreamDef(field="roiLabels", shape=3, is_sparse=False))
    )
    reader = MinibatchSource([roi_source, label_source], randomize=False, max_sweeps=INFINITELY_REPEAT)
    x, y = C.input_variable(8), C.input_variable(3)
    z = fix(Dense(3)(x))
    trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), C.sgd(z.parameters, C.learning_parameter_schedule(0.1)))
    loss = []
    for _ in range(5):
        minibatch = reader.next_minibatch(4, {x: reader.streams.rois, y: reader.streams.roiLabels})
        trainer.train_minibatch(minibatch)
        loss.append(trainer.previous_minibatch_loss_average)
    return {"loss": loss, "samples": trainer.total_number_of_samples_seen}


@program
def distributed_learners_of_one_process():
    x, y = C.input_variable(4), C.input_variable(3)
    result = {}
    for name, wrap in (
        ("data parallel", lambda learner: cntk.train.distributed.data_parallel_distributed_learner(learner)),
        ("none", lambda learner: learner),
    ):
        z = fix(Dense(3)(x))
        learner = wrap(C.momentum_sgd(z.parameters, C.learning_parameter_schedule(0.2), C.momentum_schedule(0.9)))
        trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [learner])
        result[name] = losses(trainer, [{x: numbers(6, 4), y: one_hot(6, 3)}], 4)
    result["workers"] = cntk.train.distributed.Communicator.num_workers()
    cntk.train.distributed.Communicator.finalize()
    return result


@program
def segmentation_with_unpooling_and_crop():
    x, y = C.input_variable((3, 16, 16)), C.input_variable((4, 16, 16))
    conv = Convolution2D((3, 3), 5, pad=True, activation=relu)(x)
    pooled = C.pooling(conv, C.MAX_POOLING, (2, 2), (2, 2))
    inner = Convolution2D((3, 3), 5, pad=True, activation=relu)(pooled)
    up = C.unpooling(inner, conv, C.MAX_UNPOOLING, (2, 2), (2, 2))
    scores = C.layers.ConvolutionTranspose2D((4, 4), 4, strides=(2, 2), pad=False)(pooled)
    z = Convolution2D((1, 1), 4)(up) + C.crop_manual(scores, x, 1, 1)
    fix(z, 0.1)
    labels = one_hot(2 * 256, 4).reshape(2, 16, 16, 4).transpose(0, 3, 1, 2)
    ce = C.reduce_mean(C.cross_entropy_with_softmax(z, y, axis=0))
    # One step: CNTK's gradient of unpooling is another from the second on (docs/compatibility.md).
    return train(z, ce, [{x: numbers(2, 3, 16, 16), y: np.ascontiguousarray(labels)}], 0.1, steps=1)
