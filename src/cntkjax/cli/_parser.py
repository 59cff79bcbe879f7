"""The options of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import metadata
from math import inf
from pathlib import Path

MODEL = "a .model file of CNTK 2, a .dnn file of CNTK 1, or an .onnx file"
DESCRIPTION = (
    "Inspect, convert, compare, evaluate and train models: .model files of CNTK 2, .dnn files of CNTK 1, .onnx files. "
    "cntkjax COMMAND --help explains a command."
)


def parser() -> argparse.ArgumentParser:
    """Create the parser of the command line.

    >>> parser().parse_args(["info", "a.model"]).command
    'info'
    """
    result = argparse.ArgumentParser("cntkjax", description=DESCRIPTION)
    result.add_argument("--version", action="version", version=f"cntkjax {version()}")
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_info(commands)
    _add_convert(commands)
    _add_eval(commands)
    _add_train(commands)
    _add_run(commands)
    _add_port(commands)
    _add_view(commands)
    _add_diff(commands)
    _add_launch(commands)
    _add_serve(commands)
    doctor = commands.add_parser("doctor", help="report devices, versions, missing packages and compiled programs")
    doctor.add_argument("--clear-cache", action="store_true", help="remove the compiled programs that are stored")
    doctor.add_argument(
        "--compile", nargs=argparse.REMAINDER, metavar="SCRIPT",
        help="run a script, with its arguments, and list what it compiles by time, and what would reduce that",
    )
    return result


def version() -> str:
    """The version that is installed."""
    try:
        return metadata.version("cntkjax")
    except metadata.PackageNotFoundError:  # the sources are on the path, but not installed
        return "of unknown version"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; settings may also stand after its options, where argparse takes none."""
    commands = parser()
    options, rest = commands.parse_known_args(arguments)
    if rest and (options.command not in ("train", "run", "port") or any(each.startswith("-") for each in rest)):
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.settings = [*options.settings, *rest]
    return options


def _add_info(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    info = commands.add_parser(
        "info", help="list inputs, outputs, parameters and operations of a model",
        description="List inputs, outputs, parameters and operations of a model, as far as possible if it cannot be "
        "loaded, or the state of a trainer. Parameters whose names repeat have the names of the layers around them.",
    )
    info.add_argument("model", type=Path, metavar="FILE", help=f"{MODEL}; or a checkpoint of a trainer, .ckp")


def _add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser(
        "convert", help="convert a model to another format",
        description="Convert a model. The extension of OUT selects the format: .model (CNTK 2), .onnx, .stablehlo (for "
        "jax.export.deserialize) or .safetensors (parameters and constants by name).",
    )
    convert.add_argument("model", type=Path, metavar="IN", help=MODEL)
    convert.add_argument(
        "--opset", type=int, default=17, metavar="N", help="ONNX operator set version, 9 (as CNTK) to 21; default 17"
    )
    convert.add_argument("out", type=Path, metavar="OUT", help="the file to write; an existing file is replaced")


def _add_eval(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    evaluate = commands.add_parser(
        "eval", help="evaluate a model for data in CNTK's text format",
        description="Evaluate a model for each sequence of the data. Outputs are printed in the text format, by the "
        "number of the sequence. Outputs without a batch axis follow in lines of their own, which say whether they are "
        "sums over the whole file or values of a minibatch.",
    )
    evaluate.add_argument("model", type=Path, help=MODEL)
    _add_data(evaluate, "the data")
    evaluate.add_argument(
        "--output", action="append", default=[], metavar="NAME", help="print only this output; repeatable"
    )


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    train = commands.add_parser(
        "train", help="train a model with the SGD block of a configuration file",
        description="Train a model. It is written to the block's modelPath, with a checkpoint after each epoch, from "
        "which the same command goes on. See docs/sgd_block.md.",
    )
    train.add_argument("config", type=Path, metavar="CONFIG.cntk", help="a text with an SGD block")
    train.add_argument("model", type=Path, metavar="MODEL", help=MODEL)
    _add_settings(train, "keys of the block, or values for $key$ in it")
    _add_data(train, "the data, read in random order")
    train.add_argument("--cv", type=Path, metavar="FILE.ctf", help="data for a test after each epoch")
    train.add_argument(
        "--truncation-length", type=int, default=0, metavar="N", help="cut sequences, for truncated = true"
    )


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run", help="run a configuration of CNTK's command line",
        description="Run the commands of a configuration: the same as cntk configFile=CONFIG.cntk key=value ... See "
        "docs/brainscript.md.",
    )
    run.add_argument("config", metavar="CONFIG.cntk", help="the configuration; several are joined by +")
    _add_settings(run, "values that replace those of the file")
    run.add_argument("--describe", action="store_true", help="print the network, without reading data")


def _add_port(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    port = commands.add_parser(
        "port", help="write the source of a model for another library, or of a configuration as a Python program",
        description="Write a model as a package of readable source, with its weights and a test that compares it with "
        "the original. Of a configuration of CNTK's command line, print the first training as a Python program of the "
        "CNTK API: the network, the reader and the SGD block.",
    )
    port.add_argument("file", metavar="FILE", help=f"{MODEL}; or a configuration (several are joined by +)")
    port.add_argument("--to", metavar="TARGET", help="of a model: torch, flax, keras or cntk")
    port.add_argument("-o", "--out", metavar="FOLDER", help="of a model: the package to write, a new or empty folder")
    _add_settings(port, "of a configuration: values to replace its own")


def _add_settings(command: argparse.ArgumentParser, help: str) -> None:
    command.add_argument("settings", nargs="*", default=[], metavar="key=value", help=help)


def _add_data(command: argparse.ArgumentParser, help: str) -> None:
    command.add_argument("--data", type=Path, required=True, metavar="FILE.ctf", help=f"{help}, in CNTK's text format")
    command.add_argument(
        "--field", action="append", default=[], metavar="INPUT=FIELD",
        help="read this input of the model from this field of the file, such as --field features=x for '|x 1 2'; "
        "other inputs are read from the fields of their names; repeatable",
    )


def _add_view(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    view = commands.add_parser(
        "view", help="write an interactive page of a model: graph, attributes and parameters",
        description="Write a page of a model: one file that needs no network. Blocks unfold by a double click.",
    )
    view.add_argument("model", type=Path, help=MODEL)
    view.add_argument("out", type=Path, nargs="?", metavar="OUT.html", help="default: the model's name with .html")


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diff = commands.add_parser(
        "diff", help="print how two models differ: operations, attributes and parameters",
        description="Print how two models differ, by the layers that have the differences. The exit status is 0 if the "
        "models are equal, 1 if they differ, and 2 after an error.",
    )
    diff.add_argument("first", type=Path, metavar="A", help=MODEL)
    diff.add_argument("second", type=Path, metavar="B", help="the file to compare it with")
    diff.add_argument("--html", type=Path, metavar="OUT.html", help="also write a page of B with differences marked")


def _add_launch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    launch = commands.add_parser(
        "launch", help="run a script on several workers, without MPI",
        description="Start the workers, one device each, and end all when one fails. See docs/scaling.md.",
    )
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
    rest = launch.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's arguments")
    rest.required = False  # for the message about a missing script, which would name it too


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve", help="answer requests for models over HTTP",
        description="Answer requests for models over HTTP, by the Open Inference Protocol (KServe v2), with metrics "
        "for Prometheus under /metrics. A file that changes is loaded again. See docs/serving.md.",
    )  # fmt: skip
    serve.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help=f"{MODEL}; by default named as the file")
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen at; default %(default)s")
    for option, number, default, help in (
        ("--port", _number(int, 0, 65535), 8080, "where; 0: a free one, which is printed"),
        ("--max-batch", _number(int, 1), 32, "samples or sequences that are computed together"),
        ("--max-delay", _number(float, 0, 60_000), 2.0, "milliseconds for which a request waits for others"),
        ("--max-queue", _number(int, 1), 256, "requests that may wait for a model; others are answered by 503"),
        ("--max-request", _number(float, 0, 1 << 20), 64.0, "MiB of a request; larger ones are answered by 413"),
        ("--body-timeout", _number(float, 0, 86_400), 30.0,
         "seconds in which the headers of a request have to come, and then its body; otherwise 408"),
    ):
        serve.add_argument(option, type=number, default=default, metavar="N", help=f"{help}; default {default}")


def _number(kind: type[int] | type[float], least: int, most: float = inf) -> Callable[[str], float]:
    """The type of an option: a number between two others."""

    def parse(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return value

    parse.__name__ = kind.__name__  # in messages
    return parse


__all__ = ["parse", "parser", "version"]
