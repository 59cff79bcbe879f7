"""The actions writeWordAndClass and createLabelMap: files that list the words or labels of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import numpy as np

from ...configuration import Block
from ...sgd import ConfigError
from ..readers import label_maps
from ..writing import write_lines
from .session import Command


def write_classes(command: Command) -> None:
    """Write words by their frequency, the class of each word, and the first word of each class."""
    block = command.block
    words = vocabulary(block.content("inputFile").splitlines(), block)
    if not words:
        raise ConfigError(f"{block.file('inputFile')} has no words")
    groups = classes([number for _, number in words], block.integer("nbrClass", 0))
    lines = [f"{i:6d}\t{number:10d}\t{word}\t{groups[i]}" for i, (word, number) in enumerate(words)]
    firsts = [next(members)[0] for _, members in groupby(enumerate(groups), key=lambda pair: pair[1])]
    for key, content in (
        ("outputVocabFile", lines), ("outputWord2Cls", map(str, groups)), ("outputCls2Index", map(str, firsts)),
    ):
        if key in block:
            write_lines(block.file(key), content)
    command.log.line(f"Vocabulary size {len(words)}, {len(firsts)} classes.")


def create_label_map(command: Command) -> None:
    """Write the labels in the data of ``section``'s reader to its ``labelMappingFile``, as they appear."""
    section = command.block.named_block("section")
    for path, labels in label_maps(section.required_block("reader")).items():
        write_lines(path, labels)
        command.log.line(f"{len(labels)} labels are written to {path}")


def vocabulary(lines: Iterable[str], block: Block) -> list[tuple[str, int]]:
    """Words with their numbers of occurrences, the most frequent first; rare ones count as the unknown word."""
    begin, unknown = block.text("beginSequence", ""), block.text("unk", "<unk>")
    counts: Counter[str] = Counter()
    for line in lines:
        words = line.split()
        counts.update(words[1:] if words[:1] == [begin] else words)  # beginnings are not predicted
    size, cutoff = block.integer("vocabSize", 0) or len(counts), block.integer("cutoff", 2)
    if len(counts) > size:
        others = [word for word, _ in counts.most_common() if word != unknown]
        rare = others[size - 1 :]
    else:
        rare = [word for word, number in counts.items() if number <= cutoff and size > len(counts)]
    for word in rare:
        if word != unknown:
            counts[unknown] += counts.pop(word)
    return counts.most_common()


def classes(counts: list[int], number: int) -> list[int]:
    """The class of each word: all classes have about the same sum of the square roots of the occurrences.

    Source: the classes of CNTK's own vocabulary of the Penn Treebank.
    """
    if not number:
        return [0] * len(counts)
    shares = np.cumsum(np.sqrt(np.array(counts, np.float64)))
    groups = np.minimum((shares / shares[-1] * number).astype(int), number - 1)
    return [int(group) for group in np.unique(groups, return_inverse=True)[1]]  # without gaps


__all__ = ["classes", "create_label_map", "vocabulary", "write_classes"]
