"""Handwritten digits with a small convolutional network: train, test, save, load and evaluate.

    python digits.py                       needs scikit-learn, which brings the 1,797 digits of 8x8 pixels

The file is a plain CNTK 2.7 script.
"""
import argparse
import os
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import cntk as C

CLASSES, SIDE = 10, 8
TRAINING = 1437           # images; the other 360 are for testing
MINIBATCH = 32


def data():
    """((images, labels) for training, the same for testing): pixels of 0 to 1 [n, 1, 8, 8], one-hot labels [n, 10]."""
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images = (digits.images[order, np.newaxis] / 16).astype(np.float32)
    labels = np.eye(CLASSES, dtype=np.float32)[digits.target[order]]
    return (images[:TRAINING], labels[:TRAINING]), (images[TRAINING:], labels[TRAINING:])


def network():
    with C.layers.default_options(activation=C.relu, pad=True):
        return C.layers.Sequential([
            C.layers.Convolution2D((3, 3), 16),
            C.layers.Convolution2D((3, 3), 32),
            C.layers.MaxPooling((2, 2), strides=2, pad=False),
            C.layers.Convolution2D((3, 3), 64),
            C.layers.MaxPooling((2, 2), strides=2, pad=False),
            C.layers.Dense(64),
            C.layers.Dropout(0.25),
            C.layers.Dense(CLASSES, activation=None)])


def main(epochs=15, seed=1, path=None):
    C.cntk_py.set_fixed_random_seed(seed)
    (images, labels), (test_images, test_labels) = data()

    pixels, digit = C.input_variable((1, SIDE, SIDE), name='pixels'), C.input_variable(CLASSES, name='digit')
    scores = network()(pixels)
    learner = C.adam(scores.parameters, C.learning_parameter_schedule_per_sample(0.002), C.momentum_schedule(0.9),
                     variance_momentum=C.momentum_schedule(0.999))
    progress = C.logging.ProgressPrinter(tag='Training', num_epochs=epochs)
    trainer = C.Trainer(scores, (C.cross_entropy_with_softmax(scores, digit), C.classification_error(scores, digit)),
                        [learner], [progress])
    C.logging.log_number_of_parameters(scores)

    shuffle = np.random.RandomState(seed)
    for _ in range(epochs):
        order = shuffle.permutation(TRAINING)
        for start in range(0, TRAINING, MINIBATCH):
            chosen = order[start:start + MINIBATCH]
            trainer.train_minibatch({pixels: images[chosen], digit: labels[chosen]})
        trainer.summarize_training_progress()

    error = trainer.test_minibatch({pixels: test_images, digit: test_labels})
    trainer.summarize_test_progress()
    print(f'Test error: {100 * error:.2f}% of {len(test_images)} digits')

    path = path or os.path.join(tempfile.mkdtemp(), 'digits.model')
    scores.save(path)
    guesses = np.argmax(C.load_model(path).eval(test_images), axis=1)
    wrong = np.flatnonzero(guesses != np.argmax(test_labels, axis=1))
    print(f'Saved as {path}, loaded again: {len(wrong)} of {len(guesses)} digits are wrong')
    for index in wrong[:3]:
        print(f'This {np.argmax(test_labels[index])} was taken for a {guesses[index]}:')
        print('\n'.join(''.join(' .:-=+*#%@'[int(9 * pixel)] * 2 for pixel in row) for row in test_images[index, 0]))
    return error


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('--epochs', type=int, default=15)
    arguments.add_argument('--seed', type=int, default=1)
    arguments.add_argument('--path', help='where to save the model (default: a temporary folder)')
    main(**vars(arguments.parse_args()))
