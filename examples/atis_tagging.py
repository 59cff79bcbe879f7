"""Slot tagging of air travel queries: Embedding, LSTM and Dense over sequences of words, read from CTF files.

    python atis_tagging.py FOLDER          the folder that holds atis.train.ctf and atis.test.ctf

Every word of a query (stream S0, one of 943) gets one of 129 labels (stream S2): boston may be B-fromloc.city_name.
The file is a plain CNTK 2.7 script.
"""
import argparse
import math
import os
import time

import cntk as C

WORDS, LABELS = 943, 129
EMBEDDING, HIDDEN = 150, 300
MINIBATCH = 500           # words, filled with whole queries
RATE = 0.02               # per word
MEMORY = 1000             # words: the time constant of the momentum


def reader(path, training):
    """Queries in random order without end for training; the file once, in its own order, for testing."""
    streams = C.io.StreamDefs(query=C.io.StreamDef(field='S0', shape=WORDS, is_sparse=True),
                              slots=C.io.StreamDef(field='S2', shape=LABELS, is_sparse=True))
    return C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=training,
                                max_sweeps=C.io.INFINITELY_REPEAT if training else 1)


def tagger():
    return C.layers.Sequential([C.layers.Embedding(EMBEDDING, name='embedding'),
                                C.layers.Recurrence(C.layers.LSTM(HIDDEN), name='memory'),
                                C.layers.Dense(LABELS, name='scores')])


def train(trainer, source, input_map, slots, epochs, epoch_size):
    for epoch in range(epochs):
        start, words = time.perf_counter(), 0
        while words < epoch_size:
            minibatch = source.next_minibatch(MINIBATCH, input_map=input_map)
            trainer.train_minibatch(minibatch)
            words += minibatch[slots].num_samples
        trainer.summarize_training_progress()      # reads the losses, and so waits for the last minibatch
        print(f'Epoch {epoch + 1}: {words / (time.perf_counter() - start):.0f} words/s', flush=True)


def test(trainer, source, input_map, slots):
    """The share of wrong labels over all words of the file, and how many words there are."""
    errors = words = 0
    minibatch = source.next_minibatch(MINIBATCH, input_map=input_map)
    while minibatch:
        samples = minibatch[slots].num_samples
        errors += trainer.test_minibatch(minibatch) * samples
        words += samples
        minibatch = source.next_minibatch(MINIBATCH, input_map=input_map)
    trainer.summarize_test_progress()
    return errors / words, words


def main(folder, epochs=3, epoch_size=36000, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    paths = [os.path.join(folder, name) for name in ('atis.train.ctf', 'atis.test.ctf')]
    for path in paths:
        if not os.path.isfile(path):
            raise SystemExit(f'{path} does not exist: give the folder that holds the ATIS files as the first argument')

    query = C.sequence.input_variable(WORDS, is_sparse=True, name='query')
    slots = C.sequence.input_variable(LABELS, is_sparse=True, name='slots')
    scores = tagger()(query)
    learner = C.momentum_sgd(scores.parameters, C.learning_parameter_schedule_per_sample(RATE),
                             C.momentum_schedule_per_sample(math.exp(-1 / MEMORY)))
    trainer = C.Trainer(scores, (C.cross_entropy_with_softmax(scores, slots), C.classification_error(scores, slots)),
                        [learner], [C.logging.ProgressPrinter(freq=25, tag='Training', num_epochs=epochs)])
    C.logging.log_number_of_parameters(scores)

    source = reader(paths[0], training=True)
    train(trainer, source, {query: source.streams.query, slots: source.streams.slots}, slots, epochs, epoch_size)
    source = reader(paths[1], training=False)
    error, words = test(trainer, source, {query: source.streams.query, slots: source.streams.slots}, slots)
    print(f'Test error: {100 * error:.2f}% of {words} words')
    return error


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('folder')
    arguments.add_argument('--epochs', type=int, default=3)
    arguments.add_argument('--epoch-size', type=int, default=36000, help='words per epoch (default: 36000)')
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
