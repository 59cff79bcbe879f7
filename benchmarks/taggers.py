"""Six small taggers, trained and tested one after the other on ATIS, as in a tutorial: a plain CNTK 2.7 script.

    python taggers.py FOLDER               the folder that holds atis.train.ctf and atis.test.ctf
"""
import argparse
import math
import os

import cntk as C

WORDS, LABELS = 943, 129
EMBEDDING, HIDDEN = 50, 100
MINIBATCH, TEST_MINIBATCH = 70, 500       # words, filled with whole queries

L = C.layers


def bidirectional(cell):
    """The states of a recurrence in each direction, one after the other."""
    return L.Sequential([(L.Recurrence(cell(HIDDEN // 2)), L.Recurrence(cell(HIDDEN // 2), go_backwards=True)),
                         C.splice])


def with_next(x):
    """Each word beside the one after it."""
    return C.splice(x, C.sequence.future_value(x))


TAGGERS = {
    'plain': lambda: [L.Recurrence(L.LSTM(HIDDEN))],
    'normalized': lambda: [L.BatchNormalization(), L.Recurrence(L.LSTM(HIDDEN)), L.BatchNormalization()],
    'looking ahead': lambda: [with_next, L.Recurrence(L.LSTM(HIDDEN))],
    'bi-directional': lambda: [bidirectional(L.LSTM)],
    'gated': lambda: [L.Stabilizer(), L.Recurrence(L.GRU(HIDDEN)), L.Stabilizer()],
    'bi-directional, gated': lambda: [with_next, bidirectional(L.GRU)],
}


def reader(path, training):
    """Queries in random order for training, and in their own for testing; a sweep of each."""
    streams = C.io.StreamDefs(query=C.io.StreamDef(field='S0', shape=WORDS, is_sparse=True),
                              slots=C.io.StreamDef(field='S2', shape=LABELS, is_sparse=True))
    return C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=training, max_sweeps=1)


def train_and_test(name, layers, folder, words):
    """Trains on so many words; returns the share of wrong labels in the test file."""
    query = C.sequence.input_variable(WORDS, is_sparse=True)
    slots = C.sequence.input_variable(LABELS, is_sparse=True)
    scores = L.Sequential([L.Embedding(EMBEDDING), *layers, L.Dense(LABELS)])(query)
    learner = C.momentum_sgd(scores.parameters, C.learning_parameter_schedule_per_sample(0.03),
                             C.momentum_schedule_per_sample(math.exp(-1 / 1000)))
    trainer = C.Trainer(scores, (C.cross_entropy_with_softmax(scores, slots), C.classification_error(scores, slots)),
                        [learner], [C.logging.ProgressPrinter(tag=name)])
    source = reader(os.path.join(folder, 'atis.train.ctf'), training=True)
    while words > 0:
        minibatch = source.next_minibatch(MINIBATCH, input_map={query: source.streams.query,
                                                                slots: source.streams.slots})
        trainer.train_minibatch(minibatch)
        words -= minibatch[slots].num_samples
    trainer.summarize_training_progress()

    source = reader(os.path.join(folder, 'atis.test.ctf'), training=False)
    streams = {query: source.streams.query, slots: source.streams.slots}
    errors = samples = 0
    minibatch = source.next_minibatch(TEST_MINIBATCH, input_map=streams)
    while minibatch:
        errors += trainer.test_minibatch(minibatch) * minibatch[slots].num_samples
        samples += minibatch[slots].num_samples
        minibatch = source.next_minibatch(TEST_MINIBATCH, input_map=streams)
    return errors / samples


def main(folder, words=4000):
    C.cntk_py.set_fixed_random_seed(1)
    for name, layers in TAGGERS.items():
        print(f'{name}: {train_and_test(name, layers(), folder, words):.2%} of the labels are wrong')


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('folder')
    arguments.add_argument('--words', type=int, default=4000, help='for training each tagger (default: 4000)')
    main(**vars(arguments.parse_args()))
