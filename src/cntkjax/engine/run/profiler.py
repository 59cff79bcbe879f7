"""Recordings of time spans in the format that chrome://tracing and Perfetto read, and JAX's own traces."""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from typing import Any


class Recording:
    """Time spans on named tracks, since it was created. `enabled`: whether new ones are added."""

    def __init__(self) -> None:
        self.enabled = False
        self._start = time.perf_counter()
        self._spans: list[tuple[str, str, float, float]] = []  # track, name, begin, end

    def add(self, track: str, name: str, begin: float, end: float) -> None:
        """Add a span. Units: begin and end are seconds of ``time.perf_counter``."""
        self._spans.append((track, name, begin - self._start, end - self._start))

    def events(self) -> list[dict[str, Any]]:
        """Events of the trace format: a begin and an end event for each span, and a name for each track."""
        tracks = {track: i + 1 for i, track in enumerate(dict.fromkeys(span[0] for span in self._spans))}
        process = os.getpid()
        events: list[dict[str, Any]] = [
            {"pid": process, "tid": i, "name": "thread_name", "ph": "M", "args": {"name": track}}
            for track, i in tracks.items()
        ]
        for track, name, begin, end in self._spans:
            common = {"pid": process, "tid": tracks[track], "name": name, "cat": "PERF"}
            events += [{**common, "ph": "B", "ts": begin * 1e6}, {**common, "ph": "E", "ts": end * 1e6}]
        return events

    def summary(self) -> str:
        """A table of durations by track and name. Units: milliseconds."""
        durations: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for track, name, begin, end in self._spans:
            durations[track][name].append(1000 * (end - begin))
        lines = [f"{'ms':<40}{'mean':>12}{'deviation':>12}{'least':>12}{'most':>12}{'count':>8}{'total':>12}"]
        for track, names in durations.items():
            lines += ["", track]
            for name, times in sorted(names.items(), key=lambda item: -sum(item[1])):
                mean = sum(times) / len(times)
                deviation = math.sqrt(sum((t - mean) ** 2 for t in times) / len(times))
                numbers = "".join(f"{t:12.3f}" for t in (mean, deviation, min(times), max(times)))
                lines.append(f"  {name:<38}{numbers}{len(times):8d}{sum(times):12.3f}")
        return "\n".join([*lines, ""])

    def write(self, directory: str) -> None:
        """Write files like CNTK's, ``<time>_detail_.json`` and ``<time>_summary_.txt``; none if there are no spans."""
        if not self._spans:
            return
        stamp = os.path.join(directory, time.strftime("%Y-%m-%d_%H-%M-%S"))
        with open(f"{stamp}_detail_.json", "w") as file:
            json.dump(self.events(), file, indent=0)
        with open(f"{stamp}_summary_.txt", "w") as file:
            file.write(self.summary())


class _State:
    recording: Recording | None = None


def start() -> None:
    """Begin a new recording, which is disabled until `set_enabled`."""
    _State.recording = Recording()


def set_enabled(enabled: bool) -> None:
    """Enable or disable adding spans to the recording, if there is one."""
    if _State.recording is not None:
        _State.recording.enabled = enabled


def finish(directory: str) -> None:
    """End the recording and write its files."""
    if _State.recording is not None:
        _State.recording.write(directory)
    _State.recording = None


def add(track: str, name: str, begin: float, end: float) -> None:
    """Add a span, if recording is enabled. Units: see `Recording.add`."""
    if _State.recording is not None and _State.recording.enabled:
        _State.recording.add(track, name, begin, end)


def is_recording() -> bool:
    """True if spans are added."""
    return _State.recording is not None and _State.recording.enabled


def start_trace(directory: str) -> None:
    """Start JAX's own trace, with its files below ``directory``."""
    import jax  # loaded late: importing cntkjax.debugging does not need it

    options = jax.profiler.ProfileOptions()
    # With jax's Python tracer, threads that enter functions while another one compiles have waited for each other for
    # ever; and it writes an event for each call of Python, where those of XLA are looked for.
    options.python_tracer_level = 0
    jax.profiler.start_trace(directory, profiler_options=options)


def stop_trace() -> None:
    """Stop JAX's trace and write its files."""
    import jax

    jax.profiler.stop_trace()
