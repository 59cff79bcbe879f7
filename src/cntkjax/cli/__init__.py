"""The command ``cntkjax``: what is in a model file, the same model in another format, its outputs for data; doctor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = "Model files of CNTK: .model of CNTK 2, .dnn of CNTK 1, .onnx, and .ckp of a trainer."


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    made = argparse.ArgumentParser("cntkjax", description=DESCRIPTION)
    commands = made.add_subparsers(dest="command", required=True)

    info = commands.add_parser("info", help="inputs, outputs, parameters and operations of a model")
    info.add_argument("model", type=Path, help="a file of any of these formats")

    convert = commands.add_parser(
        "convert", help="write a model in another format",
        description="The ending of OUT says which format: .onnx, .stablehlo (for jax.export.deserialize), .safetensors "
        "(parameters and constants by name); any other is a model of CNTK 2.",
    )  # fmt: skip
    convert.add_argument("model", type=Path, metavar="IN", help="a .model, .dnn or .onnx file")
    convert.add_argument(
        "--opset", type=int, default=17, metavar="N", help="version of ONNX operations, 9 (as CNTK) to 21; default 17"
    )
    convert.add_argument("out", type=Path, metavar="OUT", help="the file to write; one that is there is replaced")

    evaluate = commands.add_parser(
        "eval", help="outputs of a model for data in CNTK's text format",
        description="Each input of the model takes the field of its name. Prints the outputs in the text format too.",
    )  # fmt: skip
    evaluate.add_argument("model", type=Path, help="a .model, .dnn or .onnx file")
    evaluate.add_argument("--data", type=Path, required=True, metavar="FILE.ctf", help="the data")
    evaluate.add_argument(
        "--field", action="append", default=[], metavar="INPUT=FIELD", help="an input's field, if its name is another"
    )
    evaluate.add_argument("--output", action="append", default=[], metavar="NAME", help="only this output; repeatable")
    commands.add_parser("doctor", help="where this computes, with which versions, and what is not installed")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0, or 1 after an error, which is printed to stderr in one line.

    >>> main(["info", "nowhere.model"])
    1
    """
    options = parser().parse_args(arguments)
    from . import _convert, _doctor, _eval, _info  # these import jax, which --help need not wait for

    run = {"info": _info.run, "convert": _convert.run, "eval": _eval.run, "doctor": _doctor.run}[options.command]
    try:
        run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, such as head, has seen enough
        sys.stderr.close()
    except (ValueError, RuntimeError, TypeError, OSError, ImportError, KeyError) as error:
        print(f"cntkjax {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


__all__ = ["main", "parser"]
