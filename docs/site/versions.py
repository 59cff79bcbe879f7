"""The versions of the documentation that stand side by side in a folder, and which one a checkout is."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from html import escape
from pathlib import Path
from urllib.parse import quote

DEVELOPMENT = "dev"


def version_of(checkout: Path) -> str:
    """The release whose tag is checked out, otherwise "dev"; outside git, the package's version."""
    git = ["git", "-C", str(checkout)]
    if not (checkout / ".git").exists():
        return str(tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"])
    tag = subprocess.run([*git, "describe", "--tags", "--exact-match"], capture_output=True, text=True, check=False)
    return tag.stdout.strip().removeprefix("v") or DEVELOPMENT


def build_tag(checkout: Path, tag: str, output: Path, execute: str) -> None:
    """Build the documentation of a tag by its own program, in a worktree that is removed afterwards.

    Errors: CalledProcessError if there is no such tag, or if it cannot be built.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "checkout")
        subprocess.run(["git", "-C", checkout, "worktree", "add", "-q", "--detach", tree, tag], check=True)
        try:
            program = [sys.executable, tree / "docs" / "site" / "build.py"]
            subprocess.run([*program, "--output", output, "--execute", execute], check=True)
        finally:
            subprocess.run(["git", "-C", checkout, "worktree", "remove", "--force", tree], check=True)


def write_list(output: Path) -> None:
    """Write what the pages' switcher reads, and an entrance that leads to the newest release."""
    folders = sorted((p.parent for p in output.glob("*/index.html")), key=lambda p: _order(p.name), reverse=True)
    versions = [
        {"name": p.name, "pages": sorted(str(q.relative_to(p).as_posix()) for q in p.rglob("*.html"))} for p in folders
    ]
    (output / "versions.js").write_text(f"window.cntkjaxVersions = {json.dumps(versions)};\n", "utf-8")
    releases = [p.name for p in folders if p.name != DEVELOPMENT]
    newest = quote((releases or [DEVELOPMENT])[0])
    items = "".join(f'<li><a href="{quote(p.name)}/index.html">cntkjax {escape(p.name)}</a></li>' for p in folders)
    (output / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>cntkjax: documentation</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html"><h1>cntkjax</h1><ul>{items}</ul></html>',
        "utf-8",
    )


def _order(name: str) -> tuple[bool, list[int], str]:
    """Releases by their numbers, the development version before them."""
    return name == DEVELOPMENT, [int(part) for part in name.split(".") if part.isdigit()], name
