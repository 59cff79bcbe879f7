"""A character language model: two LSTM layers that predict each next character of a text.

    python char_lm.py TEXT                 such as tinyshakespeare.txt, one megabyte

The text is cut into pieces of 64 characters; the last twentieth of them is for testing. The file is a plain CNTK 2.7
script.
"""
import argparse
import math
import time

import numpy as np

import cntk as C

LENGTH = 64               # characters in a piece
MINIBATCH = 32            # pieces
HIDDEN = 128


def pieces(path):
    """(inputs, next characters) [n, LENGTH] each, as indices into the returned list of the text's characters."""
    with open(path, encoding='utf-8') as file:
        text = np.array(list(file.read()))
    alphabet, codes = np.unique(text, return_inverse=True)
    count = (len(codes) - 1) // LENGTH
    if count < 20:
        raise SystemExit(f'{path} has {len(codes)} characters: at least {20 * LENGTH + 1} are needed')
    cut = [codes[shift:shift + count * LENGTH].reshape(count, LENGTH).astype(np.float32) for shift in (0, 1)]
    return cut[0], cut[1], list(alphabet)


def network(characters):
    return C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(HIDDEN)),
                                C.layers.Recurrence(C.layers.LSTM(HIDDEN)),
                                C.layers.Dense(characters)])


def batches(order, *arrays):
    for start in range(0, len(order), MINIBATCH):
        yield [array[order[start:start + MINIBATCH]] for array in arrays]


def main(path, limit=None, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    inputs, targets, alphabet = pieces(path)
    everything = np.arange(len(inputs))[:limit]
    training, testing = np.split(everything, [len(everything) * 19 // 20])

    character, following = C.sequence.input_variable(()), C.sequence.input_variable(())
    scores = network(len(alphabet))(C.one_hot(character, len(alphabet)))
    truth = C.one_hot(following, len(alphabet))
    loss, wrong = C.cross_entropy_with_softmax(scores, truth), C.classification_error(scores, truth)
    learner = C.adam(scores.parameters, C.learning_parameter_schedule_per_sample(0.005), C.momentum_schedule(0.9),
                     variance_momentum=C.momentum_schedule(0.99))
    trainer = C.Trainer(scores, (loss, wrong), [learner], [C.logging.ProgressPrinter(freq=50, num_epochs=1)])
    C.logging.log_number_of_parameters(scores)

    begun = time.perf_counter()
    for now, later in batches(np.random.RandomState(seed).permutation(training), inputs, targets):
        trainer.train_minibatch({character: now, following: later})
    trainer.summarize_training_progress()         # reads the losses, and so waits for the last minibatch
    print(f'{training.size * LENGTH / (time.perf_counter() - begun):.0f} characters/s', flush=True)

    evaluator = C.eval.Evaluator(loss)
    nats = sum(evaluator.test_minibatch({character: now, following: later}) * len(now)
               for now, later in batches(testing, inputs, targets)) / len(testing)
    print(f'Test cross entropy: {nats:.4f} nats ({nats / math.log(2):.4f} bits) per character, '
          f'{testing.size * LENGTH} characters')
    return nats


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('path', metavar='TEXT')
    arguments.add_argument('--limit', type=int, help='use only the first pieces, this many')
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
