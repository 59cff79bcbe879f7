"""Compiles the parser of text files: `python src/cntkjax/io/_build_native.py`, and the wheel's build hook.

The result is an ordinary shared library, loaded with ctypes: it fits all versions of Python, and needs none of Python's
headers. Without a C compiler nothing is built, and the parser in NumPy is used. Imports nothing of the package.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("ctf.c")
LIBRARY = SOURCE.with_name("libctf.dll" if sys.platform == "win32" else "libctf.so")
# Sums and products are rounded one by one, as NumPy's are.
_FLAGS = ["-std=c99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off"]


def compiler() -> list[str] | None:
    """The command of the C compiler (the environment variable CC, or else cc, gcc or clang); None if there is none."""
    command = shlex.split(os.environ.get("CC", ""))
    names = [command[0]] if command else ["cc", "gcc", "clang"]
    path = next(filter(None, map(shutil.which, names)), None)
    return [path, *command[1:]] if path else None


def build(library: Path = LIBRARY) -> str | None:
    """Compile the library; why that was not possible, or None. Processes that use an older one are not disturbed."""
    command = compiler()
    if command is None:
        return "there is no C compiler"
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        result = Path(folder) / library.name
        try:
            subprocess.run([*command, *_FLAGS, "-o", result, SOURCE], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return getattr(error, "stderr", "") or str(error)
        result.replace(library)
    return None


if __name__ == "__main__":
    sys.exit(build())
