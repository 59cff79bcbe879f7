"""Helpers of the networks. Plain Python 3.6, so that CNTK 2.7's interpreter can import it."""
import itertools

import numpy as np


def set_weights(model, seed=0, gain=1.4):
    """Give matrices and filters values that do not depend on the engine: normal, of deviation gain / sqrt(fan-in)."""
    random = np.random.RandomState(seed)
    for p in model.parameters:
        if len(p.shape) > 1:
            fan_in = np.prod(p.shape) / max(p.shape[0], p.shape[-1]) if len(p.shape) > 2 else p.shape[0]
            p.value = (random.standard_normal(p.shape) * gain / np.sqrt(fan_in)).astype(np.float32)
    return model


def momentum(C, model, rate, factor=0.9):
    return C.momentum_sgd(model.parameters, C.learning_parameter_schedule(rate), C.momentum_schedule(factor))


def adam(C, model, rate):
    return C.adam(model.parameters, C.learning_parameter_schedule(rate), C.momentum_schedule(0.9),
                  variance_momentum=C.momentum_schedule(0.99), minibatch_size=C.learners.IGNORE)


def train(C, model, loss, learner, minibatches, steps):
    """The mean loss of each of `steps` minibatches; the minibatches (arguments) are repeated as needed."""
    trainer = C.Trainer(model, loss, [learner])
    losses = []
    for arguments in itertools.islice(itertools.cycle(minibatches), steps):
        trainer.train_minibatch(arguments)
        losses.append(trainer.previous_minibatch_loss_average)
    return losses


def classify(C, network, shape, classes, steps, batch=16, rate=0.02, noise=0.7, minibatches=8, learner=momentum):
    """Train a classifier of noisy templates, one for each class, without loading any data."""
    random = np.random.RandomState(1)
    templates = random.standard_normal((classes, *shape))
    x, y = C.input_variable(shape), C.input_variable(classes)
    model = set_weights(network(x))
    feeds = []
    for _ in range(minibatches):
        labels = random.randint(classes, size=batch)
        images = templates[labels] + noise * random.standard_normal((batch, *shape))
        feeds.append({x: images.astype(np.float32), y: np.eye(classes, dtype=np.float32)[labels]})
    return train(C, model, C.cross_entropy_with_softmax(model, y), learner(C, model, rate), feeds, steps)


def tenths(losses):
    """The mean over each tenth of the training, [10] or [10, losses]."""
    losses = np.asarray(losses, np.float64)
    return losses.reshape((10, -1, *losses.shape[1:])).mean(axis=1)
