"""The drop-in name: ``cntk`` is ``cntkjax``, and ``cntk.x.y`` is ``cntkjax.x.y`` - the same module objects.

Importing this package puts ``cntkjax`` in its own place in ``sys.modules`` and installs one import hook, which answers
``cntk.x.y`` with the module ``cntkjax.x.y``. So a class is one class under both names, and a pickle names its home.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

_ALIAS, _REAL = __name__, "cntkjax"


class _AliasLoader(Loader):
    """Loads ``cntk.x`` by handing out the module that ``real`` specifies."""

    def __init__(self, real: ModuleSpec) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        importlib.import_module(_REAL)  # waits for it, if another thread imports it; the next line would not
        self.module = importlib.import_module(self.real.name)
        self.true_spec = self.module.__spec__
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        # The import machinery has just stamped the alias's spec on the module; with its own one back,
        # importlib.reload and `python -m` find its true name and file.
        module.__spec__ = self.true_spec

    def get_code(self, fullname: str) -> CodeType | None:
        """The code object that ``python -m cntk.x`` runs."""
        return self.real.loader.get_code(self.real.name)  # type: ignore[union-attr]


class _AliasFinder(MetaPathFinder):
    """Finds ``cntk.x.y`` wherever ``cntkjax.x.y`` is, folders appended to a package's ``__path__`` included."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_ALIAS + "."):
            return None
        name = _REAL + fullname.removeprefix(_ALIAS)
        # Python's import lock is held here. While another thread imports the package, which takes that lock too, only
        # the loader may wait for it.
        real = find_spec(name) if sys.modules.get(_ALIAS) is sys.modules.get(_REAL) else ModuleSpec(name, None)
        if real is None:
            return None
        spec = ModuleSpec(fullname, _AliasLoader(real), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


sys.meta_path.insert(0, _AliasFinder())  # first, as other threads may import cntk.x while cntkjax is imported here
import cntkjax  # noqa: E402

sys.modules[_ALIAS] = cntkjax
cntkjax._cntk_py = sys.modules["_cntk_py"] = cntkjax.cntk_py  # type: ignore[attr-defined]  # CNTK's compiled part
for _name, _module in list(sys.modules.items()):
    _parent, _, _child = _name.rpartition(".")
    # A function has the name of its module (default_options): were that loaded under the alias too, Python would put
    # the module into its package, in the place of the function.
    if _name.startswith(_REAL + ".") and getattr(sys.modules[_parent], _child, _module) is not _module:
        sys.modules[_ALIAS + _name.removeprefix(_REAL)] = _module
globals().update(vars(cntkjax))  # a thread that waits for this import gets this module itself, whatever takes its place
