"""The SGD block as an object."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from ..configuration import ConfigError, Text
from ..configuration.source import COMMAND_LINE
from ..logging import ProgressWriter
from ..ops._operand import as_variable
from ..ops.functions import Function
from ..train._sources import Criterion, Data, Inputs
from ..variables import Variable
from ._criteria import criteria_of
from ._given import Assignment, argument, as_arguments, definitions, find_block, in_text, is_key
from ._run import BlockRun
from .history import History
from .settings import BlockSettings


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Errors without the lines that the command line shows below them: in a program they are one sentence."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.problem, error.place) from None


class SGD:
    """The SGD block of CNTK's configuration files. Arguments are its keys; docs/sgd_block.md lists them.

    Values are numbers, texts as in a file, or lists by epoch: ``"0.1*2:0.01"`` and ``[(2, 0.1), 0.01]`` are the same.
    Keys of nested blocks may be given in a dict of the block's name, or directly.

    Units: rates are per sample or, with ``...PerMB``, for the average of a minibatch; sizes are in samples.
    Errors: ConfigError (a ValueError) for unknown keys, values of another type, and keys that exclude each other.
    Source: CNTK's page "SGD Block".

    >>> block = SGD(minibatchSize="128*2:1024", learningRatesPerMB=1.0, maxEpochs=4)
    >>> str(block["minibatchSize"]), str(block.settings.rates)
    ('128*2:1024', '0.0078125*2:0.0009765625')
    """

    def __init__(self, **block: Any) -> None:
        with _in_one_line():
            self.settings = BlockSettings(as_arguments(block))

    @classmethod
    def parse(cls, text: str, **overrides: Any) -> SGD:
        """The block in a text: as written in a .cntk file, alone or with everything around it.

        `overrides`: keys whose values precede those of the text.
        Errors: ConfigError with line, column, key and what is allowed.

        >>> SGD.parse("N = 64; train = [ SGD = [ minibatchSize = $N$ * 2; maxEpochs = 3 ] ]")["maxEpochs"]
        3
        """
        return cls._in_text(Text("", text), as_arguments(overrides))

    @classmethod
    def read(cls, path: str | os.PathLike[str], overrides: Mapping[str, str] = {}) -> SGD:
        """The block in a file; `overrides` are keys of the block, or values for ``$name$``, as texts.

        Errors: ConfigError as of `parse`, and for a file that is no text in UTF-8; OSError if it cannot be read.
        """
        try:
            with open(path, encoding="utf-8-sig") as file:
                text = Text(os.fspath(path), file.read())
        except UnicodeDecodeError as error:
            raise ConfigError(f"{os.fspath(path)} is no text in UTF-8: {error.reason} in byte {error.start}; save it "
                              "as UTF-8") from error
        keys = [name for name in overrides if is_key(name) or f"${name}$".lower() not in text.content.lower()]
        names = {name: value for name, value in overrides.items() if name not in keys}
        return cls._in_text(text, [argument(COMMAND_LINE, name, overrides[name]) for name in keys], names)

    @classmethod
    def _in_text(cls, text: Text, overrides: Iterable[Assignment], names: Mapping[str, str] = {}) -> SGD:
        block = cls.__new__(cls)
        with _in_one_line():
            content, outer = find_block(text, definitions(names))
            block.settings = BlockSettings(in_text(content, outer), overrides, outer, outer.text("precision", "float"))
        return block

    def __getitem__(self, key: str) -> Any:
        """The value of a key; None if it has none."""
        return self.settings[key]

    def describe(self) -> str:
        """All values as a block, with where each came from.

        >>> print("".join(line for line in SGD(maxEpochs=3).describe().splitlines(True) if "Epochs" in line), end="")
            maxEpochs = 3  # argument maxEpochs, line 1, column 1
        """
        return self.settings.describe()

    def criteria_of(self, model: Function) -> list[Variable]:
        """The loss, and the metrics if there are any, in a model: the nodes that the block names.

        Without a name the loss is the only node with the operation of a loss, and all those of metrics are metrics.
        Errors: ConfigError if the loss is not clear.

        >>> import cntkjax as C
        >>> x, y = C.input_variable(2), C.input_variable(2)
        >>> model = C.combine([C.relu(x), C.squared_error(x, y, name="loss")])
        >>> [v.name for v in SGD().criteria_of(model)]
        ['loss']
        """
        return [as_variable(node) for node in criteria_of(model, self.settings)]

    def train(
        self,
        criterion: Criterion,
        source: Data,
        model_inputs_to_streams: Inputs | None = None,
        *,
        cv_source: Data | None = None,
        progress_writers: ProgressWriter | Sequence[ProgressWriter] | None = None,
        model: Function | None = None,
        rate_factors: Mapping[Variable, float] = MappingProxyType({}),
    ) -> History:
        """Train the parameters of a criterion, from the last checkpoint of this block's modelPath if there is one.

        `criterion`: the loss, or (loss, metric, other metrics, ...), or a function that has the nodes
        which the block names.
        `source`: a minibatch source, or arrays in the order of the criterion's arguments.
        `model_inputs_to_streams`: {argument: stream}, by default those of the same names.
        `cv_source`: data for tests after each epoch. `progress_writers`: by default a ``ProgressPrinter`` as the block
        describes. `model`: what is saved in modelPath, by default the criterion.
        `rate_factors`: factors of the learning rate, by parameters: BrainScript's learningRateMultiplier.

        Returns: the history, one record for each epoch, those before a restart included.
        Errors: ConfigError for missing keys, before anything runs; ValueError for data that do not fit; RuntimeError
                if gradientCheck fails or the data end early.

        >>> import cntkjax as C, numpy as np
        >>> x, y = C.input_variable(1), C.input_variable(1)
        >>> loss = C.squared_error(C.times(x, C.parameter((1, 1))), y)
        >>> ones = np.ones((8, 1), np.float32)
        >>> block = SGD(minibatchSize=4, maxEpochs=2, learningRatesPerSample=0.1)
        >>> [round(epoch.loss, 2) for epoch in block.train(loss, (ones, 3 * ones), progress_writers=[])]
        [8.31, 4.22]
        """
        return BlockRun(
            self.settings, criterion, source, model_inputs_to_streams, cv_source, progress_writers, model,
            factors=rate_factors,
        ).train()

