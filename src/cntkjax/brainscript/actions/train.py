"""The action train."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ...configuration import Block
from ...device import cpu, use_default_device
from ...graph.variable import set_value
from ...logging import TensorBoardProgressWriter
from ...ops import combine
from ...parallel import workers
from ...sgd import ConfigError, moments
from ...sgd._checkpoints import Checkpoints
from ...sgd._run import BlockRun
from ...sgd.settings import BlockSettings
from ..log import Criterion, Log, TrainingLog
from ..models import function_of, load_network
from ..network import Network
from ..readers import open_reader, pieces_of, streams_of
from .building import built
from .lattices import lattice_nodes, set_lattices
from .parallel_lines import initialization, methods
from .session import Command, criteria, named_nodes
from .sgd_block import settings_of
from .test import Evaluation, minibatch_size
from .traces import Traces


def train(command: Command) -> None:
    """Train a network, from its last checkpoint if there is one."""
    block = command.block
    sgd = block.block("SGD")
    command.log.follow(sgd or block)
    path = (sgd if sgd is not None and "modelPath" in sgd else block).file("modelPath")  # old ones have it in SGD
    resumes = block.flag("makeMode", True)
    if resumes and Path(path).is_file():
        command.log.line(f"Final model exists: {path}", "No further training is necessary.")
        return
    reader, piece = command.reader, minibatch_size(sgd or block)
    source = open_reader(reader, piece=piece, log=command.log)
    pieces = pieces_of(reader) if source.truncation_length else 0
    settings = settings_of(block, path, command.log, pieces)
    start, trained = _start(path) if resumes else ("", 0)
    network = _network(command, start)
    names = _criteria(network, sgd or block)
    _describe(network, names, command)
    if line := initialization(settings):
        command.log.detail(line, "")
    if network.statistics:
        _precompute(network, command, piece)
    else:
        command.log.detail("No PreCompute nodes found, or all already computed. Skipping pre-computation step.")
    if with_lattices := lattice_nodes(network, [network.nodes[names[0].name]]):
        command.log.line(*set_lattices(with_lattices, reader, sgd or block))
    if trained:
        command.log.line("Warning: Checkpoint file is missing. "
                         "Parameter-learning state (such as momentum) will be reset.")
    nodes: Any = [network.nodes[name.name] for name in names]
    log = _EpochLog(network, block.block("cvReader"), command.log, names, settings, pieces)
    command.warn_of_unread()
    streams = streams_of(nodes, source)
    if not resumes:  # not before: a wrong configuration leaves the old model
        if workers.rank() == 0:
            _remove(path)
        workers.barrier("removing old checkpoints")
    source.on_read = Traces(network, names[0].name, sgd or block, source, command.log)
    with ExitStack() as stack:
        BlockRun(
            settings, nodes, source, streams, None, [*_tensorboard(block, settings, nodes, stack)],
            function_of(network), log, log.validate,
            {network.nodes[name]: factor for name, factor in network.rates.items()}, trained,
        ).train()


def _tensorboard(
    block: Block, settings: BlockSettings, nodes: Sequence[Any], stack: ExitStack
) -> Iterator[TensorBoardProgressWriter]:
    """What writes the event file for TensorBoard, if the block or one around it has tensorBoardLogDir."""
    sgd = block.block("SGD") or block
    if (folder := sgd.file("tensorBoardLogDir", "")) and workers.rank() == 0:
        frequency = sgd.integer("tensorBoardNumMBsToLogResult", settings["numMBsToShowResult"])
        writer = TensorBoardProgressWriter(frequency or None, folder, model=combine(nodes))
        stack.callback(writer.close)
        yield writer


class _EpochLog(TrainingLog):
    """The log of a training, and what else is done before and after each epoch."""

    def __init__(
        self, network: Network, reader: Block | None, log: Log, names: list[Criterion], settings: BlockSettings,
        pieces: int,
    ) -> None:
        super().__init__(
            log, names, settings.required("maxEpochs"), settings["epochSize"], settings["numMBsToShowResult"],
            settings["firstMBsToShowResult"] if settings.is_given("firstMBsToShowResult") else 0, pieces,
            partial(methods, settings),
        )
        self._network = network
        self.validate = None
        if reader is not None:
            evaluation = Evaluation(network, names, reader)
            self.validate = partial(self._validate, evaluation, pieces_of(reader), max(pieces, 1))

    def _begin_loop(self, epoch: int, size: int, title: str = "") -> None:
        """Begin the averages of an epoch or a trial."""
        self._network.forget_epoch()
        super()._begin_loop(epoch, size, title)

    def _validate(self, evaluation: Evaluation, pieces: int, trained: int, size: int) -> list[float]:
        """Loss and metrics of the validation data, which are logged.

        `pieces`, `trained`: pieces of sequences in a minibatch of these data, and of the training, which has `size`.
        """
        sums = evaluation.run(size // trained * pieces)
        self.validated(sums)
        return sums.averages()


def _start(path: str) -> tuple[str, int]:
    """The model to begin with, "" for a new one, and the epochs that it was trained in if there is no state of them."""
    checkpoints = Checkpoints(path, keep_all=True)
    state, model = checkpoints.last_epoch(), checkpoints.last_model()
    last = state if 0 < state >= model - 1 else model
    return (f"{path}.{last}", last if last != state else 0) if Path(f"{path}.{last}").is_file() else ("", 0)


def _network(command: Command, start: str) -> Network:
    """The network of a model, or a new one."""
    if start:
        command.log.line(f"Starting from checkpoint. Loading network from '{start}'.")
        network = load_network(start)
    else:
        command.log.detail("Creating virgin network.")
        network = built(command)
    device = "CPU" if use_default_device() == cpu() else "GPU"
    command.log.line("", f"Model has {len(network.operations)} nodes. Using {device}.", "")
    return network


def _criteria(network: Network, sgd: Block) -> list[Criterion]:
    """The node that is minimized, and those that are reported with it."""
    losses, metrics = (
        named_nodes(network, sgd, key) or network.roles[role]
        for role, key in (("criterion", "trainCriterionNodeName"), ("evaluation", "evalCriterionNodeName"))
    )
    if not losses:
        raise ConfigError("No criterion node was specified: the network has none; name one in criterionNodes")
    return criteria(network, list(dict.fromkeys([losses[0], *metrics])))


def _describe(network: Network, names: list[Criterion], command: Command) -> None:
    """Log the criteria and the parameters."""
    log = command.log
    log.line(f"Training criterion:   {names[0].name} = {names[0].operation}")
    if len(names) == 2:
        log.line(f"Evaluation criterion: {names[1].name} = {names[1].operation}")
    elif names[1:]:
        log.line("", "Evaluation criteria:", *(f"\t{each.name} = {each.operation}" for each in names[1:]))
    log.line()
    log.detail("")
    parameters = dict(sorted(_parameters(network, names[0].name)))
    if not parameters:
        raise ConfigError(f"nothing can be learned: {names[0].name} depends on no parameters")
    elements = sum(int(v.value.size) for v in parameters.values())
    shapes = {name: parameter.shape[::-1] for name, parameter in parameters.items()}
    log.parameters(elements, shapes, _with_gradient(network, names[0].name, set(parameters)))


def _parameters(network: Network, loss: str) -> Iterator[tuple[str, Any]]:
    learned = set(combine([network.nodes[loss]]).parameters)
    return ((name, v) for name, v in network.nodes.items() if v in learned)


def _with_gradient(network: Network, loss: str, parameters: set[str]) -> int:
    """The number of nodes that the loss depends on and that depend on parameters."""
    needed, reached = set(parameters), network.reached([loss])
    while more := {each for each in reached if needed.intersection(network.inputs.get(each, ()))} - needed:
        needed |= more
    return len(needed)


def _precompute(network: Network, command: Command, piece: int) -> None:
    log = command.log
    log.line(f"Precomputing --> {len(network.statistics)} PreCompute nodes found.", "")
    outputs = [name for role in ("criterion", "evaluation", "output") for name in network.roles[role]]
    for name in dict.fromkeys([*network.reached(outputs), *network.statistics]):
        if name in network.statistics:
            log.line(f"\t{name} = {network.statistics[name][0]}()")
    nodes = {name: network.nodes[name] for _, name in network.statistics.values()}
    source, roots = open_reader(command.reader, once=True, shuffled=False, piece=piece), [*nodes.values()]
    results = dict(zip(nodes, moments(roots, source, streams_of(roots, source)), strict=True))
    for constant, (operation, name) in network.statistics.items():
        variable: Any = network.nodes[constant]
        result = results[name].mean if operation == "Mean" else results[name].inverse_deviation
        set_value(variable, result.reshape(variable.shape).astype(variable.dtype))
    network.statistics = {}  # a model that is saved now has them
    log.line("", "Precomputing --> Completed.", "")


def _remove(path: str) -> None:
    """Remove the checkpoints and the model of an earlier training."""
    folder, name = Path(path).parent, Path(path).name
    for file in folder.glob("*") if folder.is_dir() else ():
        rest = file.name.removeprefix(name) if file.name.startswith(name) else None
        if rest is not None and (rest in ("", ".ckp") or rest.removesuffix(".ckp")[1:].isdigit()):
            os.unlink(file)


__all__ = ["train"]
