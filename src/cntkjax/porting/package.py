"""A package with the source of a model: `cntkjax port MODEL --to TARGET -o FOLDER`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..formats import files
from ..formats.safetensors import encode
from ..graph.names import numbered
from ..graph.shape import is_known
from ..graph.variable import Variable
from ..ops.functions import Function
from .flax import FLAX
from .source import Source, Target, Weights
from .torch import TORCH
from .tree import PortError
from .walk import describe, identifier

TARGETS = {"torch": TORCH, "flax": FLAX}
_BATCH = 3  # of the recorded samples

_INIT = '''"""{title}"""

from .model import Model, load
'''
_TEST = '''"""Compares the outputs of this model with those of the original, recorded when it was ported.

    pip install {requirements} pytest
    pytest {folder}
"""

from pathlib import Path

import numpy as np
{library}
from safetensors.numpy import load_file

from .model import load


{run}


def test_the_outputs_are_those_of_the_original():
    recorded = load_file(Path(__file__).with_name("recorded.safetensors"))
    inputs = [recorded[f"input.{{i}}"] for i in range({inputs})]
    outputs = run(*inputs)
    assert len(outputs) == {outputs}
    for i, output in enumerate(outputs):
        expected = recorded[f"output.{{i}}"]
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
'''


def port(model: Function, to: str, folder: str | os.PathLike[str]) -> None:
    """Write a package of readable source that computes what a model computes, with its weights and a test.

    Files: `model.py` has a class for each block of several layers; `weights.safetensors` the weights by the names that
    they have there; `test_model.py` compares its outputs with `recorded.safetensors`, those of the original.
    Shapes: the arguments are [batch, *shape] in the order of `model.arguments`.
    Errors: PortError (a ValueError) naming the node that cannot be ported; ValueError for an unknown target, and a
    folder that contains anything or whose name is no identifier. Nothing is written then.
    """
    if to not in TARGETS:
        raise ValueError(f"there is no target {to!r}: it is one of {', '.join(TARGETS)}")
    folder = Path(folder).resolve()
    if not folder.name.isidentifier():
        raise ValueError(f"{folder.name!r} cannot be the name of a package: use letters, digits and underscores")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{os.fspath(folder)!r} exists already: give the name of a new or empty folder")
    target, names = TARGETS[to], _names(model.arguments)
    source = Source(describe(model, names), target)
    title = f"{model.name or 'A model'} in {to}, ported from CNTK."
    texts = {
        "__init__.py": _INIT.format(title=title),
        "model.py": source.text(title),
        "test_model.py": _test(model, target, folder),
    }
    arrays = {"weights": source.weights, "recorded": _recorded(model)}
    files.write(
        *((folder / name, [text.encode()]) for name, text in texts.items()),
        *((folder / f"{name}.safetensors", encode(values)) for name, values in arrays.items()),
    )


def _test(model: Function, target: Target, folder: Path) -> str:
    library, _, run = target.run.strip().partition("\n\n\n")
    return _TEST.format(
        requirements=target.requirements, folder=folder.name, inputs=len(model.arguments), outputs=len(model.outputs),
        library=library, run=run,
    )


def _names(arguments: Sequence[Variable]) -> list[str]:
    names: list[str] = []
    for v in arguments:
        names.append(numbered(identifier(v.name), names))
    return names


def _recorded(model: Function) -> Weights:
    """Random inputs, and the model's outputs for them."""
    random = np.random.default_rng(1)
    inputs = [_sample(v, random) for v in model.arguments]
    outputs = model.forward(dict(zip(model.arguments, inputs, strict=True)), model.outputs)[1]
    return {f"input.{i}": x for i, x in enumerate(inputs)} | {
        f"output.{i}": np.asarray(outputs[v]) for i, v in enumerate(model.outputs)
    }


def _sample(v: Variable, random: np.random.Generator) -> np.ndarray:
    if v.sequence_axis is not None:
        raise PortError(v, "sequences cannot be ported")
    if not is_known(v.shape):
        raise PortError(v, "an input of free size cannot be ported", "clone the model with an input of a fixed size")
    return random.standard_normal((_BATCH, *v.shape)).astype(v.dtype)


__all__ = ["TARGETS", "port"]
