"""The action write: values of nodes as text, or as a block ``writer`` says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TextIO

from ...axis import Axis
from ...io import MinibatchData
from ...ops import alias, reduce_sum
from ...train._sources import next_minibatch
from ...variables import Variable
from ..network import SUMS, Network
from ..readers import FileSource, open_reader, streams_of
from ..writing import new_text
from .building import read_or_built
from .output_format import OutputWriter, output_format
from .session import Command, named_nodes, no_node, outputs
from .test import minibatch_size
from .writers import SequenceWriter, block_writers


def write(command: Command) -> None:
    """Write the values of output nodes: to ``outputPath.NODE``, or to the console for ``-``."""
    network = read_or_built(command)
    source = open_reader(
        command.reader, once=True, shuffled=False, samples=command.block.integer("epochSize", 0),
        piece=minibatch_size(command.block), log=command.log,
    )
    with ExitStack() as stack:
        keys = source.keys() if type(source) is FileSource else ()  # utterances side by side are in another order
        writers, where = _writers(network, command, stack, keys)
        values = {
            name: reduce_sum(network.nodes[name], axis=Axis.all_axes())  # issue 495
            if network.operations.get(name) in SUMS else alias(network.nodes[name]) for name in writers
        }
        constants = {name: values.pop(name) for name, value in [*values.items()] if not value.arguments}
        written(constants, {}, writers, network)
        inputs = streams_of([*values.values()], source)
        total = number = 0
        while minibatch := next_minibatch(source, minibatch_size(command.block), inputs):
            samples = written(values, minibatch, writers, network)
            command.log.line(f"Minibatch[{number}]: ActualMBSize = {samples}")
            total, number = total + samples, number + 1
    command.log.line(where, f"Total Samples Evaluated = {total}")


def _writers(
    network: Network, command: Command, stack: ExitStack, keys: Sequence[str]
) -> tuple[Mapping[str, SequenceWriter], str]:
    """What writes each node, and a line about where to. `keys`: of the sequences."""
    block = command.block
    writer = block.block("writer") if "writer" in block else None
    if writer is not None:
        writers = block_writers(writer, command.reader, stack)
        for entry in writer:
            if entry.name in writers and entry.name not in network.nodes:
                raise no_node(network, entry.name, "writer", entry.place)
        listed = named_nodes(network, block, "outputNodeNames") if "outputNodeNames" in block else writers
        return {name: each for name, each in writers.items() if name in listed}, ""
    names = outputs(network, block)
    path, form = block.file("outputPath"), output_format(block.block("format"))
    writers = {name: OutputWriter(form, name, _open(stack, path, name), keys) for name in names}
    return writers, "" if path == "-" else f"Written to {path}*"


def written(
    values: Mapping[str, Any], minibatch: Mapping[Variable, MinibatchData], writers: Mapping[str, SequenceWriter],
    network: Network,
) -> int:
    """Write a minibatch; returns the number of its samples."""
    for name, value in values.items():
        feeds = {variable: minibatch[variable] for variable in value.arguments}
        result, axes = value.eval(feeds), len(value.output.dynamic_axes)
        for sequence in result if axes > 1 else ([row] for row in result) if axes else [[result]]:
            dense = sequence.todense() if hasattr(sequence, "todense") else sequence
            writers[name].sequence(dense, network.nodes[name].shape)
    return max((data.num_samples for data in minibatch.values()), default=0)


def _open(stack: ExitStack, path: str, name: str) -> TextIO:
    return sys.stdout if path == "-" else stack.enter_context(new_text(f"{path}.{name.replace(os.sep, '_')}"))


__all__ = ["write", "written"]
