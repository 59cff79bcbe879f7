"""The minibatches that all sides train on. Also runs on Python 3.6, for CNTK 2.7.

Labels and words are integers; each side converts them to what its users pass. One sample is an image or a word.
"""
import collections
import itertools

import numpy as np

CLASSES = 10
PIXELS, FCN5_BATCH = 784, 1024
ALEXNET_BATCH, RESNET_BATCH = 256, 32
VOCABULARY, STEPS = 10000, 32
TINY_WIDTH, TINY_BATCH = 8, 8
ATIS_WORDS, ATIS_LABELS, ATIS_MINIBATCH = 943, 129, 500
ATIS_PASS = 133                     # minibatches that hold about all 66,547 words of the training file

FRAMES, FRAME_WIDTH, FRAME_BATCH, FRAME_STATES = (10, 60), 40, 32, 128      # frames: from, to
SYMBOLS, WORD_LETTERS, WORD_BATCH, WORD_STATES, WORD_EMBEDDING = 69, (4, 20), 64, 128, 64
WORD_START = 0

DIFFERENT = 4                       # random minibatches before they repeat


def vectors(width=PIXELS, batch=FCN5_BATCH):
    """Minibatches (pixels float32 [batch, width], labels int32 [batch]), by default for FCN5."""
    random = np.random.RandomState(1)
    return [(random.rand(batch, width).astype(np.float32), labels(random, batch)) for _ in range(DIFFERENT)]


def images(batch):
    """Minibatches (pixels float32 [batch, 3, 32, 32], labels int32 [batch]) like CIFAR-10's."""
    random = np.random.RandomState(2)
    return [(random.rand(batch, 3, 32, 32).astype(np.float32), labels(random, batch)) for _ in range(DIFFERENT)]


def labels(random, batch):
    """Random labels, int32 [batch]."""
    return random.randint(CLASSES, size=batch).astype(np.int32)


def texts(batch):
    """Minibatches (words, next words), int32 [batch, STEPS] each."""
    random = np.random.RandomState(3)
    rows = [random.randint(VOCABULARY, size=(batch, STEPS + 1)).astype(np.int32) for _ in range(DIFFERENT)]
    return [(words[:, :-1], words[:, 1:]) for words in rows]


def clips():
    """Minibatches (clips, labels int32 [FRAME_BATCH]); a clip is float32 [frames, FRAME_WIDTH], of varying length."""
    random = np.random.RandomState(5)
    minibatches = []
    for _ in range(DIFFERENT):
        lengths = random.randint(FRAMES[0], FRAMES[1] + 1, FRAME_BATCH)
        frames = [random.rand(n, FRAME_WIDTH).astype(np.float32) for n in lengths]
        minibatches.append((frames, labels(random, FRAME_BATCH)))
    return minibatches


def spellings():
    """Minibatches (words, pronunciations): lists of int32 arrays of varying lengths, from 1 to SYMBOLS - 1."""
    random = np.random.RandomState(6)

    def words():
        lengths = random.randint(WORD_LETTERS[0], WORD_LETTERS[1] + 1, WORD_BATCH)
        return [random.randint(1, SYMBOLS, n).astype(np.int32) for n in lengths]

    return [(words(), words()) for _ in range(DIFFERENT)]


def queries(path):
    """The queries of an ATIS file in CTF: pairs (words, labels) of int32 arrays, in the file's order."""
    pairs_of_query = collections.OrderedDict()
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            sequence, fields = line.split('|', 1)
            fields = dict(field.split(None, 1) for field in fields.split('|'))
            word, label = (int(fields[name].split(':')[0]) for name in ('S0', 'S2'))
            pairs_of_query.setdefault(sequence, []).append((word, label))
    return [tuple(np.array(pairs, np.int32).T) for pairs in pairs_of_query.values()]


def shuffled_minibatches(items, words):
    """Infinitely many lists of whole queries with at most `words` words, in a new random order on each pass."""
    random = np.random.RandomState(4)
    minibatch, size = [], 0
    for _ in itertools.count():
        for index in random.permutation(len(items)):
            length = len(items[index][0])
            if minibatch and size + length > words:
                yield minibatch
                minibatch, size = [], 0
            minibatch.append(items[index])
            size += length
