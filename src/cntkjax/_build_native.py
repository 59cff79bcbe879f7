"""Compiles the libraries in C, for `python -P src/cntkjax/_build_native.py` and for the wheel's build hook.

The results are ordinary shared libraries, loaded with ctypes: they fit all versions of Python, and need none of its
headers. Without a C compiler nothing is built, and NumPy and XLA are used. Imports nothing of the package.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE, _SUFFIX = Path(__file__).parent, ".dll" if sys.platform == "win32" else ".so"


@dataclass(frozen=True)
class Library:
    """A shared library and how it is compiled."""

    source: Path
    path: Path
    flags: Sequence[str]


# Sums and products are rounded one by one, as NumPy's are.
CTF = Library(
    _PACKAGE / "io" / "ctf.c", _PACKAGE / "io" / f"libctf{_SUFFIX}", ["-std=c99", "-ffp-contract=off"]
)

MERSENNE = Library(
    _PACKAGE / "graph" / "mersenne.c", _PACKAGE / "graph" / f"libmersenne{_SUFFIX}", ["-std=c99"]
)


def _steps(name: str, *flags: str) -> Library:
    folder = _PACKAGE / "engine" / "native"
    common = ["-std=c11", "-ffp-contract=fast", "-pthread"]  # each product is added before it is rounded
    return Library(folder / "steps.c", folder / f"lib{name}{_SUFFIX}", [*common, *flags, "-lm"])


# One for each set of vector instructions, the widest first. Windows has no POSIX threads.
STEPS: Sequence[Library] = () if sys.platform == "win32" else (
    _steps("steps_avx512", "-mavx512f", "-mavx512dq", "-mavx2", "-mfma"), _steps("steps_avx2", "-mavx2", "-mfma"),
) if platform.machine() in ("x86_64", "AMD64") else (_steps("steps"),)


def _convolutions(name: str, *flags: str) -> Library:
    folder = _PACKAGE / "engine" / "convolutions"
    common = ["-std=c11", "-ffp-contract=fast", "-pthread"]
    return Library(folder / "convolution.c", folder / f"lib{name}{_SUFFIX}", [*common, *flags])


# As above. With shorter vectors nothing is gained over XLA's own.
CONVOLUTIONS: Sequence[Library] = (
    _convolutions("convolution_avx512", "-mavx512f", "-mavx2", "-mfma"),
    _convolutions("convolution_avx2", "-mavx2", "-mfma"),
) if sys.platform != "win32" and platform.machine() in ("x86_64", "AMD64") else ()
LIBRARIES: Sequence[Library] = (CTF, MERSENNE, *STEPS, *CONVOLUTIONS)


def compiler() -> list[str] | None:
    """The command of the C compiler (the environment variable CC, or else cc, gcc or clang); None if there is none."""
    command = shlex.split(os.environ.get("CC", ""))
    names = [command[0]] if command else ["cc", "gcc", "clang"]
    path = next(filter(None, map(shutil.which, names)), None)
    return [path, *command[1:]] if path else None


def build(library: Library, path: Path | None = None) -> str | None:
    """Compile a library, maybe to another path; why that was not possible, or None.

    Processes that use an older one are not disturbed.
    """
    command, path = compiler(), path or library.path
    if command is None:
        return "there is no C compiler"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        result = Path(folder) / path.name
        flags = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", *library.flags]
        try:
            subprocess.run([*command, library.source, *flags, "-o", result], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return getattr(error, "stderr", "") or str(error)
        result.replace(path)
    return None


if __name__ == "__main__":
    sys.exit("\n".join(filter(None, map(build, LIBRARIES))) or None)
