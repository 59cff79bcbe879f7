"""Networks that NDLNetworkBuilder describes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ...configuration import Place, Text, inside
from ..building import network_of
from ..language.networks import Description, Scope, deep_recursion, expanded, include_file
from ..network import ROLES, Network
from ..nodes import NetNode
from .evaluation import Frame, Run, as_node
from .names import SPECIAL
from .reader import NdlTerm, Reader, Section

_FILES = re.compile(r"((?:networkDescription|ndlMacros)[ \t]*=[ \t]*)([^\s\"'\[{;,]+)", re.IGNORECASE)
# names of files, which get quotes: the configuration language does not ask for them


def build_network(
    text: Text, scope: Scope | Mapping[str, Text], *, precision: str = "float", seed_offset: int = 0,
) -> Network:
    """The network that an NDLNetworkBuilder block describes.

    `text`: the inside of the block: ``networkDescription=FILE`` and ``ndlMacros=A+B``, or sections, ``load`` and
    ``run``. `scope`: values of the configuration around it. `seed_offset`: a number added to the seeds of parameters.

    Errors: ConfigError with the place, and the macros that led there.
    """
    with deep_recursion():
        reader = Reader()
        block = reader.read(replace(text, content=_FILES.sub(r'\1"\2"', text.content)))
        read_macros(reader, block, scope)
        section = _read_description(reader, block, scope)
        description = Description(scope, precision, seed_offset)
        chosen = chosen_statements(section, partial(_around, reader, scope))
        frame = Frame("", chosen.statements, chosen.names)
        run = Run(reader.macros, description.evaluator)
        run.all(frame)
        return _finished(run, frame, precision)


def _setting(block: Section | None, scope: Scope | Mapping[str, Text], name: str) -> NdlTerm | None:
    """A setting of the block, or of the configuration around it."""
    if block is not None and name.lower() in block.statements:
        return block.statements[name.lower()]
    outer = scope.get(name)
    return None if outer is None else NdlTerm(outer.content.strip().strip("\"'"), "string", Place(outer, 0))


def read_macros(reader: Reader, block: Section | None, scope: Scope | Mapping[str, Text]) -> None:
    """Read the files of macros."""
    setting = _setting(block, scope, "ndlMacros")
    if setting is not None:
        for path in setting.text.split("+"):
            reader.read(expanded(include_file(path.strip(), setting.place), scope))


def _read_description(reader: Reader, block: Section, scope: Scope | Mapping[str, Text]) -> Section:
    """The description: the file of the block, or the block itself."""
    setting = block.statements.get("networkdescription")
    if setting is None:
        return block
    section = reader.read(expanded(include_file(setting.text, setting.place), scope))
    for name in ("load", "run"):
        if name in block.statements:
            section.statements[name] = block.statements[name]
    return section


def chosen_statements(section: Section, other: Callable[[str], Section | None] = lambda name: None) -> Section:
    """The statements to run: those of the sections of ``load``, then of ``run``, or all that are in no section.

    These two are sections, or name some: of this text, or those that `other` returns.
    """
    statements: dict[str, NdlTerm] = {}
    names: dict[str, str] = {}
    for key in ("load", "run"):
        parts = [section.sections[key]] if key in section.sections else []
        for word in _words(section.statements[key]) if key in section.statements else ():
            part = section.sections.get(word.text.lower()) or other(word.text)
            if part is None:
                known = ", ".join(section.sections) or "none"
                raise word.place.error(f"there is no section '{word.text}'; those of this text: {known}")
            parts.append(part)
        for part in parts:
            statements |= part.statements
            names |= part.names
    if "run" not in section.statements and "run" not in section.sections:
        settings = ("load", "ndlmacros", "networkdescription", "randomseedoffset")
        statements |= {key: value for key, value in section.statements.items() if key not in settings}
        names |= section.names
    return Section(statements, names)


def _words(expression: NdlTerm) -> tuple[NdlTerm, ...]:
    return (expression.arguments or ()) if expression.kind == "list" else (expression,)


def _around(reader: Reader, scope: Scope | Mapping[str, Text], name: str) -> Section | None:
    """The section of a name in the configuration around the block."""
    text = scope.get(name)
    return None if text is None or text.content[:1] not in ("[", "{") else reader.read(inside(text))


def _finished(run: Run, frame: Frame, precision: str) -> Network:
    """The network of a frame's variables."""
    roles: dict[str, list[NetNode]] = {role: [] for role in ROLES}
    for key, role in SPECIAL.items():
        if key in frame.statements:
            for word in _words(frame.statements[key]):
                node = as_node(run.value(frame, word, frame.names[key]))
                if not isinstance(node, NetNode):
                    raise run.unknown(word.text, word.place, frame)
                if node not in roles[role]:
                    roles[role].append(node)
    nodes = [node for each in (frame, *run.uses) for name in each.statements if (node := each.node(name)) is not None]
    return network_of({node.name: node for node in nodes}, roles, precision)


__all__ = ["build_network", "chosen_statements", "read_macros"]
