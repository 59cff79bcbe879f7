"""Builds the documentation: `make docs`. The result, in build/docs, needs no network.

The pages of docs/, the tutorials, the examples and a reference of all public names are put together in
build/docs-source, and Sphinx makes a site of them. Code in the pages and tutorials is executed; an error, a warning or
a dead link ends the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE, SOURCE, OUTPUT = Path(__file__).parent, ROOT / "build" / "docs-source", ROOT / "build" / "docs"
sys.path[:0] = [str(SITE), str(ROOT / "src")]

KERNEL = "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n"
OTHERS = {
    "README.md": "project/readme.md", "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md", "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "benchmarks/README.md": "project/benchmarks.md", "examples/README.md": "examples/index.md",
}


def pages() -> dict[Path, Path]:
    """The page of each file of the repository that has one, relative to the top of the site."""
    result = {ROOT / file: Path(page) for file, page in OTHERS.items()}
    result |= {file: file.relative_to(ROOT / "docs") for file in (ROOT / "docs").glob("*.md")}
    result |= {file: file.relative_to(ROOT / "docs") for file in (ROOT / "docs" / "tutorials").glob("*.md")}
    return result | {file: Path("examples", f"{file.stem}.md") for file in (ROOT / "examples").glob("*.py")}


def assemble() -> None:
    """Put together all pages below build/docs-source."""
    import executed
    import reference

    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(SITE, SOURCE, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    if (ROOT / "docs" / "images").exists():
        shutil.copytree(ROOT / "docs" / "images", SOURCE / "images")
    page_of = pages()
    for file, page in page_of.items():
        text = file.read_text("utf-8")
        text = f"# {file.name}\n\n```python\n{text}```\n" if file.suffix == ".py" else linked(text, file, page_of)
        if file in executed.PAGES:
            text = as_notebook(text)
        (SOURCE / page).parent.mkdir(exist_ok=True)
        (SOURCE / page).write_text(text, "utf-8")
    (SOURCE / "reference").mkdir()
    reference.write(SOURCE / "reference", ROOT / "docs" / "compatibility.md")


def linked(text: str, file: Path, page_of: dict[Path, Path]) -> str:
    """The text of a Markdown file whose links lead to pages; a file without a page is named, but no link.

    Errors: ValueError for a link to a file that is not there.
    """
    folder = page_of[file].parent

    def replace(match: re.Match[str]) -> str:
        target = (file.parent / match[3]).resolve()
        if target in page_of:
            return f"{match[1]}[{match[2]}]({os.path.relpath(page_of[target], folder)}{match[4] or ''})"
        if match[1]:  # a picture
            return f"{match[1]}[{match[2]}]({os.path.relpath(Path('images', target.name), folder)})"
        if not target.exists():
            raise ValueError(f"{file}: there is no {match[3]}")
        return match[2]

    return re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)", replace, text)


def as_notebook(text: str) -> str:
    """A page whose Python is executed, with its output, when the site is built."""
    return KERNEL + re.sub(r"^```python$", "```{code-cell} ipython3", text, flags=re.M)


def build(version: str, execute: str, output: Path) -> None:
    """Make the site of a version."""
    environment = os.environ | {
        "CNTKJAX_DOCS_VERSION": version,
        "CNTKJAX_DOCS_EXECUTE": execute,
        "CNTKJAX_DOCS_CACHE": str(ROOT / "build" / "docs-cache"),
        "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # a message of ipykernel on each page
    }
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-b", "html"]
    folders = ["-c", SITE, "-d", ROOT / "build" / "docs-doctrees", SOURCE, output / version]
    subprocess.run([*sphinx, *folders], check=True, env=environment)
    print(f"{output / version / 'index.html'}")


def main() -> None:
    """Assemble and build."""
    import versions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--execute", choices=("cache", "force", "off"), default="cache",
        help="which code to run: what has changed, all or none",
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder of all versions (default: build/docs)")
    parser.add_argument("--tag", nargs="*", default=[], help="releases to build besides this checkout, by git tag")
    options = parser.parse_args()
    for tag in options.tag:
        versions.build_tag(ROOT, tag, options.output, options.execute)
    assemble()
    build(versions.version_of(ROOT), options.execute, options.output)
    versions.write_list(options.output)


if __name__ == "__main__":
    main()
