"""The pages whose Python is executed: when the site is built, in the tests, and by `make check-wheel`.

`python docs/site/executed.py PAGE` runs the code of a page in the working directory.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "axes", "debugging", "interop", "keras", "learning_rates", "onnx", "own_code", "serving", "sgd_block", "training",
)
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES)]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))  # notebooks, which the site executes as such

_BLOCK = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```", re.M | re.S)


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python of a page: the number of lines before each block, and its code."""
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in _BLOCK.finditer(text)]


def requirements(text: str) -> list[str]:
    """What a page says is to be installed with the package: the rest of its line `pip install 'cntkjax[...]' ...`.

    >>> requirements("Run `pip install 'cntkjax[onnx]' onnxruntime` first.")
    ['cntkjax[onnx]', 'onnxruntime']
    """
    lines = [shlex.split(line) for line in re.findall(r"pip install ([^`\n&]*)", text)]
    named = [name for line in lines if any("cntkjax[" in name for name in line) for name in line]
    return list(dict.fromkeys(name for name in named if not name.startswith("-")))


def run(page: Path, names: dict[str, Any]) -> None:
    """Execute a page from top to bottom; `%%writefile NAME` at the beginning of a block writes the rest to a file."""
    for line, code in blocks(page.read_text("utf-8")):
        magic, _, rest = code.partition("\n")
        if magic.startswith("%%writefile "):
            Path(magic.split()[1]).write_text(rest, "utf-8")
        else:
            exec(compile("\n" * line + code, str(page), "exec"), names)


if __name__ == "__main__":
    run(Path(sys.argv[1]), {"__name__": "__main__"})
