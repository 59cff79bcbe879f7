"""Small programs of kinds that people begin with, a few minibatches each: a plain CNTK 2.7 script.

    python cold_programs.py NAME               cyclegan, dcgan, began, unet, rnet, yolo or transformer

What they compute is of little use. What counts is the time until they have done so in a process without a cache.
"""
import sys

import numpy as np

import cntk as C

L = C.layers
BATCH, STEPS = 4, 3

RANDOM = np.random.RandomState(0)


def data(*shape):
    """Numbers between -1 and 1."""
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def adam(parameters):
    """The learner of all programs."""
    return C.adam(parameters, C.learning_parameter_schedule(1e-4), C.momentum_schedule(0.9))


def trainer(loss, parameters):
    """Trains these parameters; a network has more, which are those of another trainer."""
    return C.Trainer(loss, (loss, None), [adam(parameters)])


def mean_square(x):
    """A criterion."""
    return C.reduce_mean(C.square(x))


# ---- two networks against each other
def cyclegan():
    """Two generators and two discriminators, trained by three trainers; then an image is translated."""
    size, width = 16, 8

    def generator(name):
        with C.default_options(init=C.normal(0.02)):
            residual = [L.Sequential([L.Convolution2D(3, 2 * width, C.relu, pad=True),
                                      L.Convolution2D(3, 2 * width, pad=True)]) for _ in range(3)]
            return L.Sequential([
                L.Convolution2D(5, width, C.relu, pad=True), L.Convolution2D(3, 2 * width, C.relu, pad=True, strides=2),
                *[L.ResNetBlock(block) for block in residual],
                L.ConvolutionTranspose2D(3, width, C.relu, pad=True, strides=2, output_shape=(size, size)),
                L.Convolution2D(5, 3, C.tanh, pad=True)], name=name)

    def discriminator():
        with C.default_options(init=C.normal(0.02)):
            return L.Sequential([L.Convolution2D(3, n * width, C.leaky_relu, pad=True, strides=2) for n in (1, 2)]
                                + [L.Convolution2D(3, 1, pad=True)])

    a, b = C.input_variable((3, size, size)), C.input_variable((3, size, size))
    to_a, to_b, judge_a, judge_b = generator('to_a'), generator('to_b'), discriminator(), discriminator()
    fake_a, fake_b = to_a(b), to_b(a)
    cycle = C.reduce_mean(C.abs(to_a(fake_b) - a)) + C.reduce_mean(C.abs(to_b(fake_a) - b))
    scores = judge_a(fake_a), judge_b(fake_b)
    loss = mean_square(scores[0] - 1) + mean_square(scores[1] - 1) + 10 * cycle
    generators = trainer(loss, fake_a.parameters + fake_b.parameters)
    judges = [trainer(mean_square(judge(real) - 1) + mean_square(score), judge.parameters)
              for judge, real, score in ((judge_a, a, scores[0]), (judge_b, b, scores[1]))]
    for _ in range(STEPS):
        feed = {a: data(BATCH, 3, size, size), b: data(BATCH, 3, size, size)}
        for each in (generators, *judges):
            each.train_minibatch({v: feed[v] for v in each.loss_function.arguments})
    return fake_b.eval({a: data(1, 3, size, size)})


def dcgan():
    """A conditional generator and its judge, which gets real and generated images in one minibatch."""
    noise, label, real = C.input_variable(20), C.input_variable(10), C.input_variable((1, 28, 28))
    with C.default_options(init=C.normal(0.02)):
        generate = L.Sequential([
            L.Dense(128, None), L.BatchNormalization(), C.relu, L.Dense((16, 7, 7), None),
            L.BatchNormalization(map_rank=1), C.relu,
            L.ConvolutionTranspose2D(5, 8, pad=True, strides=2, output_shape=(14, 14), bias=False),
            L.BatchNormalization(map_rank=1), C.relu,
            L.ConvolutionTranspose2D(5, 1, C.sigmoid, pad=True, strides=2, output_shape=(28, 28))])
        images = L.Sequential([
            L.Convolution2D(5, 8, C.leaky_relu, pad=True, strides=2),
            L.Convolution2D(5, 16, pad=True, strides=2), L.BatchNormalization(map_rank=1), C.leaky_relu])
        judge = L.Sequential([L.Dense(64, C.leaky_relu), L.Dense(1, C.sigmoid)])
    fake = generate(C.splice(noise, label))
    real_score, fake_score = (judge(C.splice(C.reshape(images(x), (-1,)), label)) for x in (real / 255, fake))
    generator = trainer(1 - C.log(fake_score), fake.parameters)
    judge_trainer = trainer(-(C.log(real_score) + C.log(1 - fake_score)), real_score.parameters)
    for _ in range(STEPS):
        for each in (judge_trainer, judge_trainer, generator):
            feed = {noise: data(BATCH, 20), label: data(BATCH, 10), real: data(BATCH, 1, 28, 28)}
            each.train_minibatch({v: feed[v] for v in each.loss_function.arguments})
    return fake.eval({noise: data(9, 20), label: data(9, 10)})


def began():
    """A judge that is an autoencoder, and a balance between the two losses that is computed in NumPy."""
    size, width = 16, 8

    def decoder():
        return L.Sequential([L.Dense((width, 4, 4)),
                             L.Convolution2D(3, width, C.elu, pad=True), L.Convolution2D(3, width, C.elu, pad=True),
                             L.ConvolutionTranspose2D(3, width, C.elu, pad=True, strides=2, output_shape=(8, 8)),
                             L.Convolution2D(3, width, C.elu, pad=True),
                             L.ConvolutionTranspose2D(3, width, C.elu, pad=True, strides=2, output_shape=(16, 16)),
                             L.Convolution2D(3, 3, pad=True)])

    encoder = L.Sequential([L.Convolution2D(3, width, C.elu, pad=True),
                            L.Convolution2D(3, 2 * width, C.elu, pad=True, strides=2),
                            L.Convolution2D(3, 2 * width, C.elu, pad=True),
                            L.Convolution2D(3, 3 * width, C.elu, pad=True, strides=2), L.Dense(16)])
    noise, real, k = C.input_variable(16), C.input_variable((3, size, size)), C.input_variable(1)
    generate, autoencoder = decoder(), L.Sequential([encoder, decoder()])
    fake = generate(noise)
    real_loss = C.reduce_mean(C.abs(autoencoder(real) - real))
    fake_loss = C.reduce_mean(C.abs(autoencoder(fake) - fake))
    judge = trainer(real_loss - k * fake_loss, autoencoder.parameters)
    generator = trainer(fake_loss, fake.parameters)
    balance = 0.0
    for _ in range(STEPS):
        feed = {noise: data(BATCH, 16), real: data(BATCH, 3, size, size), k: np.full((BATCH, 1), balance, np.float32)}
        _, losses = judge.train_minibatch(feed, outputs=[real_loss.output, fake_loss.output])
        generator.train_minibatch({noise: data(BATCH, 16)})
        real_mean, fake_mean = (float(np.mean(value)) for value in losses.values())
        balance = min(max(balance + 0.001 * (0.5 * real_mean - fake_mean), 0), 1)
    return fake.eval({noise: data(BATCH, 16)})


# ---- images
def unet():
    """A convolutional network with shortcuts between equal sizes, and a test after each minibatch."""
    size, widths = 32, (8, 16, 32)

    def twice(width):
        return L.For(range(2), lambda: L.Sequential([L.Convolution2D(3, width, pad=True), L.BatchNormalization(),
                                                     C.relu]))

    image, mask = C.input_variable((1, size, size)), C.input_variable((1, size, size))
    levels, x = [], image
    for width in widths:
        levels.append(twice(width)(x))
        x = L.MaxPooling((2, 2), strides=2)(levels[-1])
    x = twice(2 * widths[-1])(x)
    for width, level in reversed(list(zip(widths, levels))):  # noqa: B905 - for Python 3.6 too
        up = L.ConvolutionTranspose2D(2, width, strides=2, output_shape=level.shape[1:])(x)
        x = twice(width)(C.splice(up, level, axis=0))
    guess = L.Convolution2D(1, 1, C.sigmoid)(x)
    overlap = C.reduce_sum(guess * mask)
    dice = 2 * overlap / (C.reduce_sum(guess) + C.reduce_sum(mask) + 1)
    train = C.Trainer(guess, (-dice, -dice), [adam(guess.parameters)])
    for _ in range(STEPS):
        feed = {image: data(BATCH, 1, size, size), mask: np.abs(data(BATCH, 1, size, size))}
        train.train_minibatch(feed)
        train.test_minibatch(feed)
    return guess.eval({image: data(1, 1, size, size)})


class Assigned(C.ops.functions.UserFunction):
    """Targets for the boxes of a detector: computed in NumPy, by the boxes that it predicts."""

    def __init__(self, predicted, truth, name='Assigned'):
        super().__init__([predicted, truth], name=name)

    def infer_outputs(self):
        return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        predicted, truth = arguments
        nearest = np.abs(predicted[:, :, None, :4] - truth[:, None]).sum(-1).argmin(-1)
        targets = np.concatenate([np.take_along_axis(truth, nearest[..., None], 1), predicted[..., 4:]], -1)
        return None, targets.astype(np.float32)

    def backward(self, state, root_gradients, variables):
        for variable in variables:
            variables[variable] = None


def yolo():
    """A detector of boxes on a grid, whose loss has targets by a function in NumPy."""
    size, boxes = 32, 2
    image, truth = C.input_variable((3, size, size)), C.input_variable((5, 4))
    backbone = L.Sequential([
        L.Sequential([L.Convolution2D(3, width, pad=True, bias=False), L.BatchNormalization(map_rank=1), C.leaky_relu,
                      L.MaxPooling((2, 2), strides=2)]) for width in (8, 16, 32)])
    raw = L.Convolution2D(1, boxes * 7)(backbone(image))
    raw = C.reshape(C.transpose(raw, (1, 2, 0)), (-1, 7))
    predicted = C.splice(C.sigmoid(raw[:, :2]), C.exp(raw[:, 2:4]), C.sigmoid(raw[:, 4:5]), C.softmax(raw[:, 5:], 1),
                         axis=1)
    targets = C.user_function(Assigned(predicted, truth))
    weights = C.constant(np.array([5, 5, 5, 5, 1, 1, 1], np.float32))
    loss = C.reduce_sum(weights * C.square(predicted - C.stop_gradient(targets)))
    train = C.Trainer(predicted, (loss, None), [adam(predicted.parameters)])
    for _ in range(STEPS):
        train.train_minibatch({image: data(BATCH, 3, size, size), truth: np.abs(data(BATCH, 5, 4))})
    return predicted.eval({image: data(1, 3, size, size)})


# ---- sequences
def rnet():
    """Two sequences: both are encoded in two directions, and one is read with attention to the other."""
    words, units = 30, 5
    question_axis, text_axis = C.Axis.new_unique_dynamic_axis('q'), C.Axis.new_unique_dynamic_axis('t')
    question = C.input_variable(words, dynamic_axes=[C.Axis.default_batch_axis(), question_axis])
    text = C.input_variable(words, dynamic_axes=[C.Axis.default_batch_axis(), text_axis])
    begin = C.input_variable(1, dynamic_axes=[C.Axis.default_batch_axis(), text_axis])

    def both_ways():
        pairs = [(L.Recurrence(L.GRU(units)), L.Recurrence(L.GRU(units), go_backwards=True)) for _ in range(2)]
        return L.Sequential([layer for pair in pairs for layer in (pair, C.splice)])

    embed, attend, cell, gate = L.Dense(8), L.AttentionModel(units), L.GRU(units), L.Dense(4 * units, bias=False)
    encode, merge, score = both_ways(), both_ways(), L.Dense(1)

    @C.Function
    def model(question, text):
        asked = encode(embed(question))

        @C.Function
        def gated(state, x):
            both = C.splice(x, attend(asked, state))
            return cell(state, C.sigmoid(gate(both)) * both)

        return C.sequence.softmax(score(merge(L.Recurrence(gated)(encode(embed(text))))))

    scores = model(question, text)
    loss = -C.sequence.reduce_sum(begin * C.log(scores + 1e-6))
    train = C.Trainer(scores, (loss, None), [adam(loss.parameters)])
    for _ in range(STEPS):
        lengths = [(5, 9), (4, 7), (6, 8)]
        train.train_minibatch({question: [data(q, words) for q, _ in lengths],
                               text: [data(t, words) for _, t in lengths],
                               begin: [np.eye(t, 1, dtype=np.float32) for _, t in lengths]})
    return [train.previous_minibatch_loss_average]


def transformer():
    """Blocks of self-attention over a window of fixed length, then a test."""
    length, width, heads, blocks = 8, 16, 2, 3

    def attention():
        query, key, value, out = (L.Dense(width, input_rank=1) for _ in range(4))

        def attend(x):
            def divided(y):
                return C.transpose(C.reshape(y, (length, heads, width // heads)), (1, 0, 2))

            def of_head(y, i):
                return C.reshape(y[i], (length, width // heads))

            q, k, v = divided(query(x)), divided(key(x)), divided(value(x))
            attended = []
            for i in range(heads):
                scores = C.times(of_head(q, i), C.transpose(of_head(k, i), (1, 0)))
                attended.append(C.times(C.softmax(scores * (width // heads) ** -0.5, axis=1), of_head(v, i)))
            return out(C.splice(*attended, axis=1))
        return attend

    def block(x):
        x = L.LayerNormalization()(x + attention()(x))
        return L.LayerNormalization()(x + L.Dense(width, input_rank=1)(L.Dense(4 * width, C.relu, input_rank=1)(x)))

    x, y = C.input_variable((length, 12)), C.input_variable((length, 12))
    hidden = L.Dense(width, input_rank=1)(x) + C.parameter((length, width))
    for _ in range(blocks):
        hidden = block(hidden)
    scores = L.Dense(12, input_rank=1)(hidden)
    loss = C.reduce_sum(C.cross_entropy_with_softmax(scores, y, axis=1))
    train = C.Trainer(scores, (loss, loss), [adam(scores.parameters)])
    classes = np.tile(np.eye(length, 12, dtype=np.float32), (BATCH, 1, 1))
    for _ in range(STEPS):
        train.train_minibatch({x: data(BATCH, length, 12), y: classes})
    train.test_minibatch({x: data(BATCH, length, 12), y: classes})
    return scores.eval({x: data(1, length, 12)})


PROGRAMS = {f.__name__: f for f in (cyclegan, dcgan, began, unet, rnet, yolo, transformer)}

if __name__ == '__main__':
    print(np.sum([np.sum(value) for value in PROGRAMS[sys.argv[1]]()]))
