"""The command ``cntkjax``: works with model files, launches workers, and diagnoses the installation."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence

from ._parser import parse, parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, or 1 after an error, whose message is printed to stderr.

    That of ``launch`` is the status of the worker that failed; that of ``diff`` is 1 for different models and 2 after
    an error; that of an interrupted command is 130, as of a program that SIGINT ends.

    >>> main(["info", "nowhere.model"])
    1
    """
    options = parse(arguments)
    try:
        return _status(options)
    except KeyboardInterrupt:
        _print_error(options, "interrupted")
        return 130


def _status(options: argparse.Namespace) -> int:
    """The exit status of a command that nobody interrupts."""
    # loaded late: they import jax, for which --help need not wait
    from ..io._ctf_rows import MalformedRowError
    from . import _convert, _doctor, _eval, _info, _launch, _port, _run, _serve, _train, _view
    from ._files import sentence

    run: Callable[[argparse.Namespace], int | None] = {
        "info": _info.run, "convert": _convert.run, "eval": _eval.run, "train": _train.run, "run": _run.run,
        "doctor": _doctor.run, "view": _view.run, "diff": _view.run_diff, "launch": _launch.run,
        "port": _port.run, "serve": _serve.run,
    }[options.command]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _print_error(options, f"warning: {message}")
            status = run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, was closed
        sys.stderr.close()
        return 0
    except MalformedRowError as error:
        message = f"{error.problem}: correct the row"
    except OSError as error:
        message = sentence(error)
    except (ValueError, RuntimeError, TypeError, ImportError, KeyError) as error:
        message = str(error)
    else:
        return status or 0
    _print_error(options, message)
    return 2 if options.command == "diff" else 1


def _print_error(options: argparse.Namespace, message: str) -> None:
    print(f"cntkjax {options.command}: {message}", file=sys.stderr)


__all__ = ["main", "parser"]
