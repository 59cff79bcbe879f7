"""The files that commands read and write: models of any format, checked names of outputs, errors in sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..graph.errors import working_directory
from ..ops.functions import Function, ModelFormat


def load(path: Path) -> Function:
    """Load the model in a file: ONNX by its extension, otherwise one of CNTK's formats.

    Errors: those of `Function.load`.
    """
    is_onnx = path.suffix.lower() == ".onnx"
    return Function.load(str(path), format=ModelFormat.ONNX if is_onnx else ModelFormat.CNTKv2)


def check_output(path: Path, formats: Mapping[str, str]) -> None:
    """Check the name of a file to be written; `formats` are the extensions and what is written for them.

    Errors: ValueError for another extension, a folder that does not exist, and the path of a folder.
    """
    if path.suffix.lower() not in formats:
        known = ", ".join(f"{extension} ({format})" for extension, format in formats.items() if format)
        raise ValueError(f"{path}: files of this kind cannot be written; give the name another extension: {known}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {str(path.parent)!r}; correct the path, or make it first")


def sentence(error: OSError) -> str:
    """What an error of the system means for the file that it names; its own message if it names none."""
    if error.filename is None or not isinstance(error.filename, str | os.PathLike):
        return str(error)
    path = os.fspath(error.filename)
    match error:
        case FileNotFoundError():
            return f"there is no file {path!r}; {working_directory()}"
        case IsADirectoryError():
            return f"{path!r} is a folder; give a file in it"
        case NotADirectoryError():
            return f"{path!r}: a part of this path is a file, not a folder"
        case PermissionError():
            return f"this user may not open {path!r}"
    return f"{path!r}: {(error.strerror or str(error)).lower()}"


__all__ = ["check_output", "load", "sentence"]
