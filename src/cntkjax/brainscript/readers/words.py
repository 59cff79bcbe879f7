"""LMSequenceReader and LUSequenceReader: sentences of words, with the next words or with labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ...configuration import Block
from ...io import StreamInformation
from ...sgd import ConfigError
from .sentences import Corpus, Pieces, Rows, grouped, one_hot, words_in

SENTENCE_KEYS = (  # of blocks of both readers
    "readerType", "file", "wordclass", "unk", "nbruttsineachrecurrentiter", "equalLength", "wordContext", "wordMap",
)  # fmt: skip
SENTENCE_PARTS = ("labelIn", "labels")


def language_corpus(block: Block) -> Corpus:
    """The text of a LMSequenceReader block: a sentence on each line; the label of a word is the next one."""
    path, classes = block.file("file"), read_classes(block) if "wordclass" in block else []
    lines = _sentences(block)
    words = [word for word, _ in classes] or _vocabulary(block.required_block("labelIn"), lines)
    find = _finder(words, block.text("unk", "<unk>"), "wordclass" if classes else "labelIn")
    for number, line in lines:
        if len(line) == 1:
            raise ConfigError(f"{path}, line {number}: '{line[0]}' is one word, which no other one follows")
    sentences = [[find(word, path, number) for word in line] for number, line in lines if line]
    inputs = np.array([word for line in sentences for word in line[:-1]], np.int64)
    following = np.array([word for line in sentences for word in line[1:]], np.int64)
    width = block.required_block("labelIn").size("labelDim", len(words))
    labels: Rows = one_hot(following[:, None], width)
    if classes:
        labels = _with_classes(following, np.array([group for _, group in classes]))
    limit = block.integer("nbruttsineachrecurrentiter", 0)
    ends = np.cumsum([len(line) - 1 for line in sentences])
    pieces = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1) if sentences else np.zeros((0, 2), np.int64)
    return Corpus(_streams(inputs[:, None], [0], width, labels), pieces, partial(_by_length, limit=limit))


def _sentences(block: Block) -> list[tuple[int, list[str]]]:
    """The words of each line, and of those that begin and end a sentence, if the line lacks them (issue 325)."""
    part = block.required_block("labelIn")
    begin, end = ([word] if (word := part.text(key, "")) else [] for key in ("beginSequence", "endSequence"))
    lines = [(number, line.split()) for number, line in _lines(block, "file")]
    return [(number, [
        *(begin if line[:1] != begin else ()), *line, *(end if line[-1:] != end else ())
    ] if line else []) for number, line in lines]


def _by_length(sentences: Pieces, size: int, limit: int) -> list[Pieces]:
    """Minibatches of sentences of the same length, with as many as fit: one more word of each is counted (log)."""
    def together(length: int) -> int:
        fitting = max((size - 1) // (length + 1), 1)
        return min(fitting, limit) if limit > 0 else fitting

    return grouped(sentences, together, equal=True)


def understanding_corpus(block: Block) -> Corpus:
    """The text of a LUSequenceReader block: lines of words and a label, sentences apart by blank lines.

    The endSequence of the words or of the labels ends a sentence, too (log).
    """
    path, words, labels = block.file("file"), block.required_block("labelIn"), block.required_block("labels")
    vocabulary, classes = _entries(words, "token"), _entries(labels, "token")
    find = _finder(vocabulary, block.text("unk", "<unk>"), "the token file of labelIn")
    find_label = _finder(classes, None, "the token file of labels")
    replaced = _word_map(block) if words.flag("useWordMap", False) else {}
    word_end, label_end = words.text("endSequence", ""), labels.text("endSequence", "")
    indices: list[list[int]] = []
    outputs, ends = [], []
    for number, line in _lines(block, "file"):
        *inputs, label = line.split() or [""]
        if label:
            width = len(indices[0]) if indices else max(len(inputs), 1)
            if len(inputs) != width:
                raise ConfigError(f"{path}, line {number}: '{line.strip()}' is not {width} word{'s' * (width > 1)} and "
                                  "a label")
            indices.append([find(replaced.get(word, word), path, number) for word in inputs])
            outputs.append(find_label(label, path, number))
        if not label or inputs[0] == word_end or label == label_end:
            ends.append(len(indices))
    bounds = np.unique([0, *ends, len(indices)])
    sentences = np.stack([bounds[:-1], bounds[1:]], 1)
    offsets = block.integers("wordContext") or [0]
    columns = np.array(indices, np.int64).reshape(len(outputs), -1)
    limit = max(block.integer("nbruttsineachrecurrentiter", 1), 1)
    return Corpus(
        _streams(columns, offsets, len(vocabulary), one_hot(np.array(outputs, np.int64)[:, None], len(classes))),
        sentences,
        partial(_of_a_length if limit > 1 and block.flag("equalLength", True) else _in_order, limit=limit),
    )


def _of_a_length(sentences: Pieces, size: int, limit: int) -> list[Pieces]:
    """Minibatches of sentences of the same length, with at most so many words."""
    return grouped(sentences, lambda length: max(min(limit, size // length), 1), equal=True)


def _in_order(sentences: Pieces, size: int, limit: int) -> list[Pieces]:
    """Minibatches of sentences as they come."""
    return grouped(sentences, lambda length: limit, equal=False)


def _in_context(words: np.ndarray, offsets: Sequence[int], size: int, pieces: Pieces) -> Rows:
    """One-hot vectors of the words at some offsets; beyond its ends a piece goes on with its first or last word.

    `words`: [places x columns]; the columns of a place stand beside each other.
    """
    lengths = np.diff(pieces)[:, 0]
    first, last = np.repeat(pieces[:, 0], lengths), np.repeat(pieces[:, 1] - 1, lengths)
    places = words_in(pieces)
    far = len(words)  # beyond any sentence
    steps = [max(-far, min(offset, far)) for offset in offsets]
    columns = np.concatenate([words[np.clip(places + step, first, last)] for step in steps], 1)
    return one_hot(columns + size * np.arange(columns.shape[1]), size * columns.shape[1])


def _with_classes(words: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Labels of the class-based softmax: word, class, and the first word and the end of the class."""
    begins = np.searchsorted(groups, groups[words], "left")
    ends = np.searchsorted(groups, groups[words], "right")
    return np.stack([words, groups[words], begins, ends], 1).astype(np.float32)


def _streams(
    words: np.ndarray, offsets: Sequence[int], size: int, labels: Rows
) -> Mapping[StreamInformation, Callable[[Pieces], Rows]]:
    """The words at some offsets, and a row of `labels` for each place."""
    storage, width = ("dense", labels.shape[1]) if isinstance(labels, np.ndarray) else ("sparse", labels.width)
    length = size * words.shape[1] * len(offsets)
    return {
        StreamInformation("features", 0, "sparse", np.float32, (length,)): partial(_in_context, words, offsets, size),
        StreamInformation("labels", 1, storage, np.float32, (width,)): lambda pieces: labels[words_in(pieces)],
    }


def language_words(block: Block) -> Iterator[tuple[Block, list[str]]]:
    """The blocks of words of a LMSequenceReader block, with those of the text."""
    words = [word for _, line in _sentences(block) for word in line]
    return ((part, words) for name in SENTENCE_PARTS if (part := block.block(name)) is not None)


def understanding_words(block: Block) -> Iterator[tuple[Block, list[str]]]:
    """The same of a LUSequenceReader block: the last column has labels."""
    lines = [line.split() for _, line in _lines(block, "file")]
    words, labels = (block.required_block(name) for name in SENTENCE_PARTS)
    replaced = _word_map(block) if words.flag("useWordMap", False) else {}
    yield words, [replaced.get(word, word) for line in lines for word in line[:-1]]
    yield labels, [label for line in lines for label in line[-1:]]


def read_classes(block: Block) -> list[tuple[str, int]]:
    """The words of the file wordclass, with their classes; its lines are index, count, word, class.

    Errors: ConfigError for other lines.
    """
    classes: list[tuple[str, int]] = []
    path = block.file("wordclass")
    for number, line in _lines(block, "wordclass"):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != 4 or not (columns[0] + columns[1] + columns[3]).isdigit() or int(columns[0]) != len(classes):
            raise ConfigError(f"{path}, line {number}: '{line.strip()}' is not index, count, word and class, with "
                              "indices 0, 1, 2, ...")
        classes.append((columns[2], int(columns[3])))
        before = classes[-2][1] if classes[1:] else 0
        if classes[-1][1] not in (before, before + bool(classes[1:])):
            raise ConfigError(f"{path}, line {number}: class {columns[3]} follows class {before}; classes have to be "
                              "0, 1, 2, ... in the order of the words")
    return classes


def _vocabulary(part: Block, lines: Sequence[tuple[int, list[str]]]) -> list[str]:
    """The words of labelMappingFile, or those of the text in the order of their first appearance."""
    file = part.file("labelMappingFile", "")
    if file and Path(file).is_file():
        return _entries(part, "labelMappingFile")
    return list(dict.fromkeys(word for _, line in lines for word in line))


def _entries(part: Block, name: str) -> list[str]:
    """The words of a file that a key names, one a line."""
    return [line.strip() for _, line in _lines(part, name) if line.strip()]


def _word_map(block: Block) -> dict[str, str]:
    """What words are replaced with."""
    path = block.file("wordMap")
    pairs = [(number, line.split()) for number, line in _lines(block, "wordMap")]
    wrong = next(((number, pair) for number, pair in pairs if len(pair) not in (0, 2)), None)
    if wrong is not None:
        raise ConfigError(f"{path}, line {wrong[0]}: '{' '.join(wrong[1])}' is no word with the one it becomes")
    return {pair[0]: pair[1] for _, pair in pairs if pair}


def _finder(words: Sequence[str], unknown: str | None, where: str) -> Callable[[str, str, int], int]:
    """What gives the index of a word; others have that of `unknown`. Errors: ConfigError for a word without index."""
    indices = {word: index for index, word in enumerate(words)}
    default = None if unknown is None else indices.get(unknown)

    def find(word: str, path: str, number: int) -> int:
        index = indices.get(word, default)
        if index is None:
            unlisted = "" if unknown is None else f", nor is unk = {unknown}"
            raise ConfigError(f"{path}, line {number}: {word} is not in {where}{unlisted}")
        return index

    return find


def _lines(block: Block, name: str) -> Iterator[tuple[int, str]]:
    """The lines of the file that a key names, with their numbers. Errors: ConfigError if it cannot be read."""
    return enumerate(block.content(name).split("\n"), 1)


CORPORA = {
    "LMSequenceReader": language_corpus, "SequenceReader": language_corpus, "LUSequenceReader": understanding_corpus,
}
WORDS = {"LMSequenceReader": language_words, "SequenceReader": language_words, "LUSequenceReader": understanding_words}

__all__ = ["CORPORA", "SENTENCE_KEYS", "SENTENCE_PARTS", "WORDS"]
