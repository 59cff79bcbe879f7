"""python -m benchmarks: this package against CNTK 2.7, PyTorch and hand-written JAX, in one run."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import sys
from pathlib import Path

from benchmarks import gpu_speed, report
from benchmarks.compare import NETWORKS, SIDES, compare
from benchmarks.resources import machine, parse_with_paths

OTHERS = "cold", "deep", "gaps", "inference", "ops", "gpu-programs", "gpu-scaling", "workers", "scaling"
"""Modules with a `main`; they import jax and PyTorch, which the networks leave to their own processes."""


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


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options, with the defaults that exist on this machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS[:-1], help="default: all but tiny")
    default_sides = [side for side in SIDES if side != "torch.compile"]
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=default_sides, help="default: no torch.compile")
    parser.add_argument("--device", choices=("any", "gpu"), default="any", help="gpu: with percent of a GPU's peak")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--chart", type=Path, help="file (.png, .svg) for a chart")
    parser.add_argument("--quick", action="store_true", help="one short round, to check that everything runs")
    return parse_with_paths(parser, arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison and print its table, or another measurement, one of `OTHERS`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in OTHERS:
        return importlib.import_module(f"benchmarks.{arguments[0].replace('-', '_')}").main(arguments[1:])
    options = parse(arguments)
    platform, device = gpu_speed.device_in_use() if options.device == "gpu" else ("", "")
    if platform == "cpu":
        sys.exit(gpu_speed.NO_GPU.format(f"a {device}"))
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
                       for side, result in results.items() if "version" in result})
    facts = {"date": datetime.date.today().isoformat(), "machine": machine(), "versions": versions, "rounds": rounds}
    note = f"{facts['machine']}. {'; '.join(versions)}. Medians of {rounds} rounds, {facts['date']}."
    print(report.table(networks), note, report.compilations(networks), sep="\n\n")
    if device:
        peak = gpu_speed.peak_of(device)
        print("", f"{device}; peak: {peak or 'not described in benchmarks/gpu_targets'}", "", sep="\n")
        print(*gpu_speed.rows(networks, peak), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(facts | {"networks": networks}, indent=1) + "\n")
    if options.chart:
        report.chart(networks, options.chart, note)


if __name__ == "__main__":
    main()
