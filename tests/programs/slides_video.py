"""The examples of a talk on images and video, 2017; what it elides is filled in with small shapes."""

import os
import tempfile

import numpy
import numpy as np
from cntk.layers import GRU, LSTM, BatchNormalization, Convolution, Dense, Recurrence
from cntk.ops.functions import CloneMethod, UserFunction
from scipy.sparse import csr_matrix

import cntk
import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program, sequences, train, words


@program
def perceptron_by_hand():
    x, y = C.input_variable(4), C.input_variable(3)
    w1, b1 = C.parameter((4, 5), init=numbers(4, 5)), C.parameter(5)
    w2, b2 = C.parameter((5, 5), init=numbers(5, 5, seed=1)), C.parameter(5)
    wout, bout = C.parameter((5, 3), init=numbers(5, 3, seed=2)), C.parameter(3)
    h1 = C.sigmoid(x @ w1 + b1)
    h2 = C.sigmoid(h1 @ w2 + b2)
    P = C.softmax(h2 @ wout + bout)
    ce = C.cross_entropy_with_softmax(h2 @ wout + bout, y)
    result = train(ce, ce, [{x: numbers(6, 4), y: one_hot(6, 3)}])
    result["P"] = P.eval({x: numbers(6, 4)})
    return result


@program
def recurrence_by_hand():
    x, y = C.sequence.input_variable(4), C.sequence.input_variable(3)
    w1, b1, R1 = (
        C.parameter((4, 5), init=numbers(4, 5)),
        C.parameter(5),
        C.parameter((5, 5), init=numbers(5, 5, seed=3)),
    )
    wout, bout = C.parameter((5, 3), init=numbers(5, 3, seed=2)), C.parameter(3)
    h1 = C.placeholder()
    h = C.sigmoid(x @ w1 + C.sequence.past_value(h1) @ R1 + b1)
    h.replace_placeholders({h1: h})
    ce = C.cross_entropy_with_softmax(h @ wout + bout, y)
    return train(ce, ce, [{x: sequences([3, 5, 1], 4), y: words([3, 5, 1], 3)}])


@program
def convolutional_network():
    x, y = C.input_variable((1, 12, 12)), C.input_variable(4)

    def model(x):
        h = C.layers.Convolution2D((5, 5), 8, activation=C.relu, pad=True)(x)
        h = C.layers.MaxPooling((2, 2), (2, 2))(h)
        h = C.layers.Convolution2D((5, 5), 16, activation=C.relu, pad=True)(h)
        h = C.layers.MaxPooling((2, 2), (2, 2))(h)
        return C.layers.Dense(4, activation=None)(h)

    z = fix(model(x), 0.1)
    return train(
        z,
        C.cross_entropy_with_softmax(z, y),
        [{x: numbers(4, 1, 12, 12), y: one_hot(4, 4)}],
        0.05,
        C.classification_error(z, y),
    )


@program
def tagger():
    x, y = C.sequence.input_variable(20), C.sequence.input_variable(7)
    z = C.layers.Sequential([C.layers.Embedding(6), Recurrence(LSTM(5), go_backwards=False), Dense(7)])(x)
    fix(z)
    return train(
        z,
        C.cross_entropy_with_softmax(z, y),
        [{x: words([4, 2, 6], 20), y: words([4, 2, 6], 7)}],
        0.3,
        C.classification_error(z, y),
    )


@program
def schedule():
    z = fix(Dense(2)(C.input_variable(3)))
    lr_schedule = C.learning_rate_schedule([0.05] * 3 + [0.025] * 2 + [0.0125], C.UnitType.minibatch, epoch_size=100)
    y = C.input_variable(2)
    sgd_learner = C.sgd(z.parameters, lr_schedule)
    trainer = C.Trainer(z, C.squared_error(z, y), sgd_learner)
    feed = {z.arguments[0]: numbers(50, 3), y: numbers(50, 2, seed=1)}
    rates, loss = [], []
    for _ in range(14):
        rates.append(sgd_learner.learning_rate())
        loss += losses(trainer, [feed], 1)
    return {"rates": rates, "loss": loss}


def concat_elu(x):
    return cntk.elu(cntk.splice(x, -x, axis=0))


def selu(x, scale, alpha):
    return cntk.element_times(scale, cntk.element_select(cntk.less(x, 0), alpha * cntk.elu(x), x))


def log_prob_from_logits(x, axis):
    m = cntk.reduce_max(x, axis)
    return x - m - cntk.log(cntk.reduce_sum(cntk.exp(x - m), axis=axis))


@program
def layers_of_operations():
    x = C.input_variable((3, 4), needs_gradient=True)
    data = numbers(2, 3, 4)
    result = {}
    for name, f in (
        ("concat_elu", concat_elu(x)),
        ("selu", selu(x, 1.05, 1.67)),
        ("log_prob", log_prob_from_logits(x, 1)),
    ):
        result[name] = f.eval({x: data})
        result[name + "'"] = C.reduce_sum(f * f).grad({x: data})
    return result


class MySigmoid(UserFunction):
    def __init__(self, arg, name='MySigmoid'):
        super(MySigmoid, self).__init__([arg], name=name)

    def forward(self, argument, device=None, outputs_to_retain=None):
        sigmoid_x = 1 / (1 + numpy.exp(-argument))
        return sigmoid_x, sigmoid_x

    def backward(self, state, root_gradients):
        sigmoid_x = state
        return root_gradients * sigmoid_x * (1 - sigmoid_x)

    def infer_outputs(self):
        return [cntk.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]


@program
def layer_in_python():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(Dense(3)(cntk.user_function(MySigmoid(Dense(5)(x)))))
    return train(z, C.cross_entropy_with_softmax(z, y), [{x: numbers(6, 4), y: one_hot(6, 3)}])


def my_rmsprop(parameters, gradients):
    rho = 0.999
    lr = 0.01
    accumulators = [C.constant(1e-6, shape=p.shape, dtype=p.dtype) for p in parameters]
    update_funcs = []
    for p, g, a in zip(parameters, gradients, accumulators):
        accum_new = cntk.assign(a, rho * a + (1 - rho) * g * g)
        update_funcs.append(cntk.assign(p, p - lr * g / cntk.sqrt(accum_new)))
    return cntk.combine(update_funcs)


@program
def learner_of_operations():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(Dense(3)(Dense(5, C.tanh)(x)))
    my_learner = cntk.universal(my_rmsprop, z.parameters)
    trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), my_learner)
    return {"loss": losses(trainer, [{x: numbers(6, 4), y: one_hot(6, 3)}], 6), "b": z.parameters[1].value}


@program
def vgg16():
    x, y = C.input_variable((3, 32, 32)), C.input_variable(5)
    with C.layers.default_options(activation=C.relu, init=C.glorot_uniform()):
        z = C.layers.Sequential(
            [
                C.layers.For(
                    range(2),
                    lambda i: [
                        C.layers.Convolution((3, 3), [4, 6][i], pad=True),
                        C.layers.Convolution((3, 3), [4, 6][i], pad=True),
                        C.layers.MaxPooling((3, 3), strides=(2, 2)),
                    ],
                ),
                C.layers.For(
                    range(2),
                    lambda i: [
                        C.layers.Convolution((3, 3), [8, 8][i], pad=True),
                        C.layers.Convolution((3, 3), [8, 8][i], pad=True),
                        C.layers.Convolution((3, 3), [8, 8][i], pad=True),
                        C.layers.MaxPooling((3, 3), strides=(2, 2)),
                    ],
                ),
                C.layers.For(range(2), lambda: [C.layers.Dense(16), C.layers.Dropout(0.0)]),
                C.layers.Dense(5, None),
            ]
        )(x)
    fix(z, 0.2)
    result = train(z, C.cross_entropy_with_softmax(z, y), [{x: numbers(4, 3, 32, 32), y: one_hot(4, 5)}], 0.01)
    result["shapes"] = [list(p.shape) for p in z.parameters][0]
    return result


def conv_bn(input, filter_size, num_filters, strides=(1, 1), activation=C.relu):
    c = Convolution(filter_size, num_filters, activation=None, pad=True, strides=strides)(input)
    r = BatchNormalization(map_rank=1, normalization_time_constant=4096)(c)
    if activation is not None:
        r = activation(r)
    return r


def resnet_basic(input, num_filters):
    c1 = conv_bn(input, (3, 3), num_filters)
    c2 = conv_bn(c1, (3, 3), num_filters, activation=None)
    return C.relu(c2 + input)


def resnet_basic_inc(input, num_filters, strides=(2, 2)):
    c1 = conv_bn(input, (3, 3), num_filters, strides)
    c2 = conv_bn(c1, (3, 3), num_filters, activation=None)
    s = conv_bn(input, (1, 1), num_filters, strides, None)
    p = c2 + s
    return C.relu(p)


def resnet_basic_stack(input, num_filters, num_stack):
    r = input
    for _ in range(num_stack):
        r = resnet_basic(r, num_filters)
    return r


@program
def resnet():
    x, y = C.input_variable((3, 8, 8)), C.input_variable(5)
    c = conv_bn(x, (3, 3), 4)
    r1_1 = resnet_basic_stack(c, 4, 2)
    r2_1 = resnet_basic_inc(r1_1, 6)
    r2_2 = resnet_basic_stack(r2_1, 6, 1)
    pool = C.layers.GlobalAveragePooling()(r2_2)
    z = fix(C.layers.Dense(5, init=C.he_normal(), activation=None)(pool))
    feed = {x: numbers(8, 3, 8, 8), y: one_hot(8, 5)}
    result = train(z, C.cross_entropy_with_softmax(z, y), [feed], 0.02, C.classification_error(z, y))
    result["z"] = z.eval({x: feed[x]})
    return result


def conv_bn_padded(input, num_filters, filter_size, pad=True):
    c = Convolution(filter_size, num_filters, activation=None, pad=pad)(input)
    return C.relu(BatchNormalization(map_rank=1)(c))


def inception_block(input, num1x1, num3x3, num5x5, num_pool):
    branch1x1 = conv_bn_padded(input, num1x1, (1, 1), True)
    branch3x3 = conv_bn_padded(input, num3x3[0], (1, 1), True)
    branch3x3 = conv_bn_padded(branch3x3, num3x3[1], (3, 3), True)
    branch5x5 = conv_bn_padded(input, num5x5[0], (1, 1), True)
    branch5x5 = conv_bn_padded(branch5x5, num5x5[1], (5, 5), True)
    branch_pool = C.layers.MaxPooling((3, 3), pad=True)(input)
    branch_pool = conv_bn_padded(branch_pool, num_pool, (1, 1), True)
    return C.splice(branch1x1, branch3x3, branch5x5, branch_pool, axis=0)


@program
def inception():
    x, y = C.input_variable((3, 9, 9)), C.input_variable(5)
    h = inception_block(x, 2, [2, 3], [1, 2], 2)
    h = inception_block(h, 3, [2, 4], [2, 3], 2)
    z = fix(Dense(5)(C.layers.AveragePooling((9, 9))(h)))
    result = train(z, C.cross_entropy_with_softmax(z, y), [{x: numbers(6, 3, 9, 9), y: one_hot(6, 5)}], 0.05)
    result["splice"] = list(h.shape)
    return result


@program
def faster_rcnn():
    folder = tempfile.mkdtemp()
    base_model_file = os.path.join(folder, "base.model")
    data = C.input_variable((3, 16, 16), name="data")
    with C.default_options(activation=C.relu, pad=True):
        base = C.layers.Sequential(
            [
                Convolution((3, 3), 4, name="conv1"),
                Convolution((3, 3), 4, activation=None),
                C.layers.Activation(C.relu, name="relu5_3"),
                C.layers.MaxPooling((4, 4), (4, 4), name="pool5"),
                Dense(8, name="fc6"),
                C.layers.Dropout(0.0, name="drop7"),
                Dense(5, activation=None),
            ]
        )(data)
    fix(base).save(base_model_file)

    def clone_model(base_model, from_node_names, to_node_names, clone_method):
        from_nodes = [cntk.logging.graph.find_by_name(base_model, name) for name in from_node_names]
        to_nodes = [cntk.logging.graph.find_by_name(base_model, name) for name in to_node_names]
        assert None not in from_nodes + to_nodes
        input_placeholders = dict(zip(from_nodes, [C.placeholder() for _ in from_nodes]))
        return C.combine(to_nodes).clone(clone_method, input_placeholders)

    input_var, rois, label_targets = C.input_variable((3, 16, 16)), C.input_variable((6, 4)), C.input_variable((6, 3))
    base_model = cntk.load_model(base_model_file)
    conv_layers = clone_model(base_model, ["data"], ["relu5_3"], CloneMethod.freeze)
    conv_out = conv_layers(input_var - C.Constant(0.5))
    roi_out = C.roipooling(conv_out, rois, cntk.MAX_POOLING, (4, 4), spatial_scale=1.0)
    fc_layers = clone_model(base_model, ["pool5"], ["drop7"], CloneMethod.clone)
    fc_out = fc_layers(roi_out)
    W = C.parameter(shape=(8, 3), init=numbers(8, 3, seed=9))
    b = C.parameter(shape=3, init=0)
    cls_score = C.times(fc_out, W) + b
    loss = C.reduce_sum(C.cross_entropy_with_softmax(cls_score, label_targets, axis=1))
    pred_error = C.classification_error(cls_score, label_targets, axis=1)
    corners = np.abs(numbers(2, 6, 2, seed=5)) * 2
    boxes = np.concatenate([corners, corners + 8], axis=2)
    feed = {input_var: numbers(2, 3, 16, 16), rois: boxes, label_targets: one_hot(12, 3).reshape(2, 6, 3)}
    result = train(cls_score, loss, [feed], 0.01, C.reduce_mean(pred_error))
    result["frozen"] = len(conv_layers.parameters)
    result["learned"] = len(cls_score.parameters)
    return result


@program
def gan():
    noise, real_input = C.input_variable(3), C.input_variable(4)
    g = fix(C.layers.Sequential([Dense(6, C.relu), Dense(4, C.tanh)])(noise))
    scaled = 2 * real_input
    d_real = fix(C.layers.Sequential([Dense(6, C.relu), Dense(1, C.sigmoid)])(scaled), seed=7)
    d_fake = d_real.clone(method="share", substitutions={scaled.output: g.output})
    g_loss = 1.0 - C.log(d_fake)
    d_loss = -(C.log(d_real) + C.log(1.0 - d_fake))
    lr, momentum = 0.02, 0.5
    g_learner = C.adam(
        parameters=g.parameters,
        lr=C.learning_rate_schedule(lr, C.UnitType.sample),
        momentum=C.momentum_schedule(momentum),
    )
    d_learner = C.adam(
        parameters=d_real.parameters,
        lr=C.learning_rate_schedule(lr, C.UnitType.sample),
        momentum=C.momentum_schedule(momentum),
    )
    g_trainer = C.Trainer(g, (g_loss, None), g_learner)
    d_trainer = C.Trainer(d_real, (d_loss, None), d_learner)
    of_g, of_d = [], []
    for step in range(5):
        of_d += losses(d_trainer, [{noise: numbers(4, 3, seed=step), real_input: numbers(4, 4, seed=9 + step)}], 1)
        of_g += losses(g_trainer, [{noise: numbers(4, 3, seed=20 + step)}], 1)
    return {"g": of_g, "d": of_d}


class Captioner:
    """Words of a caption after an image: the image's features stand beside every word."""

    vocabulary = 6

    def __init__(self):
        self.image = C.input_variable((3, 8, 8))
        vgg = C.layers.Sequential([C.layers.Convolution2D((3, 3), 3), C.layers.MaxPooling((6, 6)), Dense(4)])
        self.features = C.reshape(vgg(self.image), 4)
        self.embed, self.rnn, self.out = C.layers.Embedding(4), Recurrence(GRU(5)), Dense(self.vocabulary)

    def __call__(self, features, caption):
        return self.out(self.rnn(C.splice(C.sequence.broadcast_as(features, caption), self.embed(caption))))


@program
def image_captioning():
    model = Captioner()
    axis = C.Axis("inputAxis")
    caption = C.sequence.input_variable(model.vocabulary, is_sparse=True, sequence_axis=axis)
    target = C.sequence.input_variable(model.vocabulary, is_sparse=True, sequence_axis=axis)
    z = fix(model(model.features, caption))
    feed = {
        model.image: numbers(2, 3, 8, 8),
        caption: [csr_matrix(w) for w in words([4, 3], model.vocabulary)],
        target: [csr_matrix(w) for w in words([4, 3], model.vocabulary, seed=5)],
    }
    return train(z, C.cross_entropy_with_softmax(z, target), [feed])


@program
def captions_decoded_greedily():
    model, sentence_start = Captioner(), C.constant(np.eye(6, dtype=np.float32)[0])
    caption = C.sequence.input_variable(model.vocabulary)
    fix(model(model.features, caption))

    @C.Function
    def eval_greedy(image, steps):
        unfold = C.layers.UnfoldFrom(
            lambda history: model(image, history) >> C.hardmax, until_predicate=lambda w: w[..., model.vocabulary - 1]
        )
        return unfold(initial_state=sentence_start, dynamic_axes_like=steps)

    steps = C.sequence.input_variable(1)
    decoded = eval_greedy(model.features, steps)
    return {
        "words": decoded.eval(
            {model.image: numbers(2, 3, 8, 8), steps: [np.zeros((5, 1), np.float32), np.zeros((3, 1), np.float32)]}
        )
    }


@program
def convolution3d():
    x, y = C.input_variable((2, 8, 14, 14)), C.input_variable(4)
    with C.default_options(activation=C.relu):
        z = C.layers.Sequential(
            [
                C.layers.Convolution3D((3, 3, 3), 4, pad=True),
                C.layers.MaxPooling((1, 2, 2), (1, 2, 2)),
                C.layers.For(
                    range(2),
                    lambda i: [
                        C.layers.Convolution3D((3, 3, 3), [5, 6][i], pad=True),
                        C.layers.Convolution3D((3, 3, 3), [5, 6][i], pad=True),
                        C.layers.MaxPooling((2, 2, 2), (2, 2, 2)),
                    ],
                ),
                C.layers.For(range(2), lambda: [C.layers.Dense(8), C.layers.Dropout(0.0)]),
                C.layers.Dense(4, activation=None),
            ]
        )(x)
    fix(z, 0.15)
    return train(z, C.cross_entropy_with_softmax(z, y), [{x: numbers(3, 2, 8, 14, 14), y: one_hot(3, 4)}], 0.02)


@program
def pseudo_convolution3d_with_late_fusion():
    def tower(x):
        return C.layers.Sequential(
            [
                C.layers.Convolution3D((1, 3, 3), 4),
                C.layers.Convolution3D((3, 1, 1), 4),
                C.layers.MaxPooling((1, 2, 2), (1, 2, 2)),
                C.layers.For(
                    range(1),
                    lambda i: [C.layers.Convolution3D((3, 3, 3), [5][i]), C.layers.MaxPooling((2, 2, 2), (2, 2, 2))],
                ),
            ]
        )(x)

    x1, x2, y = C.input_variable((1, 6, 12, 12)), C.input_variable((1, 6, 12, 12)), C.input_variable(4)
    with C.default_options(activation=C.relu):
        z1, z2 = tower(x1), tower(x2)
        z = C.layers.Sequential(
            [C.layers.For(range(2), lambda: [C.layers.Dense(8), C.layers.Dropout(0.0)]), C.layers.Dense(4, None)]
        )(C.splice(z1, z2, axis=0))
    fix(z, 0.2)
    feed = {x1: numbers(3, 1, 6, 12, 12), x2: numbers(3, 1, 6, 12, 12, seed=1), y: one_hot(3, 4)}
    return train(z, C.cross_entropy_with_softmax(z, y), [feed], 0.02)


@program
def features_of_a_loaded_model():
    model_file = os.path.join(tempfile.mkdtemp(), "net.model")
    x = C.input_variable((3, 8, 8), name="features")
    net = C.layers.Sequential(
        [
            C.layers.Convolution2D((3, 3), 4, activation=C.relu, name="conv"),
            Dense(6, C.tanh, name="hidden"),
            Dense(2, name="top"),
        ]
    )(x)
    fix(net).save(model_file)
    loaded_model = C.load_model(model_file)
    result = {}
    for node_name in ("conv", "hidden"):
        node_in_graph = loaded_model.find_by_name(node_name)
        output_node = C.as_composite(node_in_graph)
        result[node_name] = output_node.eval(numbers(2, 3, 8, 8))
        result[node_name + " shape"] = list(node_in_graph.shape)
    return result


@program
def lstm_stack():
    input_var = C.sequence.input_variable(shape=4)
    label_var = C.input_variable(3)
    z = C.layers.Sequential([C.layers.For(range(3), lambda: Recurrence(LSTM(5))), C.sequence.last, C.layers.Dense(3)])(
        input_var
    )
    fix(z)
    return train(
        z, C.cross_entropy_with_softmax(z, label_var), [{input_var: sequences([3, 6, 1], 4), label_var: one_hot(3, 3)}]
    )


@program
def bidirectional_gru_stack():
    input_var = C.sequence.input_variable(shape=4)
    label_var = C.input_variable(3)
    fwd = C.layers.Sequential([C.layers.For(range(3), lambda: Recurrence(GRU(5))), C.sequence.last])(input_var)
    bwd = C.layers.Sequential(
        [C.layers.For(range(3), lambda: Recurrence(GRU(5), go_backwards=True)), C.sequence.first]
    )(input_var)
    z = fix(C.layers.Dense(3)(C.splice(fwd, bwd)))
    return train(
        z, C.cross_entropy_with_softmax(z, label_var), [{input_var: sequences([3, 6, 1], 4), label_var: one_hot(3, 3)}]
    )
