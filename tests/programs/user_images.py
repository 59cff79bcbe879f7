"""Programs of users who work with pictures: style, regions, capsules, features, clips."""

import os
import tempfile

import numpy as np
import scipy.optimize
from cntk.layers import (
    LSTM,
    AveragePooling,
    BatchNormalization,
    Convolution2D,
    Dense,
    For,
    GlobalAveragePooling,
    MaxPooling,
    Recurrence,
    Sequential,
)

import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program


@program
def style_transfer_by_lbfgs():
    """SciPy's L-BFGS moves the pixels; value and gradient come from forward and backward."""
    size = 8
    x = C.input_variable((3, size, size), needs_gradient=True)
    conv = [Convolution2D((3, 3), n, activation=C.relu, pad=True) for n in (4, 5)]
    first = conv[0](x)
    second = conv[1](AveragePooling((2, 2), strides=2)(first))
    features = fix(C.combine([first, second]))

    def gram(layer):
        channels = layer.shape[0]
        flat = C.reshape(layer, (channels, int(np.prod(layer.shape[1:]))))
        return C.times_transpose(flat, flat) / float(np.prod(layer.shape))

    content, style = numbers(1, 3, size, size, seed=1), numbers(1, 3, size, size, seed=2)
    wanted = features.eval({x: content})[second.output]
    grams = C.combine([gram(first), gram(second)]).eval({x: style})
    style_loss = sum(
        C.reduce_sum(C.square(gram(layer) - C.constant(value[0])))
        for layer, value in zip((first, second), [grams[k] for k in sorted(grams, key=lambda k: k.shape)])
    )
    content_loss = C.reduce_mean(C.square(second - C.constant(wanted[0])))
    rows, columns = x[:, 1:, :] - x[:, :-1, :], x[:, :, 1:] - x[:, :, :-1]
    loss = content_loss + 20 * style_loss + 0.01 * (C.reduce_sum(C.square(rows)) + C.reduce_sum(C.square(columns)))
    calls = []

    def inv_grad(flat):
        image = flat.reshape(1, 3, size, size).astype(np.float32)
        state, values = loss.forward({x: image}, [loss.output], {loss.output})
        grads = loss.backward(state, {loss.output: np.ones_like(values[loss.output])}, {x})
        calls.append(float(np.asarray(values[loss.output]).reshape(())))
        return calls[-1], grads[x].reshape(-1).astype(np.float64)

    start = content.reshape(-1).astype(np.float64)
    bounds = [(-2.5, 2.5)] * start.size
    image, value, _ = scipy.optimize.fmin_l_bfgs_b(inv_grad, start, bounds=bounds, maxfun=8)
    return {"first": calls[:6], "fell": bool(value < calls[0] / 2)}


@program
def capsules_with_routing():
    """Capsules agree by three rounds of routing; lengths are classes; the right capsule draws the picture again."""
    classes, inner, outer, parts = 3, 4, 5, 8
    x, y = C.input_variable((1, 8, 8)), C.input_variable(classes)

    def squash(v, axis):
        squared = C.reduce_sum(C.square(v), axis=axis)
        return squared / (1 + squared) / C.sqrt(squared + 1e-9) * v

    primary = Sequential([Convolution2D((3, 3), 4, activation=C.relu), Convolution2D((3, 3), parts, strides=2)])(x)
    count = int(np.prod(primary.shape)) // inner
    u = squash(C.reshape(primary, (count, inner, 1, 1)), 1)
    W = C.parameter((count, inner, classes, outer), name="W")
    u_hat = C.reduce_sum(W * u, axis=1)  # [count, 1, classes, outer]
    frozen = C.stop_gradient(u_hat)
    b = C.constant(0, (count, 1, classes, 1))
    for round in range(3):
        c = C.softmax(b, axis=2)
        votes = u_hat if round == 2 else frozen
        v = squash(C.reduce_sum(c * votes, axis=0), 3)  # [1, 1, classes, outer]
        if round < 2:
            b = b + C.reduce_sum(frozen * v, axis=3)
    v = C.reshape(v, (classes, outer))
    length = C.reshape(C.sqrt(C.reduce_sum(C.square(v), axis=1) + 1e-9), classes, name="length")
    present = C.square(C.element_max(0, 0.9 - length))
    absent = C.square(C.element_max(0, length - 0.1))
    margin = C.reduce_sum(y * present + 0.5 * (1 - y) * absent)
    chosen = C.reshape(v * C.reshape(y, (classes, 1)), classes * outer)
    drawn = Sequential([Dense(12, activation=C.relu), Dense((1, 8, 8), activation=C.sigmoid)])(chosen)
    loss = margin + 0.005 * C.reduce_sum(C.square(drawn - x))
    fix(loss)
    trainer = C.Trainer(
        length,
        (loss, C.classification_error(length, y)),
        [C.adam(loss.parameters, C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9))],
    )
    feed = {x: numbers(6, 1, 8, 8), y: one_hot(6, classes)}
    return {"loss": losses(trainer, [feed], 5), "length": length.eval({x: feed[x]})}


@program
def bilinear_pooling():
    """Two towers look at the same picture; all products of their channels, summed over places, are the features."""
    x, y = C.input_variable((3, 8, 8)), C.input_variable(4)

    def tower(filters, activation):
        return Sequential([Convolution2D((3, 3), filters, activation=activation, pad=True), MaxPooling((2, 2), 2)])(x)

    a, b = (C.reshape(t, (t.shape[0], -1)) for t in (tower(4, C.relu), tower(3, C.tanh)))
    outer = C.reshape(C.times_transpose(a, b), -1)
    rooted = C.element_select(C.greater(outer, 0), 1, -1) * C.sqrt(C.abs(outer) + 1e-6)
    normalized = rooted / C.sqrt(C.reduce_sum(C.square(rooted)))
    z = fix(Dense(4)(normalized))
    trainer = C.Trainer(
        z,
        (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y, topN=2)),
        [C.momentum_sgd(z.parameters, C.learning_parameter_schedule(0.5), C.momentum_schedule(0.9), unit_gain=False)],
    )
    feed = {x: numbers(6, 3, 8, 8), y: one_hot(6, 4)}
    return {"loss": losses(trainer, [feed], 4), "features": normalized.eval({x: feed[x]})}


@program
def autoencoder_with_tied_weights():
    """Down by strides, up by the transposed filters of the way down; the code in the middle is read by its name."""
    x = C.input_variable((1, 9, 9))
    W = C.parameter((4, 1, 3, 3), name="W")
    bias = C.parameter((4, 1, 1), name="bias")
    down = C.relu(C.convolution(W, x, strides=(2, 2), auto_padding=[False, True, True]) + bias)
    code = Dense(6, activation=C.tanh, name="code")(down)
    wide = Dense(down.shape, activation=C.relu)(code)
    up = C.convolution_transpose(W, wide, strides=(2, 2), auto_padding=[False, True, True], output_shape=(1, 9, 9))
    z = fix(C.sigmoid(up), 0.5)
    loss = C.reduce_mean(C.binary_cross_entropy(z, x))
    target = (numbers(5, 1, 9, 9) > 0).astype(np.float32)
    trainer = C.Trainer(z, (loss, C.reduce_mean(C.abs(z - x))), [C.adagrad(
        z.parameters, C.learning_parameter_schedule(0.05), need_ave_multiplier=True)])
    history = losses(trainer, [{x: target}], 4)
    codes = C.combine([z.find_by_name("code")]).eval({x: target})
    return {"loss": history, "metric": trainer.previous_minibatch_evaluation_average, "codes": codes}


@program
def where_the_network_looks():
    """The gradient of a class with respect to the pixels, and to the last maps, whose means weigh them."""
    x = C.input_variable((3, 8, 8), needs_gradient=True, name="x")
    maps = Sequential([Convolution2D((3, 3), 4, activation=C.elu, pad=True, name="maps")])(x)
    z = fix(Sequential([GlobalAveragePooling(), Dense(3, name="scores")])(maps))
    picture = numbers(2, 3, 8, 8)
    weights = one_hot(2, 3)
    score = C.reduce_sum(z * C.constant(np.array([0, 1, 0], np.float32)))
    saliency, scores = score.grad({x: picture}, wrt=[x], outputs=[score])
    inner = C.input_variable(maps.shape, needs_gradient=True)
    head = z.clone(C.CloneMethod.share, {z.find_by_name("maps").output: inner})
    of_maps = head.grad({inner: C.combine([z.find_by_name("maps")]).eval({x: picture})}, wrt=[inner])
    return {"saliency": saliency, "scores": scores, "maps": of_maps, "classes": weights.argmax(axis=1)}


@program
def clips_by_a_recurrence_over_residual_features():
    """Frames through a residual network, then both ways through time; trained by a session that writes everything."""
    frames, classes = (2, 6, 6), 3

    def conv_bn(filters, activation):
        convolution = Convolution2D((3, 3), filters, pad=True, bias=False)
        return Sequential([convolution, BatchNormalization(map_rank=1), activation])

    def block(filters):
        inner = Sequential([conv_bn(filters, C.relu), conv_bn(filters, lambda v: v)])
        return lambda v: C.relu(inner(v) + v)

    x, y = C.sequence.input_variable(72, name="x"), C.input_variable(classes, name="y")
    net = Sequential([conv_bn(3, C.relu), For(range(2), lambda: block(3)), GlobalAveragePooling()])
    features = C.reshape(net(C.reshape(x, frames)), 3)
    forward, backward = Recurrence(LSTM(4))(features), Recurrence(LSTM(4), go_backwards=True)(features)
    z = fix(Dense(classes)(C.splice(C.sequence.last(forward), C.sequence.first(backward))), 0.4)
    folder = tempfile.mkdtemp()
    printer = C.logging.ProgressPrinter(freq=2, tag="Training", log_to_file=os.devnull, num_epochs=3)
    board = C.logging.TensorBoardProgressWriter(freq=2, log_dir=os.path.join(folder, "log"), model=z)
    learner = C.momentum_sgd(
        z.parameters,
        C.learning_parameter_schedule_per_sample([0.02, 0.01], epoch_size=12),
        C.momentum_schedule_per_sample(0.99),
        l2_regularization_weight=0.001,
    )
    criterion = (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y))
    trainer = C.Trainer(z, criterion, learner, [printer, board])
    clips = [numbers(3, *frames, seed=i) for i in range(12)]  # of one length: CNTK normalizes with the padding
    labels = one_hot(12, classes)
    path = os.path.join(folder, "clips.ctf")
    with open(path, "w") as f:
        for number, clip in enumerate(clips):
            for step, frame in enumerate(clip):
                label = "|y %s " % " ".join("%d" % v for v in labels[number]) if step == 0 else ""
                f.write("%d %s|x %s\n" % (number, label, " ".join("%.6f" % v for v in frame.ravel())))

    def reader(**options):
        streams = C.io.StreamDefs(x=C.io.StreamDef("x", shape=72), y=C.io.StreamDef("y", shape=classes))
        return C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=False, **options)

    source, held = reader(), reader(max_sweeps=1)
    validated = []
    C.training_session(
        trainer=trainer,
        mb_source=source,
        mb_size=12,
        model_inputs_to_streams={x: source.streams["x"], y: source.streams["y"]},
        max_samples=72,
        progress_frequency=24,
        checkpoint_config=C.CheckpointConfig(
            os.path.join(folder, "video"), frequency=24, restore=False, preserve_all=True),
        cv_config=C.CrossValidationConfig(
            held, minibatch_size=12, frequency=24, model_inputs_to_streams={x: held.streams["x"], y: held.streams["y"]},
            callback=lambda index, error, samples, minibatches: validated.append([index, error, samples]) or True),
    ).train()
    board.close()
    events = os.listdir(os.path.join(folder, "log"))
    return {
        "seen": trainer.total_number_of_samples_seen,
        "validated": [list(map(float, v)) for v in validated],
        "files": sorted(f for f in os.listdir(folder) if f != "log"),
        "events": len(events) > 0,
        "out": z.eval({x: [clip.reshape(-1, 72) for clip in clips[:3]]}),
        "after": losses(trainer, [{x: [clip.reshape(-1, 72) for clip in clips[:4]], y: labels[:4]}], 1),
    }


@program
def onnx_round_trip():
    """A network goes out as ONNX, comes back, and computes the same; then its features feed another one."""
    x = C.input_variable((3, 8, 8), name="pixels")
    layers = Sequential([
        Convolution2D((3, 3), 4, activation=C.relu, pad=True), MaxPooling((2, 2), strides=2),
        BatchNormalization(map_rank=1), Dense(6, activation=C.tanh), Dense(3), C.softmax])
    z, y = fix(layers(x)), C.input_variable(3)
    pictures = numbers(2, 3, 8, 8)
    trainer = C.Trainer(z, C.squared_error(z, y), [C.sgd(z.parameters, C.learning_parameter_schedule(0.1))])
    # for the statistics of what follows
    history = losses(trainer, [{x: numbers(6, 3, 8, 8, seed=1), y: one_hot(6, 3)}], 3)
    path = os.path.join(tempfile.mkdtemp(), "network.onnx")
    z.save(path, format=C.ModelFormat.ONNX)
    again = C.Function.load(path, format=C.ModelFormat.ONNX)
    one = [np.asarray(again.eval({again.arguments[0]: p[None]})).reshape(-1) for p in pictures]
    return {"loss": history, "out": z.eval({x: pictures}), "again": one, "shape": list(again.arguments[0].shape[-3:])}
