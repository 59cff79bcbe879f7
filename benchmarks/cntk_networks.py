"""The networks as CNTK scripts: the same lines run on CNTK 2.7 (Python 3.6) and on this package.

Each entry of NETWORKS builds a network and returns `run(minibatches)`, which trains on that many minibatches, waits for
them to finish, and returns their number of samples (images or words).
"""
import functools
import itertools
import os

import data
import numpy as np
from scipy.sparse import csr_matrix

import cntk as C

L = C.layers


def learner(parameters):
    """The same momentum SGD on all sides; several workers sum their gradients."""
    momentum = C.momentum_sgd(parameters, C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9),
                              unit_gain=False, minibatch_size=C.learners.IGNORE)
    workers = C.train.distributed.Communicator.num_workers()
    return momentum if workers == 1 else C.train.distributed.data_parallel_distributed_learner(momentum)


def runner(scores, labels, minibatches):
    """Trains on `minibatches`, an iterator of pairs (arguments of train_minibatch, number of samples)."""
    trainer = C.Trainer(scores, C.cross_entropy_with_softmax(scores, labels), [learner(scores.parameters)])

    def run(count):
        samples = 0
        for arguments, size in itertools.islice(minibatches, count):
            trainer.train_minibatch(arguments)
            samples += size
        assert np.isfinite(trainer.previous_minibatch_loss_average)      # waits for the last minibatch
        return samples

    return run


def classifier(network, shape, minibatches):
    """Trains a classifier of samples of this shape."""
    pixels, labels = C.input_variable(shape), C.input_variable(data.CLASSES)
    eye = np.eye(data.CLASSES, dtype=np.float32)
    batches = [({pixels: x, labels: eye[y]}, len(y)) for x, y in minibatches]
    return runner(network(pixels), labels, itertools.cycle(batches))


def fcn5():
    """Four sigmoid layers and an output layer."""
    network = L.Sequential([*(L.Dense(size, C.sigmoid) for size in (4096, 2048, 1024)), L.Dense(data.CLASSES)])
    return classifier(network, data.PIXELS, data.vectors())


def tiny():
    """Five layers and ten parameters with next to no arithmetic: this measures the time of Python."""
    network = L.Sequential([*(L.Dense(data.TINY_WIDTH, C.sigmoid) for _ in range(4)), L.Dense(data.CLASSES)])
    return classifier(network, data.TINY_WIDTH, data.vectors(data.TINY_WIDTH, data.TINY_BATCH))


def alexnet():
    """Three stages of convolution and pooling."""
    def stage(filters):
        return L.Sequential([L.Convolution2D((5, 5), filters, activation=C.relu, pad=True),
                             L.MaxPooling((3, 3), strides=2)])

    network = L.Sequential([stage(32), stage(32), stage(64), L.Dense(data.CLASSES)])
    return classifier(network, (3, 32, 32), data.images(data.ALEXNET_BATCH))


def resnet56():
    """Residual blocks with batch normalization."""
    def normalized(size, filters, strides):
        return L.Sequential([L.Convolution2D((size, size), filters, strides=strides, pad=True, bias=False),
                           L.BatchNormalization(map_rank=1, normalization_time_constant=4096)])

    def block(filters, strides):
        inner = L.Sequential([normalized(3, filters, strides), C.relu, normalized(3, filters, 1)])
        shortcut = normalized(1, filters, strides) if strides > 1 else lambda x: x
        return lambda x: C.relu(inner(x) + shortcut(x))

    def stage(filters, strides):
        return [block(filters, strides), *(block(filters, 1) for _ in range(8))]

    network = L.Sequential([normalized(3, 16, 1), C.relu, *stage(16, 1), *stage(32, 2), *stage(64, 2),
                            L.AveragePooling((8, 8)), L.Dense(data.CLASSES)])
    return classifier(network, (3, 32, 32), data.images(data.RESNET_BATCH))


def lstm(batch):
    """A language model of two LSTM layers."""
    def one_hot(words):
        ones, rows = np.ones(data.STEPS, np.float32), np.arange(data.STEPS + 1)
        return [csr_matrix((ones, row, rows), (data.STEPS, data.VOCABULARY)) for row in words]

    words = C.sequence.input_variable(data.VOCABULARY, is_sparse=True)
    following = C.sequence.input_variable(data.VOCABULARY, is_sparse=True)
    network = L.Sequential([L.Embedding(256), L.Recurrence(L.LSTM(256)), L.Recurrence(L.LSTM(256)),
                            L.Dense(data.VOCABULARY)])
    batches = [({words: one_hot(x), following: one_hot(y)}, x.size) for x, y in data.texts(batch)]
    return runner(network(words), following, itertools.cycle(batches))


def atis(folder):
    """Slot tagging, with a MinibatchSource."""
    words = C.sequence.input_variable(data.ATIS_WORDS, is_sparse=True)
    slots = C.sequence.input_variable(data.ATIS_LABELS, is_sparse=True)
    source = C.io.MinibatchSource(C.io.CTFDeserializer(os.path.join(folder, 'atis.train.ctf'), C.io.StreamDefs(
        words=C.io.StreamDef(field='S0', shape=data.ATIS_WORDS, is_sparse=True),
        slots=C.io.StreamDef(field='S2', shape=data.ATIS_LABELS, is_sparse=True))))
    streams = {words: source.streams.words, slots: source.streams.slots}

    def minibatches():
        while True:
            minibatch = source.next_minibatch(data.ATIS_MINIBATCH, input_map=streams)
            yield minibatch, minibatch[slots].num_samples

    network = L.Sequential([L.Embedding(150), L.Recurrence(L.LSTM(300)), L.Dense(data.ATIS_LABELS)])
    return runner(network(words), slots, minibatches())


def bidirectional(cell):
    """Three layers in both directions, then a class for the whole clip."""
    def both():
        return L.Sequential([(L.Recurrence(cell(data.FRAME_STATES)),
                              L.Recurrence(cell(data.FRAME_STATES), go_backwards=True)), C.splice])

    frames, labels = C.sequence.input_variable(data.FRAME_WIDTH), C.input_variable(data.CLASSES)
    network = L.Sequential([both(), both(), both(), C.sequence.last, L.Dense(data.CLASSES)])
    eye = np.eye(data.CLASSES, dtype=np.float32)
    batches = [({frames: x, labels: eye[y]}, sum(map(len, x))) for x, y in data.clips()]
    return runner(network(frames), labels, itertools.cycle(batches))


def speller():
    """A function (previous symbols, letters) -> scores, and a decoder: letters -> one-hot symbols."""
    embed, states = L.Embedding(data.WORD_EMBEDDING), data.WORD_STATES
    read = L.Sequential([embed, (L.Recurrence(L.GRU(states)), L.Recurrence(L.GRU(states), go_backwards=True)),
                         C.splice])
    attend, cell, score = L.AttentionModel(states), L.GRU(states), L.Dense(data.SYMBOLS)
    start = C.Constant(np.eye(data.SYMBOLS, dtype=np.float32)[data.WORD_START])

    @C.Function
    def decode(before, letters):
        encoded = read(letters)

        @C.Function
        def step(state, symbol):
            return cell(state, C.splice(symbol, attend(encoded, state)))

        return score(L.Recurrence(step)(embed(before)))

    @C.Function
    def speak(letters: L.SequenceOver[C.Axis('letters')][L.Tensor[data.SYMBOLS]]):
        unfold = L.UnfoldFrom(lambda before: decode(before, letters) >> C.hardmax)
        return unfold(initial_state=start, dynamic_axes_like=letters)

    return decode, speak, start


def spelled(texts):
    """Texts as one-hot sequences."""
    eye = np.eye(data.SYMBOLS, dtype=np.float32)
    return [eye[text] for text in texts]


def attention():
    """Training with teacher forcing."""
    letters = C.sequence.input_variable(data.SYMBOLS, sequence_axis=C.Axis('letters'))
    symbols = C.sequence.input_variable(data.SYMBOLS, sequence_axis=C.Axis('symbols'))
    decode, _, start = speller()
    scores = decode(L.Delay(initial_state=start)(symbols), letters)
    batches = [({letters: spelled(x), symbols: spelled(y)}, sum(map(len, y))) for x, y in data.spellings()]
    return runner(scores, symbols, itertools.cycle(batches))


def decoding():
    """Greedy decoding."""
    _, speak, _ = speller()
    batches = itertools.cycle([(spelled(x), sum(map(len, x))) for x, _ in data.spellings()])

    def run(count):
        samples = 0
        for texts, size in itertools.islice(batches, count):
            symbols = speak.eval({speak.arguments[0]: texts})
            assert sum(map(len, symbols)) == size
            samples += size
        return samples

    return run


NETWORKS = {'bilstm': functools.partial(bidirectional, L.LSTM), 'bigru': functools.partial(bidirectional, L.GRU),
            'attention': attention, 'decoding': decoding,
            'fcn5': fcn5, 'alexnet': alexnet, 'resnet56': resnet56, 'lstm64': functools.partial(lstm, 64),
            'lstm256': functools.partial(lstm, 256), 'atis': atis, 'tiny': tiny}
