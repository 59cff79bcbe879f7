"""Imports only go down, in the order that docs/design.md says, and close no circle."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "src").rglob("*.py")
}
TABLE = re.search(r"\n## Layers\n.*?\n\|---\|---\|\n(.*?)\n\n", (ROOT / "docs/design.md").read_text(), re.DOTALL)[1]
LAYERS = {
    name if name in ("cntk", "_cntk_py", "cntkjax") else f"cntkjax.{name}": depth
    for depth, row in enumerate(TABLE.splitlines()) for name in re.findall(r"`([\w.]+)`", row.split("|")[1])
}


def imports(module):
    """The modules that a module imports, at its top or in functions, with the line; not those for type checkers."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def walk(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                base = resolve_name("." * child.level + (child.module or ""), package)
                for alias in child.names:
                    yield base if f"{base}.{alias.name}" not in MODULES else f"{base}.{alias.name}", child.lineno
            elif isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno) for alias in child.names)
            elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                yield from walk(child)

    return {(target, line) for target, line in walk(ast.parse(path.read_text())) if target in MODULES}


IMPORTS = {module: imports(module) for module in MODULES}


def layer(module):
    """The row of the table that names the module, or the innermost package around it that is named."""
    if module in LAYERS:
        return LAYERS[module]
    parent = module.rpartition(".")[0]
    assert parent not in ("", "cntkjax"), f"docs/design.md names no layer for {module}"
    return layer(parent)


def test_every_module_imports_from_its_own_layer_or_lower_ones():
    rising = [
        f"{module} imports {target} in line {line}"
        for module, targets in IMPORTS.items() for target, line in targets if layer(target) < layer(module)
    ]
    assert not rising, "\n".join(rising)


def test_imports_close_no_circle():
    graph = defaultdict(set)
    for module, targets in IMPORTS.items():
        graph[module] = {target for target, _ in targets if target != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None
