"""From letters to sounds: sequence to sequence with attention, decoded greedily; CMU's pronouncing dictionary.

    python cmudict_g2p.py FOLDER           with cmudict-0.7b.train-dev-1-21.ctf, .test.ctf and .mapping

A bi-directional encoder reads the letters (stream S0); the decoder looks at all of its states and says one sound
(stream S1) after the other. In training it is told the sounds before ("teacher forcing"), afterwards it hears itself:
UnfoldFrom feeds each output back until it is the end of the word. The file is a plain CNTK 2.7 script.
"""
import argparse
import os
import time

import numpy as np

import cntk as C

L = C.layers
SYMBOLS, START, END = 69, '<s>', '</s>'
EMBEDDING, ENCODER, DECODER, ATTENTION = 64, 96, 128, 96
MINIBATCH = 720                  # letters and sounds, filled with whole words
RATE = 0.003

LETTERS, SOUNDS = C.Axis('letters'), C.Axis('sounds')


def read_symbols(folder):
    with open(os.path.join(folder, 'cmudict-0.7b.mapping'), encoding='utf-8') as lines:
        return [line.rstrip('\n') for line in lines]


def reader(folder, which, training):
    path = os.path.join(folder, 'cmudict-0.7b.%s.ctf' % which)
    if not os.path.exists(path):
        raise SystemExit(f'{path} does not exist: give the folder that holds it')
    streams = C.io.StreamDefs(letters=C.io.StreamDef(field='S0', shape=SYMBOLS, is_sparse=True),
                              sounds=C.io.StreamDef(field='S1', shape=SYMBOLS, is_sparse=True))
    return C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=training,
                                max_sweeps=C.io.INFINITELY_REPEAT if training else 1)


def one_hot(index):
    return np.eye(SYMBOLS, dtype=np.float32)[index]


def networks(start, end):
    """The decoder in training: (letters, sounds before) -> scores; and in use: letters -> one-hot sounds."""
    embed = L.Embedding(EMBEDDING)
    read = L.Sequential([embed, (L.Recurrence(L.GRU(ENCODER)), L.Recurrence(L.GRU(ENCODER), go_backwards=True)),
                         C.splice])
    attend, cell = L.AttentionModel(ATTENTION), L.GRU(DECODER)
    score = L.Sequential([L.Stabilizer(), L.Dense(SYMBOLS)])

    @C.Function
    def decode(before, letters):
        states = read(letters)

        @C.Function
        def step(state, sound):
            return cell(state, C.splice(sound, attend(states, state)))

        return score(L.Recurrence(step)(embed(before)))

    @C.Function
    def speak(letters: L.SequenceOver[LETTERS][L.SparseTensor[SYMBOLS]]):
        unfold = L.UnfoldFrom(lambda before: decode(before, letters) >> C.hardmax,
                              until_predicate=lambda sound: C.slice(sound, -1, end, end + 1), length_increase=1.5)
        return unfold(initial_state=C.Constant(one_hot(start)), dynamic_axes_like=letters)

    return decode, speak


def errors(spoken, truth):
    """Insertions, deletions and substitutions that lead from one list to the other."""
    row = list(range(len(truth) + 1))
    for i, sound in enumerate(spoken):
        diagonal, row[0] = row[0], i + 1
        for j, other in enumerate(truth):
            diagonal, row[j + 1] = row[j + 1], min(row[j] + 1, row[j + 1] + 1, diagonal + (sound != other))
    return row[-1]


def indices(value):
    """One-hot sequences as lists of numbers."""
    return [np.asarray(s.todense() if hasattr(s, 'todense') else s).argmax(axis=1).tolist() for s in value]


def test(speak, folder, symbols, limit, show=5):
    """The share of wrong sounds over the first `limit` samples of the test file, and sounds spoken a second."""
    source, end = reader(folder, 'test', False), symbols.index(END)
    streams = {name: source.stream_info(name) for name in ('letters', 'sounds')}
    letters = speak.arguments[0]
    wrong = sounds = spoken = seen = 0
    begun = time.perf_counter()
    while seen < limit:
        minibatch = source.next_minibatch(MINIBATCH)
        if not minibatch:
            break
        words, truth = (minibatch[streams[name]] for name in ('letters', 'sounds'))
        seen += words.num_samples
        predicted = indices(speak.eval({letters: words.data}))
        expected = [s[1:] for s in indices(truth.as_sequences(C.sequence.input_variable(SYMBOLS, True)))]
        for word, reference in zip(predicted, expected):  # noqa: B905
            if show:
                print('   ', *[symbols[s].strip('~') for s in word if s != end])
                show -= 1
            spoken += len(word)
            wrong += errors([s for s in word if s != end], [s for s in reference if s != end])
            sounds += len(reference) - 1
    return wrong / sounds, spoken / (time.perf_counter() - begun)


def main(folder, limit=150000, tested=5000, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    symbols = read_symbols(folder)
    start, end = symbols.index(START), symbols.index(END)
    decode, speak = networks(start, end)
    letters = C.sequence.input_variable(SYMBOLS, is_sparse=True, sequence_axis=LETTERS, name='letters')
    sounds = C.sequence.input_variable(SYMBOLS, sequence_axis=SOUNDS, name='sounds')
    truth = C.sequence.slice(sounds, 1, 0)                                              # without <s>
    scores = decode(L.Delay(initial_state=C.Constant(one_hot(start)))(truth), letters)
    loss, wrong = C.cross_entropy_with_softmax(scores, truth), C.classification_error(scores, truth)
    learner = C.adam(scores.parameters, C.learning_parameter_schedule(RATE), C.momentum_schedule(0.9),
                     variance_momentum=C.momentum_schedule(0.99), minibatch_size=C.learners.IGNORE,
                     gradient_clipping_threshold_per_sample=2.3)
    trainer = C.Trainer(scores, (loss, wrong), [learner], [C.logging.ProgressPrinter(freq=100, num_epochs=1)])

    source = reader(folder, 'train-dev-1-21', True)
    streams = {letters: source.streams.letters, sounds: source.streams.sounds}
    begun, seen = time.perf_counter(), 0
    while seen < limit:
        minibatch = source.next_minibatch(MINIBATCH, input_map=streams)
        trainer.train_minibatch(minibatch)
        seen += minibatch[sounds].num_samples
    trainer.summarize_training_progress()          # reads the losses, and so waits for the last minibatch
    print(f'{seen / (time.perf_counter() - begun):.0f} sounds/s in training', flush=True)

    error, speed = test(speak, folder, symbols, tested)
    print(f'{speed:.0f} sounds/s in decoding')
    print(f'Test: {100 * error:.2f}% of the sounds are wrong')
    return error


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('folder', metavar='FOLDER')
    arguments.add_argument('--limit', type=int, default=150000, help='sounds to learn from')
    arguments.add_argument('--tested', type=int, default=5000, help='letters to test with')
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
