"""Training with lattices: what the reader and the SGD block say about the criterion SequenceWithSoftmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...configuration import Block
from ...graph.build import note_edit
from ...graph.function import Node, nodes
from ..network import Network
from ..readers import lattice_files

_NUMBERS = {  # of the SGD block
    "hSmoothingWeight": 0.95, "frameDropThresh": 1e-10, "seqGammarAMF": 14.0, "seqGammarLMF": 14.0,
    "seqGammarWordPen": 0.0, "seqGammarBMMIFactor": 0.0,
}
_FLAGS = ("doReferenceAlign", "seqGammarUsesMBR")
LATTICE_KEYS = (*_NUMBERS, *_FLAGS)


def lattice_options(reader: Block, sgd: Block) -> dict[str, Any]:
    """The options of ``lattice_sequence_with_softmax`` of a reader and a SGD block. Errors: as of `lattice_files`."""
    numbers = {name: sgd.number(name, default) for name, default in _NUMBERS.items()}
    return lattice_files(reader) | numbers | {name: sgd.flag(name, False) for name in _FLAGS}


def lattice_nodes(network: Network, roots: Sequence[Any]) -> list[Node]:
    """The nodes SequenceWithSoftmax of a network that roots, which may be clones of its nodes, depend on."""
    functions = [root.owner.root_function for root in roots if root.is_output]
    return [node for node in nodes(functions) if network.operations.get(node.name) == "SequenceWithSoftmax"]


def set_lattices(criteria: Sequence[Node], reader: Block, sgd: Block) -> list[str]:
    """Set these options of such nodes; returns what the log says about it. Errors: as of `lattice_files`."""
    options = lattice_options(reader, sgd)
    for node in criteria:
        node.node_attributes |= {f"{key[0].upper()}{key[1:]}": value for key, value in options.items()}
    note_edit()
    weight, threshold, *factors = (options[name] for name in _NUMBERS)
    acoustic, language, penalty, boost = (f"{factor:.2f}" for factor in factors)
    return [f"Setting Hsmoothing weight to {weight:.8g} and frame-dropping threshhold to {threshold:.8g}",
            f"Setting SeqGammar-related parameters: amf={acoustic}, lmf={language}, wp={penalty}, bMMIFactor={boost}, "
            f"usesMBR={str(options['seqGammarUsesMBR']).lower()}"]


__all__ = ["LATTICE_KEYS", "lattice_nodes", "lattice_options", "set_lattices"]
