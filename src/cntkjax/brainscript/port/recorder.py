"""A recorder of calls of the package: it makes them, and writes them down as a Python program."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ...ops.functions import Function
from ...sgd import ConfigError
from ...variables import Variable

_LARGEST = 4096  # elements of an array that is written out


class Recorder:
    """Stands for the package; `lines` are the statements of the program.

    `has_sequences`: whether the data of all inputs are sequences. `lattice_options`:
    what gives those of the reader.
    """

    def __init__(self, package: Any, has_sequences: bool, lattice_options: Callable[[], dict[str, Any]]) -> None:
        self._package, self.has_sequences, self.lattice_options = package, has_sequences, lattice_options
        self.lines: list[str] = []
        self._texts: dict[int, str] = {}
        self._used: set[str] = {"C", "np"}
        self._kept: list[Any] = []  # objects whose identities are keys

    def __getattr__(self, name: str) -> Any:
        return _recorded(self, getattr(self._package, name), name)

    def text(self, value: Any) -> str:
        """A value as an expression of the program."""
        if isinstance(value, Function) and id(value) not in self._texts:
            value = value.outputs[0]
        if id(value) in self._texts:
            return self._texts[id(value)]
        if isinstance(value, np.ndarray) and value.size <= _LARGEST:
            return f"np.array({value.tolist()!r}, np.{value.dtype})"
        if isinstance(value, Variable | Function | np.ndarray):
            raise ConfigError("the network is made from a model's file, which a program cannot describe: load the "
                              "model in Python")
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            inside = ", ".join(map(self.text, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
        return repr(value)

    def call(self, path: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the package, and record that."""
        result = function(*args, **kwargs)
        arguments = [*map(self.text, args), *(f"{k}={self.text(v)}" for k, v in kwargs.items() if k != "name" or v)]
        self.record(result, f"C.{path}({', '.join(arguments)})", kwargs.get("name", ""))
        return result

    def record(self, result: Any, text: str, name: str) -> None:
        """A statement for a variable; other results are written where they are used."""
        self._kept.append(result)
        if not isinstance(result, Variable | Function):
            self._texts[id(result)] = text
            return
        identifier = self.identifier(name or "v")
        self.lines.append(f"{identifier} = {text}")
        self._texts[id(result)] = identifier
        if isinstance(result, Function):
            self._texts[id(result.outputs[0])] = identifier

    def identifier(self, name: str) -> str:
        """A name of Python that is like this one, and new."""
        plain = re.sub(r"\W+", "_", name.rstrip("]"))
        plain = f"_{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
        candidate, number = plain, 1
        while candidate in self._used:
            number += 1
            candidate = f"{plain}_{number}"
        self._used.add(candidate)
        return candidate

    def connect(self, functions: list[Any], known: dict[Any, Any]) -> None:
        """Close loops; what depends on them takes its shapes from there."""
        used = {v for each in functions for v in each.root_function.inputs}
        ends = [each for each in functions if not used.intersection(each.outputs)]
        self._package.connect(functions, known)
        pairs = ", ".join(f"{self.text(later)}: {self.text(value)}" for later, value in known.items())
        self.lines.append(f"C.combine({self.text([*known.values(), *ends])}).replace_placeholders({{{pairs}}})")

    def read_matrix(self, path: str, dimensions: tuple[int, ...]) -> np.ndarray:
        """Initial values from a file."""
        values: np.ndarray = self._package.read_matrix(path, dimensions)
        self._kept.append(values)
        self._texts[id(values)] = f"np.loadtxt({path!r}, np.float32, ndmin=2).T.reshape({values.shape})"
        return values


class _Part:
    """A module or class of the package whose functions are recorded."""

    def __init__(self, recorder: Recorder, part: Any, path: str) -> None:
        self._recorder, self._part, self._path = recorder, part, path

    def __getattr__(self, name: str) -> Any:
        return _recorded(self._recorder, getattr(self._part, name), f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.call(self._path, self._part, args, kwargs)


def _recorded(recorder: Recorder, value: Any, path: str) -> Any:
    """Something of the package, as what records its use."""
    return _Part(recorder, value, path) if callable(value) or isinstance(value, ModuleType) else value


__all__ = ["Recorder"]
