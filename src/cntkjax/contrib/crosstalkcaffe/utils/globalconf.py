"""The sections of a configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ....graph.errors import explain
from .format import camel_to_snake, json_parser


@dataclass
class SourceSolverConf:
    """The network to be converted; `tensor`: shapes of inputs by name; `phase`: 0 for training, 1 for test."""

    source: str | None = None
    model_path: str | None = None
    weights_path: str | None = None
    tensor: dict[str, list[int]] | None = None
    phase: int | None = None


@dataclass
class ScriptSolverConf:
    """Accepted for compatibility; it has no settings."""


@dataclass
class ModelSolverConf:
    """The model to be written."""

    cntk_model_path: str | None = None
    cntk_tensor: dict[str, list[int]] | None = None


@dataclass
class ValidConf:
    """A comparison with Caffe, which is ignored."""

    save_path: str | None = None
    val_inputs: Any = field(default_factory=list)
    val_nodes: Any = field(default_factory=list)


@dataclass
class GlobalConf:
    """A whole configuration."""

    source_solver: SourceSolverConf = field(default_factory=SourceSolverConf)
    script_solver: ScriptSolverConf = field(default_factory=ScriptSolverConf)
    model_solver: ModelSolverConf = field(default_factory=ModelSolverConf)
    valid_solver: ValidConf = field(default_factory=ValidConf)


def load_conf(conf_path: str | os.PathLike[str]) -> GlobalConf:
    """The configuration in a JSON file, with names such as ``ModelSolver`` or ``model_solver``.

    Errors: OSError if the file cannot be read; ValueError if it is no JSON, or has an unknown section or key.
    """
    content = json_parser(conf_path)
    conf = GlobalConf()
    if not isinstance(content, dict) or not all(isinstance(part, dict) for part in content.values()):
        raise ValueError(explain(
            f"{conf_path}: a configuration is an object of objects", fix='write {"SourceSolver": {"Source": "Caffe"}}'
        ))
    for name, part in content.items():
        section = getattr(conf, camel_to_snake(name), None)
        if section is None:
            raise ValueError(f"{conf_path}: {name} is none of the sections {', '.join(vars(conf))}")
        for key, value in part.items():
            if camel_to_snake(key) not in vars(section):
                raise ValueError(f"{conf_path}: {name} has no {key}, but {', '.join(vars(section)) or 'nothing'}")
            setattr(section, camel_to_snake(key), value)
    return conf
