"""What a configuration may say."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from .format import camel_to_snake, json_parser


@dataclass
class SourceSolverConf:
    """The network that is converted; `tensor`: shapes of inputs by their names; `phase`: 0 training, 1 test."""

    source: str | None = None
    model_path: str | None = None
    weights_path: str | None = None
    tensor: dict[str, list[int]] | None = None
    phase: int | None = None


@dataclass
class ScriptSolverConf:
    """Nothing."""


@dataclass
class ModelSolverConf:
    """The model that is written."""

    cntk_model_path: str | None = None
    cntk_tensor: dict[str, list[int]] | None = None


@dataclass
class ValidConf:
    """A comparison with Caffe, which is not made here."""

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
    """The configuration in a JSON file, whose names may be written as in ``ModelSolver`` or in ``model_solver``.

    Errors: OSError, ValueError for what is no configuration.
    """
    given = json_parser(conf_path)
    conf = GlobalConf()
    if not isinstance(given, dict) or not all(isinstance(part, dict) for part in given.values()):
        raise ValueError(f"{conf_path}: a configuration is an object of objects")
    for name, part in given.items():
        section = getattr(conf, camel_to_snake(name), None)
        if section is None:
            raise ValueError(f"{conf_path}: there is no {name} among {', '.join(vars(conf))}")
        for key, value in part.items():
            if camel_to_snake(key) not in vars(section):
                raise ValueError(f"{conf_path}: {name} has no {key}, but {', '.join(vars(section)) or 'nothing'}")
            setattr(section, camel_to_snake(key), value)
    return conf
