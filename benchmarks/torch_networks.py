"""The networks in PyTorch, as its users write them. For NETWORKS see cntk_networks.py.

With `compiled`, `torch.compile` is applied to the loss.
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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

Run = Callable[[int], int]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(DEVICE)  # of parameters and new tensors; minibatches are moved in `runner`


def runner(
    network: nn.Module, loss_of: Callable[..., torch.Tensor], minibatches: Iterator[tuple[tuple, int]], compiled: bool
) -> Run:
    """Trains on `minibatches`, pairs (arguments of `loss_of` after the network, number of samples)."""
    loss_of = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def run(count: int) -> int:
        samples = 0
        for arguments, size in itertools.islice(minibatches, count):
            optimizer.zero_grad()
            loss = loss_of(network, *(a.to(DEVICE) for a in arguments))
            loss.backward()
            optimizer.step()
            samples += size
        assert math.isfinite(loss.item())
        return samples

    return run


def classifier(network: nn.Module, minibatches: list, compiled: bool) -> Run:
    """Trains a classifier."""

    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(x), y)

    batches = [((torch.from_numpy(x), torch.from_numpy(y).long()), len(y)) for x, y in minibatches]
    return runner(network, loss_of, itertools.cycle(batches), compiled)


def fcn5(compiled: bool = False) -> Run:
    """Four sigmoid layers and an output layer."""
    sizes = [data.PIXELS, 4096, 2048, 1024]
    return classifier(perceptron(sizes), data.vectors(), compiled)


def tiny(compiled: bool = False) -> Run:
    """Five layers and ten parameters with next to no arithmetic."""
    return classifier(perceptron([data.TINY_WIDTH] * 5), data.vectors(data.TINY_WIDTH, data.TINY_BATCH), compiled)


def perceptron(sizes: list[int]) -> nn.Sequential:
    """A classifier with sigmoid layers of these sizes."""
    hidden = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.Sigmoid())]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], data.CLASSES))


def alexnet(compiled: bool = False) -> Run:
    """Three stages of convolution and pooling."""

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
    """A convolution and batch normalization."""
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def resnet56(compiled: bool = False) -> Run:
    """Residual blocks with batch normalization."""

    def stage(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(8))]

    network = nn.Sequential(
        *normalized(3, 3, 16, 1), nn.ReLU(), *stage(16, 16, 1), *stage(16, 32, 2), *stage(32, 64, 2),
        nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, data.CLASSES),
    )
    return classifier(network, data.images(data.RESNET_BATCH), compiled)


class Tagger(nn.Module):
    """Embedding, LSTM and a linear layer for each word; also for packed sequences."""

    def __init__(self, words: int, embedding: int, hidden: int, layers: int, labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.memory = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.scores = nn.Linear(hidden, labels)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embedding(words)
        if lengths is None:
            return self.scores(self.memory(x)[0])
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.scores(self.memory(packed)[0].data)


def lstm(batch: int, compiled: bool = False) -> Run:
    """A language model of two LSTM layers."""

    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(x).flatten(0, 1), y.flatten())

    batches = [((torch.from_numpy(x), torch.from_numpy(y).long()), x.size) for x, y in data.texts(batch)]
    network = Tagger(data.VOCABULARY, 256, 256, 2, data.VOCABULARY)
    return runner(network, loss_of, itertools.cycle(batches), compiled)


def atis(folder: str, compiled: bool = False) -> Run:
    """Slot tagging."""

    def loss_of(network: nn.Module, x: torch.Tensor, y: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(y, lengths.cpu(), batch_first=True, enforce_sorted=False)
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


class Bidirectional(nn.Module):
    """Three recurrent layers in both directions over packed sequences, then a class from the last frame."""

    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.memory = cell(data.FRAME_WIDTH, data.FRAME_STATES, 3, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(2 * data.FRAME_STATES, data.CLASSES)

    def forward(self, frames: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.memory(packed)[0], batch_first=True)
        return self.scores(states[torch.arange(len(lengths)), lengths - 1])


def bidirectional(cell: type[nn.RNNBase], compiled: bool = False) -> Run:
    """Three layers in both directions, then a class for the whole clip."""

    def loss_of(network: nn.Module, x: torch.Tensor, lengths: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(x, lengths), y)

    batches = [
        ((*padded([torch.from_numpy(clip) for clip in clips]), torch.from_numpy(labels).long()), sum(map(len, clips)))
        for clips, labels in data.clips()
    ]
    return runner(Bidirectional(cell), loss_of, itertools.cycle(batches), compiled)


def padded(texts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences side by side, and their lengths."""
    return pad_sequence(texts, batch_first=True), torch.tensor([len(text) for text in texts])


class Speller(nn.Module):
    """A bi-directional GRU encodes letters; a GRU with additive attention decodes symbols."""

    def __init__(self) -> None:
        super().__init__()
        states = data.WORD_STATES
        self.embedding = nn.Embedding(data.SYMBOLS, data.WORD_EMBEDDING)
        self.reader = nn.GRU(data.WORD_EMBEDDING, states, batch_first=True, bidirectional=True)
        self.project_states = nn.Linear(2 * states, states, bias=False)
        self.project_state = nn.Linear(states, states, bias=False)
        self.relevance = nn.Linear(states, 1, bias=False)
        self.cell = nn.GRUCell(data.WORD_EMBEDDING + 2 * states, states)
        self.scores = nn.Linear(states, data.SYMBOLS)

    def read(self, letters: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States of the letters, their projections for attention, and a mask of the padding."""
        packed = pack_padded_sequence(self.embedding(letters), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.reader(packed)[0], batch_first=True)
        return states, self.project_states(states), torch.arange(letters.shape[1])[None, :] >= lengths[:, None]

    def say(self, read: tuple[torch.Tensor, ...], state: torch.Tensor, symbol: torch.Tensor) -> torch.Tensor:
        """The next state of the decoder, from its state and the embedded previous symbol."""
        states, keys, padding = read
        relevance = self.relevance(torch.tanh(keys + self.project_state(state)[:, None]))[..., 0]
        weights = relevance.masked_fill(padding, -1e30).softmax(1)
        context = torch.bmm(weights[:, None], states)[:, 0]
        return self.cell(torch.cat([symbol, context], 1), state)


def attention(compiled: bool = False) -> Run:
    """Training with teacher forcing."""

    def loss_of(network: Speller, x: torch.Tensor, long: torch.Tensor, y: torch.Tensor, symbol_lengths: torch.Tensor):
        read, before = network.read(x, long), network.embedding(F.pad(y, (1, -1), value=data.WORD_START))
        state, states = torch.zeros(len(x), data.WORD_STATES), []
        for t in range(y.shape[1]):
            state = network.say(read, state, before[:, t])
            states.append(state)
        mask = torch.arange(y.shape[1])[None, :] < symbol_lengths[:, None]
        return F.cross_entropy(network.scores(torch.stack(states, 1)[mask]), y[mask])

    batches = [
        ((*words(x), *words(y)), sum(map(len, y))) for x, y in data.spellings()
    ]
    return runner(Speller(), loss_of, itertools.cycle(batches), compiled)


def words(texts: list) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded words and their lengths."""
    return padded([torch.from_numpy(text).long() for text in texts])


def decoding(compiled: bool = False) -> Run:
    """Greedy decoding."""
    network = Speller()
    batches = itertools.cycle([words(x) for x, _ in data.spellings()])

    @torch.no_grad()
    def run(count: int) -> int:
        samples = 0
        for letters, lengths in itertools.islice(batches, count):
            letters, lengths = letters.to(DEVICE), lengths.to(DEVICE)
            read = network.read(letters, lengths)
            state = torch.zeros(len(letters), data.WORD_STATES)
            symbol = torch.full((len(letters),), data.WORD_START)
            symbols_out = []
            for _ in range(int(lengths.max())):
                state = network.say(read, state, network.embedding(symbol))
                symbol = network.scores(state).argmax(1)
                symbols_out.append(symbol)
            assert len(torch.stack(symbols_out, 1)) == len(letters)
            samples += int(lengths.sum())
        return samples

    return run


NETWORKS = {
    "bilstm": functools.partial(bidirectional, nn.LSTM),
    "bigru": functools.partial(bidirectional, nn.GRU),
    "attention": attention,
    "decoding": decoding,
    "fcn5": fcn5,
    "alexnet": alexnet,
    "resnet56": resnet56,
    "lstm64": functools.partial(lstm, 64),
    "lstm256": functools.partial(lstm, 256),
    "atis": atis,
    "tiny": tiny,
}
