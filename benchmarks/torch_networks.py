"""The networks in PyTorch, as its users write them. What NETWORKS holds is as in cntk_networks.py.

`compiled` turns a network into one that `torch.compile` made faster; packed sequences (ATIS) it leaves as they are.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator

import data
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

Run = Callable[[int], int]


def runner(
    network: nn.Module, loss_of: Callable[..., torch.Tensor], minibatches: Iterator[tuple[tuple, int]], compiled: bool
) -> Run:
    """Trains on what `minibatches` yields: (arguments of `loss_of` after the network, number of samples)."""
    loss_of = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def run(count: int) -> int:
        samples = 0
        for arguments, size in itertools.islice(minibatches, count):
            optimizer.zero_grad()
            loss = loss_of(network, *arguments)
            loss.backward()
            optimizer.step()
            samples += size
        assert math.isfinite(loss.item())
        return samples

    return run


def classifier(network: nn.Module, minibatches: list, compiled: bool) -> Run:
    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(x), y)

    batches = [((torch.from_numpy(x), torch.from_numpy(y).long()), len(y)) for x, y in minibatches]
    return runner(network, loss_of, itertools.cycle(batches), compiled)


def fcn5(compiled: bool = False) -> Run:
    sizes = [data.PIXELS, 4096, 2048, 1024]
    return classifier(perceptron(sizes), data.vectors(), compiled)


def tiny(compiled: bool = False) -> Run:
    return classifier(perceptron([data.TINY_WIDTH] * 5), data.vectors(data.TINY_WIDTH, data.TINY_BATCH), compiled)


def perceptron(sizes: list[int]) -> nn.Sequential:
    hidden = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.Sigmoid())]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], data.CLASSES))


def alexnet(compiled: bool = False) -> Run:
    def stage(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2))

    network = nn.Sequential(
        stage(3, 32), stage(32, 32), stage(32, 64), nn.Flatten(), nn.Linear(64 * 3 * 3, data.CLASSES)
    )
    return classifier(network, data.images(data.ALEXNET_BATCH), compiled)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *normalized(3, inputs, outputs, stride), nn.ReLU(), *normalized(3, outputs, outputs, 1)
        )
        self.shortcut = nn.Sequential(*normalized(1, inputs, outputs, stride)) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x) + self.shortcut(x))


def normalized(size: int, inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def resnet56(compiled: bool = False) -> Run:
    def stage(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(8))]

    network = nn.Sequential(
        *normalized(3, 3, 16, 1), nn.ReLU(), *stage(16, 16, 1), *stage(16, 32, 2), *stage(32, 64, 2),
        nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, data.CLASSES),
    )  # fmt: skip
    return classifier(network, data.images(data.RESNET_BATCH), compiled)


class Tagger(nn.Module):
    """Embedding, LSTM and a linear layer for every word; also for packed sequences."""

    def __init__(self, words: int, embedding: int, hidden: int, layers: int, labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.memory = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.scores = nn.Linear(hidden, labels)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embedding(words)
        if lengths is None:
            return self.scores(self.memory(x)[0])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.scores(self.memory(packed)[0].data)


def lstm(batch: int, compiled: bool = False) -> Run:
    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(x).flatten(0, 1), y.flatten())

    batches = [((torch.from_numpy(x), torch.from_numpy(y).long()), x.size) for x, y in data.texts(batch)]
    network = Tagger(data.VOCABULARY, 256, 256, 2, data.VOCABULARY)
    return runner(network, loss_of, itertools.cycle(batches), compiled)


def atis(folder: str, compiled: bool = False) -> Run:
    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
        return F.cross_entropy(network(x, lengths), packed.data)

    def minibatches() -> Iterator[tuple[tuple, int]]:
        items = data.queries(os.path.join(folder, "atis.train.ctf"))
        for chosen in data.shuffled_minibatches(items, data.ATIS_MINIBATCH):
            lengths = torch.tensor([len(words) for words, _ in chosen])
            x, y = (
                pad_sequence([torch.from_numpy(query[side]).long() for query in chosen], batch_first=True)
                for side in (0, 1)
            )
            yield (x, y, lengths), int(lengths.sum())

    network = Tagger(data.ATIS_WORDS, 150, 300, 1, data.ATIS_LABELS)
    return runner(network, loss_of, minibatches(), compiled)


NETWORKS = {
    "fcn5": fcn5,
    "alexnet": alexnet,
    "resnet56": resnet56,
    "lstm64": functools.partial(lstm, 64),
    "lstm256": functools.partial(lstm, 256),
    "atis": atis,
    "tiny": tiny,
}
