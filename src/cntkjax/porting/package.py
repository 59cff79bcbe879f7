"""A package with the source of a model: `cntkjax port MODEL --to TARGET -o FOLDER`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from keyword import iskeyword
from pathlib import Path

from ..formats import files
from ..formats.safetensors import encode
from ..graph.arguments import public
from ..ops import combine
from ..ops.functions import Function
from ..variables import Variable
from .cntk import CNTK
from .flax import FLAX
from .keras import KERAS
from .recording import recorded_values
from .source import Weights, Writer
from .torch import TORCH

TARGETS: dict[str, Writer] = {"torch": TORCH, "flax": FLAX, "keras": KERAS, "cntk": CNTK()}

_INIT = '''"""{title}"""

from .model import {network}, load
'''
_TEST = '''"""Compares the outputs of this model with those of the original, recorded when it was ported.

    pip install {requirements} pytest
    pytest {folder}
"""

from pathlib import Path

{imports}

from .model import load


{run}


def test_the_outputs_are_those_of_the_original():
    recorded = load_file(Path(__file__).with_name("recorded.safetensors"))
    inputs = [recorded[f"input.{{i}}"] for i in range({inputs})]
    outputs = run(*inputs)
    assert len(outputs) == {outputs}
    for i, output in enumerate(outputs):
        expected = recorded[f"output.{{i}}"]
        lengths = recorded.get(f"output.{{i}}.lengths")
        if lengths is not None:  # what stands after the end of a sequence means nothing
            output, expected = (np.concatenate([x[:n] for x, n in zip(v, lengths)]) for v in (output, expected))
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5 * largest)
'''


@public
def port(model: Function | Variable, to: str, folder: str | os.PathLike[str]) -> None:
    """Write a package of readable source that computes what a model computes, with its weights and a test.

    Files: `model.py` has a class for each block of several layers, or builds the graph with the CNTK API;
    `weights.safetensors` the weights by the names that they have there; `test_model.py` compares its outputs with
    `recorded.safetensors`, those of the original.
    Outputs of a whole minibatch, as criteria are, are left out if there are others.
    Shapes: the arguments are [batch, *shape], of sequences [batch, time, *shape], in the order of `model.arguments`;
            the lengths of the sequences [batch] along each sequence axis come after them.
    Errors: PortError (a ValueError) naming the node that cannot be ported; ValueError for an unknown target, and a
    folder that contains anything, or whose name is no identifier or that of a package which the source imports.
    Nothing is written then.
    """
    if to not in TARGETS:
        raise ValueError(f"there is no target {to!r}: it is one of {', '.join(TARGETS)}")
    folder = Path(folder).resolve()
    if not folder.name.isidentifier() or iskeyword(folder.name):
        raise ValueError(
            f"{folder.name!r} cannot be the name of a package: use letters, digits and underscores, and no keyword"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{os.fspath(folder)!r} exists already: give the name of a new or empty folder")
    target = TARGETS[to]
    model = without_criteria(combine([model]) if isinstance(model, Variable) else model)
    name = repr(model.name)[1:-1].replace('"', r"\"") or "A model"  # it stands in docstrings, and ends none
    title = f"{name} in {to}, ported from CNTK."
    source, weights = target.write(model, title)
    recorded = recorded_values(model)
    texts = {
        "__init__.py": _INIT.format(title=title, network=target.network),
        "model.py": source,
        "test_model.py": _test(recorded, target, folder),
    }
    if folder.name in _imported(texts.values()):
        raise ValueError(f"the source imports another package called {folder.name!r}: choose another name")
    arrays = {"weights": weights, "recorded": recorded}
    files.write(
        *((folder / name, [text.encode()]) for name, text in texts.items()),
        *((folder / f"{name}.safetensors", encode(values)) for name, values in arrays.items()),
    )


def without_criteria(model: Function) -> Function:
    """A model without those outputs that are of a whole minibatch, or constants, if it has others.

    Files of CNTK 1 have the criteria of the training among their outputs, which take labels.
    """
    outputs = [v for v in model.outputs if v.dynamic_axes]
    return model if len(outputs) in (0, len(model.outputs)) else combine(outputs, name=model.name)


def _imported(sources: Iterable[str]) -> set[str]:
    """The names of the packages and modules outside the folder that these files import."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {module.partition(".")[0] for module in modules}


def _test(recorded: Weights, target: Writer, folder: Path) -> str:
    library, _, run = target.run.partition("\n\n\n")
    imports = ["import numpy as np", *library.split("\n"), "from safetensors.numpy import load_file"]
    arrays = [name.split(".")[0] for name in recorded if not name.endswith("lengths")]
    return _TEST.format(
        requirements=target.requirements, folder=folder.name, inputs=arrays.count("input"),
        outputs=arrays.count("output"), imports="\n".join(filter(None, imports)), run=run.strip(),
    )


__all__ = ["TARGETS", "port", "without_criteria"]
