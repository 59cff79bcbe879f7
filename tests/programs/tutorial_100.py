"""Programs after the first tutorials: regression, perceptrons, digits, time series, auto-encoders, stocks, sensors."""

import os
import tempfile

import numpy as np
from cntk.logging import ProgressPrinter

import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program, sequences, train


def clouds(count, dim, classes, seed=0):
    """Points around class centres, and their one-hot classes."""
    labels = one_hot(count, classes, seed)
    points = numbers(count, dim, seed=seed) + 3 * labels.argmax(1)[:, None] + 1
    return points.astype(np.float32), labels


@program
def logistic_regression():
    input_dim, num_output_classes = 2, 2
    feature = C.input_variable(input_dim, np.float32)
    mydict = {}

    def linear_layer(input_var, output_dim):
        weight_param = C.parameter(shape=(input_var.shape[0], output_dim), init=numbers(input_var.shape[0], output_dim))
        bias_param = C.parameter(shape=(output_dim))
        mydict['w'], mydict['b'] = weight_param, bias_param
        return C.times(input_var, weight_param) + bias_param

    z = linear_layer(feature, num_output_classes)
    label = C.input_variable(num_output_classes, np.float32)
    loss = C.cross_entropy_with_softmax(z, label)
    eval_error = C.classification_error(z, label)
    lr_schedule = C.learning_parameter_schedule(0.5)
    learner = C.sgd(z.parameters, lr_schedule)
    trainer = C.Trainer(z, (loss, eval_error), [learner])
    history = []
    for i in range(20):
        features, labels = clouds(25, 2, 2, i)
        trainer.train_minibatch({feature: features, label: labels})
        if i % 5 == 0:
            history += [trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average]
    features, labels = clouds(25, 2, 2, 99)
    out = C.softmax(z)
    return {
        "history": history,
        "tested": trainer.test_minibatch({feature: features, label: labels}),
        "bias": mydict['b'].value,
        "weight": mydict['w'].asarray(),
        "result": out.eval({feature: features}),
    }


@program
def feed_forward():
    num_hidden_layers, hidden_layers_dim = 2, 10
    input, label = C.input_variable(2), C.input_variable(2)

    def create_model(features):
        with C.layers.default_options(init=C.layers.glorot_uniform(), activation=C.sigmoid):
            h = features
            for _ in range(num_hidden_layers):
                h = C.layers.Dense(hidden_layers_dim)(h)
            last_layer = C.layers.Dense(2, activation=None)
            return last_layer(h)

    z = fix(create_model(input))
    points, labels = clouds(25, 2, 2)
    result = train(
        z,
        C.cross_entropy_with_softmax(z, label),
        [{input: points, label: labels}],
        0.5,
        C.classification_error(z, label),
    )
    result["first gradient"] = C.cross_entropy_with_softmax(z, label).grad(
        {input: points, label: labels}, wrt=[z.parameters[1]]
    )
    return result


def digits_file():
    path = os.path.join(tempfile.mkdtemp(), "digits.txt")
    pictures, labels = (255 * np.abs(numbers(40, 64)) / 4).astype(int), one_hot(40, 10)
    with open(path, "w") as f:
        for picture, label in zip(pictures, labels):
            f.write(
                "|labels %s |features %s\n" % (" ".join("%d" % v for v in label), " ".join("%d" % v for v in picture))
            )
    return path


def create_reader(path, is_training, input_dim, label_dim):
    return C.io.MinibatchSource(
        C.io.CTFDeserializer(
            path,
            C.io.StreamDefs(
                labels=C.io.StreamDef(field='labels', shape=label_dim, is_sparse=False),
                features=C.io.StreamDef(field='features', shape=input_dim, is_sparse=False),
            ),
        ),
        randomize=False,
        max_sweeps=C.io.INFINITELY_REPEAT if is_training else 1,
    )


@program
def digits():
    path = digits_file()
    input, label = C.input_variable((1, 8, 8)), C.input_variable(10)
    with C.layers.default_options(init=C.glorot_uniform(), activation=C.relu):
        h = input / 255
        h = C.layers.Convolution2D(filter_shape=(3, 3), num_filters=4, strides=(1, 1), pad=True, name='first_conv')(h)
        h = C.layers.AveragePooling(filter_shape=(3, 3), strides=(2, 2), name="pool")(h)
        h = C.layers.Convolution2D(filter_shape=(3, 3), num_filters=6, strides=(2, 2), pad=True, name='second_conv')(h)
        z = C.layers.Dense(10, activation=None, name='classify')(h)
    fix(z, 0.2)
    loss, errs = C.cross_entropy_with_softmax(z, label), C.classification_error(z, label)
    trainer = C.Trainer(
        z,
        (loss, errs),
        [C.sgd(z.parameters, C.learning_parameter_schedule(0.2))],
        [ProgressPrinter(freq=2, log_to_file=os.devnull)],
    )
    reader = create_reader(path, True, 64, 10)
    input_map = {label: reader.streams.labels, input: reader.streams.features}
    history = []
    for _ in range(6):
        trainer.train_minibatch(reader.next_minibatch(16, input_map=input_map))
        history.append(trainer.previous_minibatch_loss_average)
    reader_test = create_reader(path, False, 64, 10)
    test_error, count = 0.0, 0
    while True:
        data = reader_test.next_minibatch(
            16, input_map={label: reader_test.streams.labels, input: reader_test.streams.features}
        )
        if not data:
            break
        n = data[label].num_samples
        test_error += trainer.test_minibatch(data) * n
        count += n
    pooled = C.combine([z.find_by_name("pool").owner]).eval({z.arguments[0]: np.ones((1, 1, 8, 8), np.float32)})
    return {
        "history": history,
        "test": test_error,
        "count": count,
        "shape": list(z.first_conv.shape),
        "bias": z.classify.b.value,
        "pooled": pooled,
        "W": list(z.first_conv.W.shape),
    }


@program
def image_recovered_by_an_autoencoder():
    input_dim, encoding_dim = 64, 8
    input, label = C.input_variable(input_dim), C.input_variable(input_dim)
    with C.layers.default_options(init=C.glorot_uniform()):
        encode = C.layers.Dense(encoding_dim, activation=C.relu)(input / 255.0)
        decode = C.layers.Dense(input_dim, activation=C.sigmoid)(encode)
    fix(decode, 0.2)
    target = label / 255.0
    loss = -(target * C.log(decode) + (1 - target) * C.log(1 - decode))
    label_error = C.classification_error(decode, target)
    data = (255 * np.abs(numbers(16, 64)) / 4).astype(np.float32)
    learner = C.adam(
        decode.parameters,
        C.learning_rate_schedule(0.002, C.UnitType.sample),
        momentum=C.momentum_schedule(0.9, minibatch_size=16),
    )
    trainer = C.Trainer(decode, (C.reduce_mean(loss), label_error), [learner])
    return {"loss": losses(trainer, [{input: data, label: data}]), "decoded": decode.eval({input: data})}


@program
def stock_directions():
    """Yesterday's changes tell whether tomorrow rises; data of the time series come as slices of one array."""
    np.random.seed(0)
    prices = np.cumsum(numbers(120, seed=3)) + 100
    changes = np.diff(prices)
    windows = np.stack([changes[i : i + 8] for i in range(100)]).astype(np.float32)
    up = (changes[8:108] > 0).astype(np.float32)
    labels = np.stack([up, 1 - up], 1)
    input, label = C.input_variable(8), C.input_variable(2)
    z = fix(
        C.layers.Sequential([C.layers.For(range(2), lambda: C.layers.Dense(10, activation=C.relu)), C.layers.Dense(2)])(
            input
        )
    )
    trainer = C.Trainer(
        z,
        (C.cross_entropy_with_softmax(z, label), C.classification_error(z, label)),
        [C.sgd(z.parameters, C.learning_parameter_schedule(0.125))],
    )
    result = []
    for i in range(5):
        batch = slice(20 * i, 20 * i + 20)
        trainer.train_minibatch({input: windows[batch], label: labels[batch]})
        result += [trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average]
    return {"history": result, "samples": trainer.previous_minibatch_sample_count}


@program
def sine_forecast():
    """One LSTM over windows of a sine, the last state gives the next values; x, l as in the sensor tutorial."""
    t = np.arange(0, 12, 0.1, dtype=np.float32)
    xs = [np.sin(t[i : i + 5 + i % 3])[:, None] for i in range(0, 60, 4)]
    ys = np.stack([np.sin(t[i + 8 : i + 9]) for i in range(0, 60, 4)])

    def create_model(x):
        with C.layers.default_options(initial_state=0.1):
            m = C.layers.Recurrence(C.layers.LSTM(5))(x)
            m = C.sequence.last(m)
            m = C.layers.Dropout(0.0)(m)
            m = C.layers.Dense(1)(m)
            return m

    x = C.sequence.input_variable(1)
    z = fix(create_model(x))
    l = C.input_variable(1, dynamic_axes=z.dynamic_axes, name="y")
    loss = C.squared_error(z, l)
    lr_schedule = C.learning_parameter_schedule_per_sample(0.02)
    momentum = C.momentum_schedule(0.9, minibatch_size=len(xs))
    learner = C.fsadagrad(z.parameters, lr=lr_schedule, momentum=momentum)
    trainer = C.Trainer(z, (loss, loss), [learner])
    return {
        "loss": losses(trainer, [{x: xs, l: ys}], 5),
        "tested": trainer.test_minibatch({x: xs, l: ys}),
        "out": z.eval({x: xs}),
    }


@program
def sensor_with_solar_panels():
    """Normalized two-value readings, a whole day at once: LSTM with stabilizer options and a dense head."""
    x = C.sequence.input_variable(2)
    with C.layers.default_options(enable_self_stabilization=True):
        z = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(4)), C.sequence.last, C.layers.Dense(1)])(x)
    fix(z)
    l = C.input_variable(1)
    return train(z, C.squared_error(z, l), [{x: sequences([4, 7, 2], 2), l: numbers(3, 1)}], 0.05)


@program
def sequence_classification():
    """Sparse words, embedded, an LSTM, its last output classified; the numbers of one minibatch as in the examples."""
    features = C.sequence.input_variable(shape=30, is_sparse=True)
    label = C.input_variable(5)
    z = C.layers.Sequential(
        [
            C.layers.Embedding(6, name='embed'),
            C.layers.Recurrence(C.layers.LSTM(7)),
            C.sequence.last,
            C.layers.Dense(5, name='classify'),
        ]
    )(features)
    fix(z)
    ce, pe = C.cross_entropy_with_softmax(z, label), C.classification_error(z, label)
    ids = [[1, 4, 9], [2], [29, 3, 3, 8]]
    trainer = C.Trainer(z, (ce, pe), [C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(0.1))])
    batch = C.Value.one_hot(ids, 30)
    return {
        "loss": losses(trainer, [{features: batch, label: one_hot(3, 5)}], 4),
        "E": z.embed.E.value,
        "out": z.eval({features: C.Value.one_hot([[5, 6, 7], [1, 0]], 30)}),
    }
