"""The pages of the reference: one for each public module of `cntk`, written from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from cntkjax.graph.function import Node
from cntkjax.variables import Record

# An object is described on the page of the first module that has it, and linked on the others.
MODULES = """
    default_options device axis variables core tensor initializer ops.functions ops ops.sequence random losses metrics
    layers.typing layers.blocks layers.layers layers.higher_order_layers layers.sequence layers.models.attention
    layers.models layers learners io io.transforms io.deserializer train.trainer train.training_session
    train.distributed train eval.evaluator eval logging.graph logging.progress_print logging debugging.debug
    debugging.profiler debugging sample_installer misc.converter misc.optimized_rnnstack_converter misc
    contrib.netopt.quantization contrib.netopt.factorization contrib.deeprl.agent contrib.crosstalkcaffe contrib
"""
EXTENSIONS = ("cntkjax.interop", "cntkjax.sgd")  # beyond CNTK
TOP = "cntkjax"
SECTIONS = re.compile(r"^(Args|Shapes?|Units|Errors|Returns|Source|Example|Examples|Note):\s*(.*)$")
INLINE = re.compile(r"(``.+?``|`[^`]+`)")
NOT_SHOWN = re.compile(r"<.*object at 0x")


def write(folder: Path, compatibility: Path) -> None:
    """Write all pages and their index."""
    notes = differences(compatibility.read_text("utf-8"))
    homes: Homes = {}
    titles = ["cntk"]
    for name in module_names():
        module = import_module(name)
        (folder / f"{name}.rst").write_text(page(name, module, homes, notes), "utf-8")
        titles.append(name)
    entries = "\n".join(f"   {name}" for name in sorted(set(titles)))
    text = "Every public name, by module. ``import cntk as C`` has those of :doc:`cntk` as ``C.name``."
    toctree = f".. toctree::\n   :maxdepth: 1\n\n{entries}\n"
    (folder / "index.rst").write_text(f"{heading('Reference', '=')}{text}\n\n{toctree}", "utf-8")


def module_names() -> list[str]:
    """The modules that have a page, in the order in which they claim objects."""
    return [*(f"cntk.{name}" for name in MODULES.split()), *filter(find_spec, EXTENSIONS), "cntk"]


Homes: TypeAlias = dict[int, str]
"""Where objects are described, by their id."""


def page(name: str, module: ModuleType, homes: Homes, notes: dict[str, list[str]]) -> str:
    """The page of a module, whose objects are added to `homes`."""
    described, linked = [], []
    for member, value in public_names(module, homes):
        path = f"{name}.{member}"
        if is_object(value) and id(value) in homes:
            linked.append(f"* ``{member}``: :py:obj:`{homes[id(value)]}`")
            continue
        if is_object(value):
            homes[id(value)] = path
        described.append(description(path, value, notes, homes))
    also = f"{heading('Also available here', '-')}" + "\n".join(linked) + "\n" if linked else ""
    summary = structured(inspect.getdoc(module) or "")
    return f"{heading(name, '=')}.. py:module:: {name}\n\n{summary}\n\n" + "\n".join(described) + "\n" + also


def heading(text: str, line: str) -> str:
    """A title with its underline."""
    return f"{text}\n{line * len(text)}\n\n"


def public_names(module: ModuleType, homes: Homes) -> Iterator[tuple[str, object]]:
    """Names of a module that are its own or re-exported from this package, in alphabetic order.

    Names of other packages are left out. A module without `__all__` also has names that it only uses itself: what is
    neither defined below it nor described on another page.
    """
    for name in sorted(set(getattr(module, "__all__", vars(module))), key=str.lower):
        value = getattr(module, name, None)
        if name.startswith("_") or (isinstance(value, ModuleType) and not callable(value)):  # cntk.sgd is a package
            continue
        home = (getattr(value, "__module__", "") if is_object(value) else "") or TOP
        if home.partition(".")[0] not in (TOP, "cntk", "_cntk_py"):
            continue
        is_own = is_object(value) and f"{home}.".startswith(f"{module.__name__}.") and module.__name__ != TOP
        if hasattr(module, "__all__") or is_own or id(value) in homes or is_constant(name, value):
            yield name, value


def is_constant(name: str, value: object) -> bool:
    """True for capitalized numbers and texts, and for functions and types of the graph; not for what Python leaves."""
    is_setting = isinstance(value, int | float | str) and name[0].isupper() and name != "TYPE_CHECKING"
    return is_setting or isinstance(value, Node | Record | ModuleType)


def is_object(value: object) -> bool:
    """True for classes and functions, which are described once."""
    return inspect.isclass(value) or inspect.isroutine(value)


def description(path: str, value: object, notes: dict[str, list[str]], homes: Homes) -> str:
    """A function, class or constant."""
    name = path.rsplit(".", 1)[-1]
    if inspect.isclass(value):
        members = "\n".join(member_descriptions(value, notes, path, homes))
        return directive("class", f"{name}{signature(value)}", inspect.getdoc(value), notes, path, members)
    if callable(value):
        return directive("function", f"{name}{signature(value)}", inspect.getdoc(value), notes, path)
    text = repr(value)
    constant = "" if NOT_SHOWN.search(text) or len(text) > 80 else f"``{text}``"
    return directive("data", name, constant, notes, path)


def member_descriptions(
    cls: type, notes: dict[str, list[str]], path: str, homes: Homes
) -> Iterator[str]:
    """The public members of a class and of its private bases and mixins, and names inherited from other bases."""
    seen: set[str] = set()
    for base in cls.__mro__:
        names = {name: value for name, value in vars(base).items() if not name.startswith("_") and name not in seen}
        if not base.__module__.startswith("cntk") or not names:
            continue
        seen |= set(names)
        is_public = id(base) in homes and not base.__name__.endswith("Mixin") and ".graph." not in base.__module__
        if base is not cls and is_public:
            yield f"Inherited from {base.__name__}: {', '.join(f'``{name}``' for name in sorted(names))}"
            continue
        for name, value in sorted(names.items()):
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            place = f"{path}.{name}"
            if inspect.isroutine(function):
                yield directive("method", f"{name}{signature(function)}", inspect.getdoc(function), notes, place)
            else:
                doc = None if isinstance(value, str | int) else inspect.getdoc(value)
                yield directive("attribute", name, doc, notes, place)


def signature(value: Callable[..., object] | object) -> str:
    """Parameters with defaults; types where they are short."""
    try:
        parameters = list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return "(...)"
    texts, starred = [], False
    for parameter in parameters:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        default = "" if parameter.default is parameter.empty else f"={default_text(parameter.default)}"
        texts.append(f"{stars}{parameter.name}{default}")
    return f"({', '.join(texts)})"


def default_text(default: object) -> str:
    """A default value, if it says anything."""
    if inspect.isclass(default) or inspect.isroutine(default):
        return default.__name__
    text = repr(default)
    return "..." if NOT_SHOWN.search(text) or len(text) > 40 or "<" in text else text


def directive(
    kind: str, header: str, doc: str | None, notes: dict[str, list[str]], path: str, members: str = ""
) -> str:
    """A directive of the Python domain with a docstring, and CNTK's differences of that name."""
    body = structured(doc or "")
    for note in notes.get(path.rsplit(".", 1)[-1], []):
        body += f"\n\n.. admonition:: In CNTK 2.7\n\n   {note}\n"
    content = textwrap.indent("\n\n".join(part for part in (body, members) if part), "   ")
    return f".. py:{kind}:: {header}\n\n{content}\n"


def structured(doc: str) -> str:
    """A docstring as reStructuredText: sections become fields, examples code, and everything else plain text."""
    blocks, lines = [], doc.expandtabs().splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        section = SECTIONS.match(line)
        end = at + 1
        if line.startswith(">>> "):
            while end < len(lines) and lines[end].strip():
                end += 1
            blocks.append(code(lines[at:end]))
        elif section:
            while end < len(lines) and (lines[end].startswith((" ", "\t")) or not lines[end].strip()):
                end += 1
            blocks.append(section_text(section[1], section[2], lines[at + 1 : end]))
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            blocks.append(table(lines[at:end]))
        elif re.match(r"[-*] |\s", line) and line.strip():
            while end < len(lines) and lines[end].strip() and not SECTIONS.match(lines[end]):
                end += 1
            blocks.append("\n".join(f"| {plain(text)}" for text in lines[at:end]))
        elif line.strip():
            while end < len(lines) and lines[end].strip() and not re.match(f">>>|{SECTIONS.pattern}", lines[end]):
                end += 1
            blocks.append(plain(" ".join(lines[at:end])))
        at = end
    return "\n\n".join(blocks)


def section_text(title: str, first: str, rest: list[str]) -> str:
    """A section of a docstring: an example as code, arguments as a list, others as a field."""
    body = textwrap.dedent("\n".join(rest)).strip("\n").splitlines()
    if any(line.lstrip().startswith(">>>") for line in body):
        return code(body)
    if title == "Args":
        entries = re.split(r"\n(?=\*{0,2}[\w, ]+(?: \([^)]*\))?:)", "\n".join(body))
        pairs = (entry.partition(":") for entry in entries)
        return "\n".join(
            f":param {name.strip()}: {plain(' '.join(text.split()))}".replace("*", r"\*")
            for names, _, text in pairs for name in re.sub(r"\(.*?\)", "", names).split(",")
        )
    return f":{title}: {plain(' '.join([first, *(line.strip() for line in body)]))}"


def table(rows: list[str]) -> str:
    """A table of Markdown as one of reStructuredText; its second row is a line."""
    cells = [[plain(cell.strip()) for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:])]
    entries = "\n".join(f"   * - {row[0]}\n" + "\n".join(f"     - {cell}" for cell in row[1:]) for row in cells)
    return f".. list-table::\n   :header-rows: 1\n\n{entries}"


def code(lines: Iterable[str]) -> str:
    """Lines of an interactive session."""
    return ".. code-block:: pycon\n\n" + textwrap.indent("\n".join(lines), "   ")


def plain(text: str) -> str:
    """Text in which only code in backticks is markup."""
    parts = INLINE.split(re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text))
    return "".join(
        f"``{part.strip('`')}``" + (r"\ " if i + 1 < len(parts) and parts[i + 1][:1].isalnum() else "")
        if i % 2 and part.strip("` ") else re.sub(r"([*_|\\`])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def differences(page_text: str) -> dict[str, list[str]]:
    """The rows of docs/compatibility.md by the names that their first cell has in backticks."""
    notes: dict[str, list[str]] = {}
    for row in re.findall(r"^\| (.*) \|$", page_text, re.M):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        if len(cells) < 3:
            continue
        what, cntk, here, *why = cells
        reason = f" ({plain(why[0])})" if why and why[0] else ""
        note = f"{plain(what)}: {plain(cntk)}. **Here:** {plain(here)}{reason}"
        for name in dict.fromkeys(re.findall(r"`(?:[\w.]+\.)?(\w+)(?:\(.*?\))?`", what)):
            notes.setdefault(name, []).append(note)
    return notes
