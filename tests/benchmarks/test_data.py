"""The minibatches of the benchmarks."""

import itertools

import numpy as np

from benchmarks import data


def test_queries_are_read_from_ctf(tmp_path):
    path = tmp_path / "two.ctf"
    path.write_text("0\t|S0 178:1 |# BOS\t|S1 14:1 |# flight\t|S2 128:1 |# O\n"
                    "0\t|S0 479:1 |S2 12:1\n3\t|S0 7:1 |S2 1:1\n")
    first, second = data.queries(path)
    np.testing.assert_array_equal(first, [[178, 479], [128, 12]])
    np.testing.assert_array_equal(second, [[7], [1]])


def test_minibatches_have_whole_queries_each_once_per_pass():
    lengths = [3, 9, 1, 4, 4, 2]
    items = [(np.full(length, index), np.full(length, index)) for index, length in enumerate(lengths)]
    queries_seen = []
    for minibatch in data.shuffled_minibatches(items, 8):
        words = [len(words) for words, _ in minibatch]
        assert sum(words) <= 8 or words == [9]
        queries_seen += [int(words[0]) for words, _ in minibatch]
        if len(queries_seen) >= 3 * len(items):
            break
    passes = [queries_seen[start : start + len(items)] for start in (0, len(items))]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(len(items)))
    assert passes[0] != passes[1]


def test_random_minibatches_are_the_same_for_all_sides():
    for make in (data.vectors, lambda: data.images(4), lambda: data.texts(4)):
        for (x, y), (again_x, again_y) in zip(make(), make(), strict=True):
            np.testing.assert_array_equal(x, again_x)
            np.testing.assert_array_equal(y, again_y)


def test_next_words_are_the_words_that_follow():
    words, following = next(itertools.chain(data.texts(2)))
    np.testing.assert_array_equal(words[:, 1:], following[:, :-1])
