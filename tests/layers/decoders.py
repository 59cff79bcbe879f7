"""A decoder with attention that is fed its own outputs; the weights have no sizes before it is applied."""

import numpy as np

import cntkjax as C
from cntkjax import layers as L


def decoder(size, **options):
    """The greedy decoder, the function of its scores, and its first word; `options` go to UnfoldFrom."""
    embed, encode = L.Embedding(5), L.Recurrence(L.GRU(4))
    attend, cell, project = L.AttentionModel(3), L.LSTM(7), L.Dense(size)
    start = C.constant(np.eye(size, dtype=np.float32)[0])

    @C.Function
    def decode(history, source):
        encoded = encode(embed(source))

        @C.Function
        def step(h, c, word):
            return cell(h, c, C.splice(word, attend(encoded, h)))

        return project(L.Recurrence(step)(embed(history)))

    @C.Function
    def greedy(source: L.SequenceOver[C.Axis("source")][L.Tensor[size]]):
        return L.UnfoldFrom(lambda history: decode(history, source) >> C.hardmax, **options)(start, source)

    return greedy, decode, start


def words(rng, size, *lengths):
    """Sources of these lengths, with a random word in each step."""
    return [np.eye(size, dtype=np.float32)[rng.integers(size, size=n)] for n in lengths]
