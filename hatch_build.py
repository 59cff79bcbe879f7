"""Part of building the wheel, and of `pip install -e`: compiles the libraries in C if there is a C compiler."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibraries(BuildHookInterface):
    """Adds the libraries to the wheel, which then is for one platform; without a compiler, the wheel is for all."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds the wheel."""
        native = _build_native(Path(self.root))
        for library in native.LIBRARIES:
            problem = native.build(library)
            if problem:
                name = library.source.name
                self.app.display_warning(f"what {name} computes will be computed more slowly without it: {problem}")
                continue
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append(library.path.relative_to(self.root).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


def _build_native(root: Path) -> ModuleType:
    """The module that compiles, without the package, whose dependencies are not there."""
    path = root / "src" / "cntkjax" / "_build_native.py"
    spec = importlib.util.spec_from_file_location("_build_native", path)
    assert spec and spec.loader
    module = sys.modules["_build_native"] = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
