"""Small graphs as in tests and notebooks, each evaluated once. Also runs on Python 3.6, for CNTK 2.7.

    python small_graphs.py [COUNT [UNCOUNTED]]

Writes one line of JSON: milliseconds and CPU milliseconds for each graph, and the growth of memory in MB after the
first UNCOUNTED graphs, which load what is loaded at first use.
"""
import json
import os
import random
import sys
import time

import numpy as np

import cntk as C

UNARY = [C.sigmoid, C.tanh, C.relu, C.exp, C.abs, C.negate, C.sqrt, C.floor, C.softplus, C.elu, C.sin, C.square,
         C.softmax, C.log_softmax, C.hardmax, C.reciprocal]
BINARY = [C.plus, C.minus, C.element_times, C.element_divide, C.element_max, C.element_min, C.greater, C.less_equal,
          C.log_add_exp]
REDUCTIONS = [C.reduce_sum, C.reduce_mean, C.reduce_max, C.reduce_min, C.reduce_log_sum_exp, C.reduce_prod]


class Generator:
    """Random graphs, the same for equal seeds; `graph` returns a function, its data, and the inputs to differentiate
    with respect to, or None for an evaluation."""

    def __init__(self, seed=1):
        self.random, self.numbers = random.Random(seed), np.random.RandomState(seed)

    def shape(self, low=1, high=3):
        """A shape of `low` to `high` axes of 2 to 6."""
        return tuple(self.random.randint(2, 6) for _ in range(self.random.randint(low, high)))

    def data(self, *shape):
        """Positive numbers."""
        return self.numbers.uniform(0.1, 1, shape).astype(np.float32)

    def sequences(self, *shape):
        """One to four sequences of one to six steps."""
        return [self.data(self.random.randint(1, 6), *shape) for _ in range(self.random.randint(1, 4))]

    def one_hot(self, width):
        """One to four sequences of one to six classes."""
        return [self.numbers.randint(width, size=self.random.randint(1, 6)).tolist()
                for _ in range(self.random.randint(1, 4))]

    def graph(self):
        """A random graph of a random kind."""
        kinds = ['elementwise', 'constants', 'reduction', 'product', 'slices', 'images', 'dense_layers', 'sequence',
                 'recurrence', 'sparse', 'embedding', 'criterion', 'gradient', 'composed']
        return getattr(self, self.random.choice(kinds))()

    def elementwise(self):
        """Two to four elementwise operations of an input."""
        shape = self.shape()
        x = C.input_variable(shape)
        y = x
        for _ in range(self.random.randint(2, 4)):
            if self.random.random() < 0.5:
                y = self.random.choice(UNARY)(y)
            else:
                y = self.random.choice(BINARY)(y, self.data(*shape))
        return y, {x: self.data(self.random.randint(1, 4), *shape)}, None

    def constants(self):
        """Operations of arrays alone, as in CNTK's documentation."""
        shape = self.shape()
        binary = self.random.choice(BINARY)
        return self.random.choice(UNARY)(binary(self.data(*shape), self.data(*shape))), {}, None

    def reduction(self):
        """A reduction over one axis of an input."""
        shape = self.shape(2, 3)
        x = C.input_variable(shape)
        y = self.random.choice(REDUCTIONS)(x, axis=self.random.randrange(len(shape)))
        return self.random.choice(UNARY[:8])(y), {x: self.data(2, *shape)}, None

    def product(self):
        """x @ W + b."""
        n, m, batch = (self.random.randint(2, 9) for _ in range(3))
        x = C.input_variable(n)
        y = C.plus(C.times(x, C.parameter((n, m), init=0.5)), C.parameter(m))
        return self.random.choice(UNARY)(y), {x: self.data(batch, n)}, None

    def slices(self):
        """Slices, transposes, joins and reshapes."""
        rows, columns = self.random.randint(3, 7), self.random.randint(2, 6)
        x = C.input_variable((rows, columns))
        begin = self.random.randrange(rows - 1)
        part = C.slice(x, 0, begin, self.random.randint(begin + 1, rows))
        y = self.random.choice([
            lambda: C.splice(part, part, axis=self.random.randrange(2)), lambda: C.transpose(part, (1, 0)),
            lambda: C.reshape(x, (rows * columns,)), lambda: C.reshape(part, (-1, 1)), lambda: C.pad(
                part, [(1, self.random.randint(0, 3)), (0, 1)]), lambda: C.argmax(part, axis=1),
            lambda: C.alias(C.top_k(part, 1, axis=1).outputs[0])])()
        return y, {x: self.data(self.random.randint(1, 3), rows, columns)}, None

    def images(self):
        """A convolution, and perhaps pooling."""
        channels, filters, size = self.random.randint(1, 3), self.random.randint(1, 4), self.random.randint(5, 9)
        kernel = self.random.choice([2, 3])
        x = C.input_variable((channels, size, size))
        y = C.convolution(C.parameter((filters, channels, kernel, kernel), init=0.1), x,
                          strides=(self.random.choice([1, 2]),) * 2, auto_padding=[False, True, True])
        if self.random.random() < 0.5:
            pooling = self.random.choice([C.MAX_POOLING, C.AVG_POOLING])
            y = C.pooling(C.relu(y), pooling, (2, 2), strides=(self.random.choice([1, 2]),) * 2)
        return y, {x: self.data(self.random.randint(1, 2), channels, size, size)}, None

    def dense_layers(self):
        """A network of layers."""
        n = self.random.randint(2, 8)
        x = C.input_variable(n)
        layers = [C.layers.Dense(self.random.randint(2, 8), activation=self.random.choice([C.relu, C.tanh, None]))
                  for _ in range(self.random.randint(1, 3))]
        extra = [C.layers.BatchNormalization(), C.layers.LayerNormalization(), C.layers.Dropout(0.5), C.softmax]
        y = C.layers.Sequential([*layers, self.random.choice(extra)])(x)
        return y, {x: self.data(self.random.randint(1, 5), n)}, None

    def sequence(self):
        """Operations along sequences."""
        n = self.random.randint(1, 5)
        x = C.sequence.input_variable(n)
        y = self.random.choice([
            C.sequence.first, C.sequence.last, C.sequence.reduce_sum, C.sequence.reduce_max, C.sequence.softmax,
            C.sequence.is_first, C.sequence.is_last,
            lambda v: C.sequence.past_value(v, time_step=self.random.randint(1, 3)),
            lambda v: C.sequence.future_value(v, time_step=self.random.randint(1, 3)),
            lambda v: C.sequence.broadcast_as(C.sequence.last(v), v),
            lambda v: C.sequence.unpack(v, 0, no_mask_output=True),
            lambda v: C.sequence.gather(v, C.sequence.is_first(v)),
        ])(self.random.choice([lambda v: v, C.sigmoid, C.negate])(x))
        return y, {x: self.sequences(n)}, None

    def recurrence(self):
        """A recurrent layer."""
        n, cells = self.random.randint(1, 4), self.random.randint(1, 5)
        cell = self.random.choice([C.layers.LSTM, C.layers.GRU, C.layers.RNNStep])(cells)
        x = C.sequence.input_variable(n)
        recurrence = self.random.choice([
            lambda: C.layers.Recurrence(cell), lambda: C.layers.Recurrence(cell, go_backwards=True),
            lambda: C.layers.Fold(cell)])()
        return recurrence(x), {x: self.sequences(n)}, None

    def sparse(self):
        """The product of a sparse vector with a weight."""
        width, n = self.random.randint(5, 20), self.random.randint(1, 5)
        x = C.input_variable(width, is_sparse=True)
        y = self.random.choice(UNARY)(C.times(x, C.parameter((width, n), init=0.3)))
        classes = self.numbers.randint(width, size=self.random.randint(1, 5)).tolist()
        return y, {x: C.Value.one_hot([[c] for c in classes], width)}, None

    def embedding(self):
        """A sequence of words, embedded and summed."""
        width, n = self.random.randint(5, 20), self.random.randint(1, 5)
        x = C.sequence.input_variable(width, is_sparse=True)
        y = self.random.choice([C.sequence.reduce_sum, C.sequence.last, C.tanh])(C.layers.Embedding(n)(x))
        return y, {x: C.Value.one_hot(self.one_hot(width), width)}, None

    def criterion(self):
        """A loss or a metric."""
        n, batch = self.random.randint(2, 8), self.random.randint(1, 4)
        x, y = C.input_variable(n), C.input_variable(n)
        criterion = self.random.choice([
            C.cross_entropy_with_softmax, C.classification_error, C.squared_error, C.binary_cross_entropy,
            C.cosine_distance])
        return criterion(C.sigmoid(x), y), {x: self.data(batch, n), y: np.eye(n, dtype=np.float32)[[0] * batch]}, None

    def gradient(self):
        """The gradient of one of the other graphs of an input."""
        shape = self.shape()
        x = C.input_variable(shape, needs_gradient=True)
        y = self.random.choice(BINARY[:6])(self.random.choice(UNARY[:6])(x), self.data(*shape))
        y = self.random.choice([C.square, C.sigmoid, C.reduce_sum])(y)
        return y, {x: self.data(self.random.randint(1, 4), *shape)}, [x]

    def composed(self):
        """A dozen operations of two inputs."""
        shape = self.shape(2, 2)
        x, y = C.input_variable(shape), C.input_variable(shape)
        z = self.random.choice(BINARY)(x, y)
        for _ in range(self.random.randint(4, 8)):
            z = self.random.choice(BINARY[:4])(self.random.choice(UNARY[:6])(z), self.random.choice([x, y, 0.5, 2]))
        z = self.random.choice(REDUCTIONS)(z, axis=0)
        return z, {x: self.data(2, *shape), y: self.data(2, *shape)}, None


def resident():
    """Resident megabytes of this process."""
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20


def main(count=1000, uncounted=100):
    """Evaluate graphs."""
    generator = Generator()
    begin, cpu, memory = time.perf_counter(), time.process_time(), resident()
    for number in range(count):
        f, data, wrt = generator.graph()
        if wrt is None:
            f.eval(data)
        else:
            f.grad(data, wrt=wrt)
        if number == uncounted - 1:
            memory = resident()
    print(json.dumps({
        'milliseconds': 1000 * (time.perf_counter() - begin) / count,
        'cpu_milliseconds': 1000 * (time.process_time() - cpu) / count, 'growth': resident() - memory}))


if __name__ == '__main__':
    main(*map(int, sys.argv[1:]))
