"""CNTK's examples and tutorials, brought to the disk."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path


def default_sample_url() -> str:
    """Where the samples are: CNTK's own place for them is gone, its repository has them too."""
    return "https://github.com/microsoft/CNTK/archive/refs/tags/v2.7.zip"


def default_sample_dir() -> str:
    """The folder that takes them.

    >>> default_sample_dir()
    'CNTK-Samples-2-7'
    """
    return "CNTK-Samples-2-7"


def install_samples(
    url: str | None = None, directory: str | os.PathLike[str] | None = None, quiet: bool = False
) -> None:
    """Download an archive of samples and unpack it.

    `url`: of a zip file, by default that of CNTK 2.7; `directory`: a new or empty folder, by default
    'CNTK-Samples-2-7' in the current one. Prints what it does unless `quiet`.

    Errors: ValueError if there are files in the folder; what urllib and zipfile raise for a bad address or archive.
    """
    url, target = url or default_sample_url(), Path(directory or default_sample_dir())
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"install_samples: '{target}' is there already: name a new or an empty folder")
    if not quiet:
        print(f"install_samples: {url} -> {target.resolve()}")
    from urllib.request import urlopen  # takes 5 ms, which `import cntk` need not

    with urlopen(url) as response:
        archive = zipfile.ZipFile(io.BytesIO(response.read()))
    archive.extractall(target)  # which keeps names like '../x' inside


__all__ = ["default_sample_dir", "default_sample_url", "install_samples"]
