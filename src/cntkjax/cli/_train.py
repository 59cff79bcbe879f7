"""``cntkjax train``: trains a model as the SGD block of a configuration file describes it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ..io import MinibatchSource, StreamInformation
from ..ops import combine
from ..sgd import SGD
from ..variables import Variable
from ._data import deserializer, stream_name
from ._files import load


def run(options: argparse.Namespace) -> None:
    """Train the model, and write it to the block's modelPath.

    Errors: ConfigError for a block that cannot be used; ValueError for a model or data that do not fit it.
    """
    block = SGD.read(options.config, _overrides(options.settings))
    if block["modelPath"] is None:
        raise ValueError(f"{options.config}: the SGD block has no modelPath: give modelPath=FILE")
    model = load(options.model)
    criteria = block.criteria_of(model)
    inputs: tuple[Any, ...] = combine(criteria).arguments
    length = options.truncation_length
    source = MinibatchSource(deserializer(inputs, options.data, options.field), truncation_length=length)
    validation = None
    if options.cv:
        validation = MinibatchSource(deserializer(inputs, options.cv, options.field), randomize=False, max_sweeps=1)
    history = block.train(criteria, source, _streams(inputs, source), cv_source=validation, model=model)
    print(history.ended_early or f"{len(history)} epochs", f"the model is {block['modelPath']}", sep="; ")


def _overrides(settings: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{setting!r} is no setting: write key=value")
        pairs[name] = value
    return pairs


def _streams(inputs: Sequence[Variable], source: MinibatchSource) -> dict[Variable, StreamInformation]:
    return {v: source[stream_name(i)] for i, v in enumerate(inputs)}


__all__ = ["run"]
