"""python -m benchmarks: this package against CNTK 2.7, PyTorch and hand-written JAX, in one run."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.compare import HERE, NETWORKS, SIDES, compare

SHARED = HERE.parent.parent / "shared"  # beside a developer's checkout


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


def interpreters(sides: list[str], cntk27: Path | None) -> dict[str, str]:
    """The Python that runs each side; a side that cannot run here is skipped with a message."""
    needs = {"cntkjax": "jax", "jax": "jax", "torch": "torch", "torch.compile": "torch"}
    pythons = {}
    for side in sides:
        if side == "cntk27" and cntk27:
            pythons[side] = str(cntk27)
        elif side != "cntk27" and importlib.util.find_spec(needs[side]):
            pythons[side] = sys.executable
        else:
            print(f"{report.LABELS[side]} is skipped: it is not installed", file=sys.stderr)
    return pythons


def existing_path(text: str) -> Path:
    """The path of an argument. Errors: ArgumentTypeError if it does not exist."""
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{path} does not exist")
    return path


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options, with the defaults that exist on this machine."""
    defaults = {"cntk27": SHARED / "oracle" / "cntk27", "atis": SHARED / "data" / "atis"}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS[:-1], help="default: all but tiny")
    default_sides = [side for side in SIDES if side != "torch.compile"]
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=default_sides, help="default: no torch.compile")
    parser.add_argument("--cntk27", type=existing_path, help="CNTK 2.7's Python (default: ../shared/oracle/cntk27)")
    parser.add_argument("--atis", type=existing_path, help="folder of atis.train.ctf (default: ../shared/data/atis)")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--chart", type=Path, help="file (.png, .svg) for a chart")
    parser.add_argument("--quick", action="store_true", help="one short round, to check that everything runs")
    options = parser.parse_args(arguments)
    for name, path in defaults.items():
        setattr(options, name, getattr(options, name) or (path if path.exists() else None))
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison and print its table; ``ops`` runs the benchmark of operations."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["ops"]:
        from benchmarks import ops  # imports jax and PyTorch, which the networks leave to their own processes

        return ops.main(arguments[1:])
    options = parse(arguments)
    sides = interpreters(options.sides, options.cntk27)
    rounds, seconds = (1, 0.0) if options.quick else (7, 1.5)
    networks = {}
    for network in options.networks:
        if network == "atis" and not options.atis:
            print("ATIS is skipped: pass its folder with --atis", file=sys.stderr)
            continue
        networks[network] = compare(network, sides, options.atis if network == "atis" else None, rounds, seconds)
        print(report.table({network: networks[network]}).splitlines()[-1], file=sys.stderr, flush=True)
    versions = sorted({f"{report.LABELS[side]}: {result['version']}" for results in networks.values()
                       for side, result in results.items() if "version" in result})  # fmt: skip
    facts = {"date": datetime.date.today().isoformat(), "machine": machine(), "versions": versions, "rounds": rounds}
    note = f"{facts['machine']}. {'; '.join(versions)}. Medians of {rounds} rounds, {facts['date']}."
    print(report.table(networks), note, report.compilations(networks), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps(facts | {"networks": networks}, indent=1) + "\n")
    if options.chart:
        report.chart(networks, options.chart, note)


if __name__ == "__main__":
    main()
