"""What a benchmark runs on: the machine, CNTK 2.7 and the ATIS files."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

HERE = Path(__file__).parent
SHARED = HERE.parent.parent / "shared"  # beside a developer's checkout
DEFAULTS = {"cntk27": SHARED / "oracle" / "cntk27", "atis": SHARED / "data" / "atis"}


def machine() -> str:
    """The processor, its cores and the operating system."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        processor = names[0] if names else processor
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def existing_path(text: str) -> Path:
    """The path of an argument. Errors: ArgumentTypeError if it does not exist."""
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{path} does not exist")
    return path


def parse_with_paths(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options, with --cntk27 and --atis: by default what exists on this machine, otherwise None."""
    parser.add_argument("--cntk27", type=existing_path, help="CNTK 2.7's Python (default: ../shared/oracle/cntk27)")
    parser.add_argument("--atis", type=existing_path, help="folder of atis.train.ctf (default: ../shared/data/atis)")
    options = parser.parse_args(arguments)
    for name, path in DEFAULTS.items():
        setattr(options, name, getattr(options, name) or (path if path.exists() else None))
    return options
