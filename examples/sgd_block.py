"""Handwritten digits, trained as an SGD block of CNTK describes it, with a searched learning rate, and a picture of it.

    python sgd_block.py                    needs scikit-learn and matplotlib

The first rate of the block is a hundred times too high. Before each epoch short trials find a better one.
"""
import argparse
import os
import tempfile

import digits
import numpy as np

import cntkjax as C
from cntkjax.sgd import SGD

BLOCK = """
SGD = {
    maxEpochs = 6 ; minibatchSize = 16
    learningRatesPerSample = 1          # a hundred times too high
    momentumPerMB = 0.9
    numMBsToShowResult = 45 ; firstMBsToShowResult = 0
    modelPath = "$folder$/digits.model"
    autoAdjust = {
        autoAdjustLR = "searchBeforeEpoch"
        autoAdjustMinibatch = true ; minibatchSizeTuningFrequency = 2
    }
}
"""


def main(folder=None, epochs=6, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    folder = folder or tempfile.mkdtemp()
    (images, labels), (test_images, test_labels) = digits.data()
    pixels, digit = C.input_variable((1, digits.SIDE, digits.SIDE)), C.input_variable(digits.CLASSES)
    scores = digits.network()(pixels)
    loss, error = C.cross_entropy_with_softmax(scores, digit), C.classification_error(scores, digit)

    block = SGD.parse(f'folder = "{folder}"\n{BLOCK}', maxEpochs=epochs)
    history = block.train((loss, error), (images, labels), cv_source=(test_images, test_labels))

    for epoch in history:
        print(f'Epoch {epoch.number}: rate {epoch.rate:.4f}, minibatches of {epoch.minibatch_size}, '
              f'loss {epoch.loss:.4f}, {epoch.search_minibatches} minibatches in trials')
    print(f'Test error: {100 * history[-1].cv_metric:.2f}%')
    picture = os.path.join(folder, 'history.svg')
    history.plot(picture)
    print(f'The picture is {picture}')
    guesses = np.argmax(scores.eval(test_images), axis=1)
    return np.mean(guesses != np.argmax(test_labels, axis=1))


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('--folder', help='for the model and the picture (default: a temporary one)')
    arguments.add_argument('--epochs', type=int, default=6)
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
