"""A model as a script of the CNTK API, with its weights by name."""

from __future__ import annotations

import textwrap

import numpy as np

from ..graph.function import Node
from ..graph.variable import Leaf, value_of
from ..interop import weight_names
from .script import HEADER, Script
from .source import Weights

_TEXT = '''"""{title}"""

from pathlib import Path

{header}


def create_model():
    """Return the network, whose parameters have new values."""
{lines}


def load(path=Path(__file__).with_name("weights.safetensors")):
    """Return the network with the weights of the original."""
    model = create_model()
    C.load_weights(model, path)
    return model
'''


class CNTK:
    """The CNTK API as a target: layers where the graph has them, other blocks with what is in them."""

    network = "create_model"
    requirements = 'cntkjax "safetensors>=0.4"'
    run = """


def run(*inputs):
    model = load()
    axes = list(dict.fromkeys(v.dynamic_axes[1] for v in model.arguments if len(v.dynamic_axes) > 1))
    lengths = dict(zip(axes, inputs[len(model.arguments):]))
    feeds = {}
    for v, x in zip(model.arguments, inputs):
        is_sequence = len(v.dynamic_axes) > 1
        feeds[v] = [s[:n] for s, n in zip(x, lengths[v.dynamic_axes[1]])] if is_sequence else x
    values = {v: x.toarray() if hasattr(x, "toarray") else x for v, x in model.forward(feeds, model.outputs)[1].items()}
    created = {v.dynamic_axes[1]: np.array([len(s) for s in values[v]]) for v in model.outputs
               if len(v.dynamic_axes) > 1 and v.dynamic_axes[1] not in axes}
    return [*(values[v] for v in model.outputs), *created.values()]
"""

    def write(self, model: Node, title: str) -> tuple[str, Weights]:
        """The file `model.py`, and the weights by their names in it. Errors: PortError."""
        script = Script(model)
        lines = textwrap.indent("\n".join([*script.lines, f"return {script.result}"]), "    ")
        if script.options:
            lines = f"    with {script.options}:\n{textwrap.indent(lines, '    ')}"
        originals = {new: old for old, new in script.counterparts.items()}
        weights = {}
        for name, leaf in weight_names(script.value(script.result)).items():
            original = originals.get(leaf)
            if isinstance(original, Leaf):
                weights[name] = np.asarray(value_of(original)).reshape(leaf.shape)
        header = HEADER if "np." in lines else HEADER.partition("\n")[0]
        return _TEXT.format(title=title, header=header, lines=lines), weights


__all__ = ["CNTK"]
