"""Lattices of a speech recognizer: their format, the models of their units, and posteriors of states. NumPy only.

A lattice is a graph of hypotheses about an utterance. Its nodes are at frames; an edge between two nodes has a score of
the language model and is aligned with units (phones), each for some frames. All numbers are little-endian:

    header    "LAT ", int32 2, uint32 nodes, uint32 edges, float32 factor and float32 penalty of the recognizer, float64
              duration of a frame, uint32 frames, uint32 implied unit
    nodes     "NODS", int32 nodes, for each its uint16 frame; the last node ends the utterance
    edges     "EDGS", int32 edges, for each a uint64: from bit 0 its begin node, from bit 20 its end node, in bit 39
              whether the frames after its units are those of the implied unit, from bit 40 the index of its first unit
              among the words that follow
    units     "ALNS", int32 words, uint32 words: a unit in the lowest 19 bits, its frames in the next 12, in the highest
              whether it is the last unit of an edge. The word before the first unit of an edge is a float32, the
              score of the language model.

Source: inferred from the errors that CNTK 2.7 reports for incomplete lattices; scores and posteriors: Su et al., "Error
back propagation for sequence training of context-dependent deep networks", ICASSP 2013, with the frames of an edge
aligned to states by the best path.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np

from ..engine.data.ragged import offsets_of, ranges

NO_PATH = -1e30  # per frame: log(0), if there is no path
_HEADER = struct.Struct("<4siIIffdII")
_NODE_BITS, _END, _IMPLIED, _FIRST = 19, 20, 39, 40
_UNIT_BITS, _FRAME_BITS, _LAST = 19, 12, 31


class Unit(NamedTuple):
    """A hidden Markov model: the numbers of its k states, and the logarithms of its transitions, [k + 1, k + 1].

    The rows of transitions are the entry and the states, the columns the states and the exit.
    """

    states: np.ndarray
    transitions: np.ndarray


def units_of(symbols: str, phones: str, states: str, transitions: str) -> Sequence[Unit]:
    """The models of the units, in the order of the file of symbols.

    Args:
        symbols: a file with the names of units
        phones: in each row a unit, the name of its transitions, and its states
        states: a file with the names of states, in the order of the network's outputs
        transitions: in each row a name, the number of states k and (k + 1) ** 2 probabilities

    Errors: RuntimeError for files that cannot be read or are inconsistent, with file and row.
    """
    paths = symbols, phones, states, transitions
    try:
        return _units_of(paths, tuple(os.stat(path).st_mtime_ns for path in paths))
    except OSError as error:
        raise RuntimeError(f"error opening file '{error.filename}': {error.strerror}") from error


@lru_cache(maxsize=8)
def _units_of(paths: tuple[str, ...], written: tuple[int, ...]) -> Sequence[Unit]:
    symbols, phones, states, transitions = paths
    numbers = {columns[0]: i for i, (_, columns) in enumerate(_rows(states))}
    matrices = {columns[0]: _matrix(transitions, row, columns) for row, columns in _rows(transitions)}
    models = {}
    for row, (name, *rest) in _rows(phones):
        if not rest or rest[0] not in matrices:
            _fail(phones, row, f"the transitions of unit {name!r} are not in '{transitions}'")
        matrix = matrices[rest[0]]
        unknown = [state for state in rest[1:] if state not in numbers]
        if unknown:
            _fail(phones, row, f"state {unknown[0]!r} of unit {name!r} is not in '{states}'")
        if len(rest) != len(matrix):
            _fail(phones, row, f"unit {name!r} has {len(rest) - 1} states, its transitions {len(matrix) - 1}")
        if name in models:
            _fail(phones, row, f"unit {name!r} is defined twice")
        models[name] = Unit(np.array([numbers[state] for state in rest[1:]]), matrix)
    units = []
    for row, columns in _rows(symbols):
        for name in columns:
            if name not in models:
                _fail(symbols, row, f"unit {name!r} is not in '{phones}'")
            units.append(models[name])
    return units


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, text.split()


def _matrix(path: str, row: int, columns: list[str]) -> np.ndarray:
    try:
        size, numbers = int(columns[1]) + 1, [float(text) for text in columns[2:]]
    except (IndexError, ValueError):
        _fail(path, row, f"{' '.join(columns)[:60]!r} is not 'name states probabilities'")
    if size < 2 or len(numbers) != size**2:
        _fail(path, row, f"{size - 1} states have {size**2} transitions, not {len(numbers)}")
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(numbers, 0)).reshape(size, size)


def _fail(path: str, row: int, reason: str) -> NoReturn:
    raise RuntimeError(f"{path}, line {row}: {reason}")


@dataclass(frozen=True, eq=False)
class Lattice:
    """A parsed lattice.

    Shapes: times [nodes]; begin, end (nodes) and score (of the language model) [edges], edges in the order of their
            ends; edge, unit, start (frame) and frames [units], in the order of edges and of time.
    """

    times: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    score: np.ndarray
    edge: np.ndarray
    unit: np.ndarray
    start: np.ndarray
    frames: np.ndarray


def parse(data: bytes) -> Lattice:
    """The lattice at the beginning of the bytes.

    Errors: RuntimeError if the bytes are not a lattice, or it is damaged, with the position.
    """
    if len(data) < _HEADER.size or data[:4] != b"LAT ":
        raise RuntimeError("a lattice begins with 'LAT ' and a header")
    _, version, nodes, edges, _, _, _, frames, implied_unit = _HEADER.unpack_from(data)
    if version != 2:
        raise RuntimeError(f"version {version} of lattices is not known")
    times, at = _section(data, _HEADER.size, b"NODS", "<u2", nodes)
    words, at = _section(data, at, b"EDGS", "<u8", edges)
    units, _ = _section(data, at, b"ALNS", "<u4", None)
    times = times.astype(np.int64)
    if nodes < 2 or not times.max() == times[-1] == frames:
        raise RuntimeError(f"the last of the {nodes} nodes of a lattice is not at its end, frame {frames}")
    node = (1 << _NODE_BITS) - 1
    begin, end = (((words >> np.uint64(bit)) & np.uint64(node)).astype(np.int64) for bit in (0, _END))
    order = np.argsort(end, kind="stable")
    begin, end, words = begin[order], end[order], words[order]
    if (begin >= end).any() or (end >= nodes).any() or (times[begin] > times[end]).any():
        raise RuntimeError("an edge of a lattice does not lead from one of its nodes to a later one")
    first, implied = (words >> np.uint64(_FIRST)).astype(np.int64), (words >> np.uint64(_IMPLIED)) & np.uint64(1) == 1
    has_score = (first > 0) & (first <= len(units))
    score = np.where(has_score, units.view("<f4")[np.where(has_score, first - 1, 0)] if len(units) else 0, 0)
    aligned = np.flatnonzero(times[end] > times[begin])
    return Lattice(times, begin, end, score, *_aligned(
        units, aligned, first[aligned], times[begin][aligned], times[end][aligned], implied[aligned], implied_unit
    ))


def _section(data: bytes, at: int, tag: bytes, kind: str, expected: int | None) -> tuple[np.ndarray, int]:
    """The numbers of a section, and the position of the next one."""
    if data[at : at + 4] != tag or len(data) < at + 8:
        raise RuntimeError(f"section {tag.decode()!r} of a lattice is missing at byte {at}")
    (count,) = struct.unpack_from("<i", data, at + 4)
    end = at + 8 + count * np.dtype(kind).itemsize
    if count < 0 or expected not in (None, count) or end > len(data):
        raise RuntimeError(f"section {tag.decode()!r} of a lattice has {count} entries at byte {at}, which do not fit")
    return np.frombuffer(data, kind, count, at + 8), end


def _aligned(
    words: np.ndarray, edge: np.ndarray, first: np.ndarray, start: np.ndarray, stop: np.ndarray, implied: np.ndarray,
    implied_unit: int,
) -> tuple[np.ndarray, ...]:
    """The units of edges that have frames: edge, unit, start, frames."""
    lasts = np.flatnonzero(words >> np.uint32(_LAST))
    place = np.searchsorted(lasts, first)
    if (place >= len(lasts)).any():
        raise RuntimeError("the units of an edge of a lattice have no end")
    counts = lasts[place] + 1 - first
    alignment = words[ranges(first, counts)].astype(np.int64)
    edges = np.repeat(np.arange(len(edge)), counts)
    unit, frames = alignment & ((1 << _UNIT_BITS) - 1), (alignment >> _UNIT_BITS) & ((1 << _FRAME_BITS) - 1)
    remaining = stop - start - np.bincount(edges, frames, len(edge)).astype(np.int64)
    if (remaining < 0).any() or remaining[~implied].any():
        raise RuntimeError("the units of an edge of a lattice have more or fewer frames than it has")
    with_implied = np.flatnonzero(implied)
    edges = np.concatenate([edges, with_implied])
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    unit = np.concatenate([unit, np.full(len(with_implied), implied_unit)])[order]
    frames = np.concatenate([frames, remaining[with_implied]])[order]
    before = offsets_of(frames)[:-1]
    first_of_edge = np.searchsorted(edges, np.arange(len(edge)))
    return edge[edges], unit, start[edges] + before - before[first_of_edge][edges], frames


@dataclass(frozen=True)
class ScoreWeights:
    """The weights of scores: all are divided by `acoustic`, those of the language model are multiplied by `language`.

    `penalty` is added for each edge. `risk`: the criterion is the expected number of frames in the correct state,
    instead of the logarithm of the sum over all paths.
    """

    acoustic: float
    language: float
    penalty: float
    risk: bool

    @np.errstate(invalid="ignore")  # likelihoods of NaN give a value of NaN
    def of(
        self, lattice: Lattice, units: Sequence[Unit], likelihood: np.ndarray, labels: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The criterion of an utterance, the errors of its states, and the probabilities of its labels in the lattice.

        Errors of states are posteriors minus labels, or with `risk` derivatives of the risk.

        Shapes: likelihood (logarithms) [frames, states], labels int [frames] -> a number, [frames, states], [frames].
        Errors: RuntimeError if the lattice has more frames, units or states than there are.
        """
        frames = int(lattice.times[-1])
        if frames > len(likelihood):
            raise RuntimeError(f"the lattice of an utterance of {len(likelihood)} frames has {frames} frames")
        if len(lattice.unit) and lattice.unit.max() >= len(units):
            raise RuntimeError(f"unit {lattice.unit.max()} of a lattice is not among the {len(units)} symbols")
        acoustic, path = _best_paths(lattice, units, likelihood)
        cell = ranges(lattice.start, lattice.frames)
        edge = np.repeat(lattice.edge, lattice.frames)
        edges = len(lattice.end)
        is_correct = labels[cell] == path
        score = lattice.score.astype(np.float64) * self.language + self.penalty
        score += np.bincount(lattice.edge, acoustic, edges)
        total, expected, posterior, accuracy = _forward_backward(
            lattice, score / self.acoustic, np.bincount(edge, is_correct, edges)
        )
        all_frames = np.arange(len(labels))
        label_score = float(likelihood[all_frames, labels][:frames].sum(dtype=np.float64)) / self.acoustic
        errors = np.zeros(likelihood.shape, np.float32)
        weight = posterior * (expected - accuracy) / self.acoustic if self.risk else posterior
        np.add.at(errors, (cell, path), weight[edge])
        if not self.risk:
            errors[all_frames, labels] -= 1
        certainty = np.bincount(cell, posterior[edge] * is_correct, len(labels))
        return label_score - (expected if self.risk else total), errors, certainty


def _best_paths(lattice: Lattice, units: Sequence[Unit], likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each unit of a lattice the score of its best path, and the states of its frames on this path."""
    score, path = np.zeros(len(lattice.unit)), np.zeros(int(lattice.frames.sum()), np.int64)
    offsets = offsets_of(lattice.frames)
    sizes = np.array([len(unit.states) for unit in units])[lattice.unit]
    for size in np.unique(sizes):
        selection = np.flatnonzero(sizes == size)
        models = [units[i] for i in lattice.unit[selection]]
        states = np.stack([model.states for model in models])
        if states.max() >= likelihood.shape[1]:
            raise RuntimeError(f"state {states.max()} of a unit is not among the {likelihood.shape[1]} of the operands")
        transitions = np.stack([model.transitions for model in models])
        frames = lattice.frames[selection]
        score[selection], states_on_path = _viterbi(likelihood, states, transitions, lattice.start[selection], frames)
        path[ranges(offsets[selection], frames)] = states_on_path
    return score, path


def _viterbi(
    likelihood: np.ndarray, states: np.ndarray, transitions: np.ndarray, start: np.ndarray, frames: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the best paths through n models of one size, and their states, one path after another.

    Shapes: likelihood [all frames, all states], states [n, k], transitions [n, k + 1, k + 1], start and frames [n]
            -> [n], [sum of frames].
    """
    count, size = states.shape
    steps, models = int(frames.max(initial=0)), np.arange(count)
    is_active = np.arange(steps)[:, None] < frames
    origin = np.zeros((steps, count, size), np.int32)
    best = transitions[:, 0, :size]
    for step in range(steps):
        frame = np.minimum(start + step, len(likelihood) - 1)
        reached = best
        if step:
            candidates = best[:, :, None] + transitions[:, 1:, :size]
            origin[step] = candidates.argmax(1)
            reached = candidates.max(1)
        best = np.where(is_active[step][:, None], reached + likelihood[frame[:, None], states], best)
    ends = best + transitions[:, 1:, size]
    state = ends.argmax(1)
    path = np.zeros((steps, count), np.int64)
    for step in reversed(range(steps)):
        path[step] = states[models, state]
        state = np.where(is_active[step], origin[step, models, state] if step else state, state)
    return np.where(frames > 0, ends.max(1), transitions[:, 0, size]), path.T[is_active.T]


def _forward_backward(
    lattice: Lattice, score: np.ndarray, correct: np.ndarray
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """The logarithm of the sum over all paths, the expected number of correct frames, and both for each edge.

    Of an edge: the posterior, and the expected number of correct frames on the paths through it.

    Shapes: score and correct (frames) [edges] -> two numbers, [edges], [edges].
    """
    begin, end = lattice.begin, lattice.end
    nodes = len(lattice.times)
    forward, correct_forward = _sums(begin, end, score, correct, nodes)
    total = forward[-1]
    if total == -np.inf:
        return NO_PATH * lattice.times[-1], 0.0, np.zeros(len(score)), np.zeros(len(score))
    order = np.argsort(-begin, kind="stable")
    sums = _sums(nodes - 1 - end[order], nodes - 1 - begin[order], score[order], correct[order], nodes)
    backward, correct_backward = (values[::-1] for values in sums)
    posterior = np.exp(forward[begin] + score + backward[end] - total)
    return float(total), float(correct_forward[-1]), posterior, correct_forward[begin] + correct + correct_backward[end]


def _sums(
    begin: np.ndarray, end: np.ndarray, score: np.ndarray, correct: np.ndarray, nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each node the logarithm of the sum over the paths to it, and their expected number of correct frames.

    The edges are sorted by their ends.
    """
    total, mean = np.full(nodes, -np.inf), np.zeros(nodes)
    total[0] = 0
    bounds = np.searchsorted(end, np.arange(nodes + 1))
    for node in range(1, nodes):
        edges = slice(bounds[node], bounds[node + 1])
        scores = total[begin[edges]] + score[edges]
        total[node] = np.logaddexp.reduce(scores, initial=-np.inf)
        if total[node] > -np.inf:
            mean[node] = np.exp(scores - total[node]) @ (mean[begin[edges]] + correct[edges])
    return total, mean


__all__ = ["NO_PATH", "ScoreWeights", "Lattice", "Unit", "parse", "units_of"]
