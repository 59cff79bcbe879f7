"""The libraries that CNTK's reader of images is linked to, as far as reading BMP files takes them.

libjpeg.so.8, libpng12.so.0, libtiff.so.5 and libjasper.so.1 are in no present distribution. BMP files need none of
their functions, only that the symbols exist; the other libraries are next to CNTK.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

CNTK = "import os, cntk; print(os.path.join(os.path.dirname(cntk.__file__), 'libs'))"
# The name of each, the version of its symbols, and what they begin with.
STANDINS = (
    ("libjpeg.so.8", "LIBJPEG_8.0", "jpeg_"), ("libpng12.so.0", "PNG12_0", "png_"),
    ("libtiff.so.5", "LIBTIFF_4.0", "TIFF"), ("libjasper.so.1", "", "jas_"),
)


@cache
def search_path(oracle: str) -> str:
    """Folders for LD_LIBRARY_PATH; empty without a C compiler. `oracle`: the command that runs CNTK's Python."""
    libraries = Path(subprocess.check_output([oracle, "-c", CNTK], text=True).splitlines()[-1])
    try:
        command = ["nm", "-D", "--undefined-only", *map(str, libraries.glob("libopencv_imgcodecs*"))]
        lines = subprocess.check_output(command, text=True).splitlines()
        symbols = [line.split()[-1].partition("@")[0] for line in lines]
        folder = mkdtemp(prefix="cntk-images-")
        for name, version, beginning in STANDINS:
            _write(Path(folder, name), version, [s for s in symbols if s.lstrip("_").startswith(beginning)])
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{folder}:{libraries}"


def _write(path: Path, version: str, symbols: list[str]) -> None:
    """A library of functions that end the process."""
    source, versions = path.with_suffix(".c"), path.with_suffix(".map")
    source.write_text("".join(f"void {s}(void) {{ __builtin_trap(); }}\n" for s in symbols))
    versions.write_text(f"{version} {{ global: *; }};\n")
    options = [f"-Wl,--version-script={versions}"] if version else []
    subprocess.check_call(["cc", "-w", "-shared", "-fPIC", "-o", path, source, f"-Wl,-soname,{path.name}", *options])


__all__ = ["search_path"]
