"""Medians and ratios of a comparison, as a table and as a chart."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.compare import COLD, Result

LABELS = {
    "cntkjax": "cntkjax",
    "cntk27": "CNTK 2.7",
    "torch": "PyTorch",
    "torch.compile": "torch.compile",
    "jax": "hand-written JAX",
}
TITLES = {
    "fcn5": "FCN5, batch 1024",
    "alexnet": "AlexNet, batch 256",
    "resnet56": "ResNet-56, batch 32",
    "lstm64": "LSTM, batch 64",
    "lstm256": "LSTM, batch 256",
    "atis": "ATIS tagging",
    "bilstm": "Bi-directional LSTM, 3 layers",
    "bigru": "Bi-directional GRU, 3 layers",
    "attention": "Attention, teacher forcing",
    "decoding": "Attention, greedy decoding",
    "tiny": "Ten small parameters, batch 8",
}
COLOURS = {"cntkjax": "#1b6ca8", "cntk27": "#8a8a8a", "torch": "#e07b39", "torch.compile": "#b5482a", "jax": "#7fb069"}


def speed(network: str, result: Result) -> str:
    """Words per second where minibatches differ in size, otherwise milliseconds per minibatch."""
    unit = {"atis": "words/s", "attention": "symbols/s", "decoding": "symbols/s"}.get(network)
    if unit:
        return f"{median(result['samples_per_second']):,.0f} {unit}"
    return f"{median(result['milliseconds']):.1f} ms"


def table(networks: dict[str, Result]) -> str:
    """Markdown: a row for each network, a column for each side; in parentheses its time relative to this package's.

    The last column has the seconds until 100 minibatches are done, cold, for all sides.
    """
    sides = [side for side in LABELS if any(side in results for results in networks.values())]
    lines = [["network", *(LABELS[side] for side in sides), f"first {COLD} minibatches, cold"]]
    lines += [
        [TITLES[network], *(cell(network, side, results) for side in sides), cold(results)]
        for network, results in networks.items()
    ]
    head, *rows = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rows])


def cell(network: str, side: str, results: Result) -> str:
    """The text of one side in the row of a network."""
    result, ours = results.get(side), results.get("cntkjax", {})
    if result is None:
        return "–"
    if "error" in result:
        return "failed"
    if side == "cntkjax" or "milliseconds" not in ours:
        return speed(network, result)
    ratio = median(ours["samples_per_second"]) / median(result["samples_per_second"])
    return f"{speed(network, result)} ({ratio:.2f}x)"


def cold(results: dict[str, Result]) -> str:
    """Seconds until the first `COLD` minibatches were done, for all sides; the last ones of slow networks by median."""
    return ", ".join(
        f"{LABELS[side]} {seconds:.1f} s" for side in LABELS if (seconds := cold_seconds(results.get(side, {})))
    )


def cold_seconds(result: Result) -> float | None:
    """Seconds from the start of a process until its first `COLD` minibatches are done; None if it failed."""
    if "cold" not in result or not result["milliseconds"]:
        return None
    remaining = COLD - result["cold"]["minibatches"]
    return result["cold"]["seconds"] + remaining * median(result["milliseconds"]) / 1000


def compilations(networks: dict[str, Result]) -> str:
    """A line for each network: how many programs the JAX sides compiled, and how long that took."""
    return "\n".join(
        f"{TITLES[network]}, {LABELS[side]}: {result['programs']} programs compiled ({result['cached']} of them read "
        f"from the cache on disk), {result['compile_seconds']:.1f} s"
        for network, results in networks.items()
        for side, result in results.items()
        if "programs" in result
    )


def chart(networks: dict[str, Result], path: Path, note: str) -> None:
    """A panel for each network: the speed of each side relative to CNTK 2.7, or else to the slowest side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        -(-len(networks) // 3), min(3, len(networks)), squeeze=False, figsize=(12, 2.6 * -(-len(networks) // 3))
    )
    for panel in panels.flat[len(networks) :]:
        panel.axis("off")
    for panel, (network, results) in zip(panels.flat, networks.items(), strict=False):
        measured = {side: results[side] for side in reversed(LABELS) if "milliseconds" in results.get(side, {})}
        rates = {side: median(result["samples_per_second"]) for side, result in measured.items()}
        unit = rates.get("cntk27", min(rates.values(), default=1))
        bars = panel.barh(
            [LABELS[side] for side in rates],
            [rate / unit for rate in rates.values()],
            color=[COLOURS[side] for side in rates],
        )
        panel.bar_label(bars, [speed(network, result) for result in measured.values()], padding=3, fontsize=8)
        panel.set_title(TITLES[network], fontsize=10, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.3)
        panel.tick_params(labelsize=8)
    figure.suptitle("Training speed, CNTK 2.7 = 1 (longer is faster)", fontsize=12, x=0.01, ha="left")
    figure.text(0.01, 0.005, note, fontsize=7, color="#555555")
    figure.tight_layout(rect=(0, 0.03, 1, 0.98))
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
