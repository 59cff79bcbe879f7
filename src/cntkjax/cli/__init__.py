"""The command ``cntkjax``: works with model files, launches workers, and diagnoses the installation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DESCRIPTION = "Inspects, converts, evaluates and trains .model files of CNTK 2, .dnn of CNTK 1, .onnx, .ckp."


def parser() -> argparse.ArgumentParser:
    """Creates the parser of the command line.

    Example:
        >>> parser().parse_args(["info", "a.model"]).command
        'info'
    """
    result = argparse.ArgumentParser("cntkjax", description=DESCRIPTION)
    commands = result.add_subparsers(dest="command", required=True)

    info = commands.add_parser("info", help="list inputs, outputs, parameters and operations of a model")
    info.add_argument("model", type=Path, help="a file of any of these formats")

    convert = commands.add_parser(
        "convert", help="convert a model to another format",
        description="The extension of OUT selects the format: .onnx, .stablehlo (for jax.export.deserialize), "
        ".safetensors (parameters and constants by name); any other: CNTK 2.",
    )  # fmt: skip
    convert.add_argument("model", type=Path, metavar="IN", help="a .model, .dnn or .onnx file")
    convert.add_argument(
        "--opset", type=int, default=17, metavar="N", help="ONNX operator set version, 9 (as CNTK) to 21; default 17"
    )
    convert.add_argument("out", type=Path, metavar="OUT", help="the file to write; an existing file is replaced")

    evaluate = commands.add_parser(
        "eval", help="evaluate a model for data in CNTK's text format",
        description="Each input is read from the field of its name. Outputs are printed in the text format.",
    )  # fmt: skip
    evaluate.add_argument("model", type=Path, help="a .model, .dnn or .onnx file")
    evaluate.add_argument("--data", type=Path, required=True, metavar="FILE.ctf", help="the data")
    evaluate.add_argument(
        "--field", action="append", default=[], metavar="INPUT=FIELD", help="field of an input with another name"
    )
    evaluate.add_argument(
        "--output", action="append", default=[], metavar="NAME", help="print only this output; repeatable"
    )
    train = commands.add_parser(
        "train", help="train a model with the SGD block of a configuration file",
        description="Each input is read from the field of its name. The model is written to the block's modelPath, "
        "with a checkpoint after each epoch, from which the same command goes on. See docs/sgd_block.md.",
    )  # fmt: skip
    train.add_argument("config", type=Path, metavar="CONFIG.cntk", help="a text with an SGD block")
    train.add_argument("model", type=Path, metavar="MODEL", help="a .model, .dnn or .onnx file")
    train.add_argument("settings", nargs="*", metavar="key=value", help="keys of the block, or values for $key$ in it")
    train.add_argument("--data", type=Path, required=True, metavar="FILE.ctf", help="the data, read in random order")
    train.add_argument("--cv", type=Path, metavar="FILE.ctf", help="data for a test after each epoch")
    train.add_argument(
        "--field", action="append", default=[], metavar="INPUT=FIELD", help="field of an input with another name"
    )
    train.add_argument(
        "--truncation-length", type=int, default=0, metavar="N", help="cut sequences, for truncated = true"
    )
    view = commands.add_parser(
        "view", help="write an interactive page of a model: graph, attributes and parameters",
        description="The page is one file that needs no network. Blocks unfold by a double click.",
    )  # fmt: skip
    view.add_argument("model", type=Path, help="a .model, .dnn or .onnx file")
    view.add_argument("out", type=Path, nargs="?", metavar="OUT.html", help="default: the model's name with .html")

    diff = commands.add_parser("diff", help="print how two models differ: operations, attributes and parameters")
    diff.add_argument("first", type=Path, metavar="A", help="a .model, .dnn or .onnx file")
    diff.add_argument("second", type=Path, metavar="B", help="the file to compare it with")
    diff.add_argument("--html", type=Path, metavar="OUT.html", help="also write a page of B with differences marked")
    _add_launch(commands.add_parser(
        "launch", help="run a script on several workers, without MPI",
        description="Starts the workers, one device each, and ends all when one fails. See docs/scaling.md.",
    ))  # fmt: skip
    doctor = commands.add_parser("doctor", help="report devices, versions, missing packages and compiled programs")
    doctor.add_argument("--clear-cache", action="store_true", help="remove the compiled programs that are stored")
    return result


def _add_launch(launch: argparse.ArgumentParser) -> None:
    launch.add_argument(
        "-n", type=int, dest="workers", metavar="N", help="the number of workers, on all hosts; default: all slots"
    )
    launch.add_argument("--hosts", metavar="A,B:4", help="start the workers on these hosts, with ssh; 4 slots on B")
    launch.add_argument("--hostfile", type=Path, metavar="FILE", help="the same, with lines such as 'B slots=4'")
    launch.add_argument("--ssh", default="ssh -o ConnectTimeout=20", metavar="COMMAND", help="default: %(default)s")
    launch.add_argument(
        "--coordinator", metavar="HOST:PORT", help="where the workers meet: a free port of the first host"
    )
    launch.add_argument(
        "--host-index", type=int, metavar="I", help="start only those of the host with this number, from 0"
    )
    launch.add_argument("--attached", action="store_true", help=argparse.SUPPRESS)  # started by another launcher
    launch.add_argument("--restarts", type=int, default=0, metavar="N", help="how often to start again after a failure")
    launch.add_argument("--logs", type=Path, metavar="DIR", help="write worker-RANK.log there instead of printing")
    launch.add_argument("script", type=Path, metavar="SCRIPT.py", help="the script that all workers run")
    launch.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's arguments")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; settings of ``train`` may also stand after its options, where argparse takes none."""
    commands = parser()
    options, rest = commands.parse_known_args(arguments)
    if rest and (options.command != "train" or any(each.startswith("-") for each in rest)):
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.settings += rest
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, or 1 after an error, which is printed to stderr in one line.

    That of ``launch`` is the status of the worker that failed.

    Example:
        >>> main(["info", "nowhere.model"])
        1
    """
    options = _parse(arguments)
    # loaded late: they import jax, for which --help need not wait
    from . import _convert, _doctor, _eval, _info, _launch, _train, _view

    run: Callable[[argparse.Namespace], int | None] = {
        "info": _info.run, "convert": _convert.run, "eval": _eval.run, "train": _train.run, "doctor": _doctor.run,
        "view": _view.run, "diff": _view.run_diff, "launch": _launch.run,
    }[options.command]  # fmt: skip
    try:
        status = run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, was closed
        sys.stderr.close()
        return 0
    except (ValueError, RuntimeError, TypeError, OSError, ImportError, KeyError) as error:
        print(f"cntkjax {options.command}: {error}", file=sys.stderr)
        return 1
    return status or 0


__all__ = ["main", "parser"]
