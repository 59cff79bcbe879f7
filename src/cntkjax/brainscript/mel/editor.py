"""The editing of models by commands of MEL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...configuration import ConfigError, Place, Text
from ..language.editing import copied_leaf, learns, loaded
from ..language.evaluator import did_you_mean
from ..language.networks import Description, Scope, expanded, include_file
from ..models import function_of
from ..ndl.building import chosen_statements, read_macros
from ..ndl.evaluation import Frame, Run
from ..ndl.reader import Reader, Section
from ..network import ROLES, Network
from ..nodes import NetNode, reachable
from ..writing import new_file, write_lines
from .commands import EditLine, commands, plain
from .models import NamedModel, described

_PROPERTIES = {
    "feature": "feature", "label": "label", "finalcriterion": "criterion", "criteria": "criterion",
    "criterion": "criterion", "evaluation": "evaluation", "eval": "evaluation", "output": "output",
    **dict.fromkeys(("computegradient", "needsgradient", "needgradient", "learningratemultiplier"), ""),
}  # roles; the last ones are of parameters


class Editor:
    """The models of a script, and its state."""

    def __init__(self, text: Text, scope: Scope | Mapping[str, Text], precision: str) -> None:
        self.text = text
        self.scope = scope
        self.reader = Reader()
        read_macros(self.reader, None, scope)
        self.evaluator = Description(scope, precision, 0).evaluator
        self.models: dict[str, NamedModel] = {}
        self.default, self.is_chosen = "", False  # the default model; whether SetDefaultModel named it
        self.frames: dict[str, Frame] = {}

    def run(self) -> None:
        """Run the statements: commands one by one, what lies between them as NDL."""
        content, end = self.text.content, 0
        for command, begin, after in commands(self.text, _PLAIN):
            self.describe(end, begin)
            function = _PLAIN.get(plain(command.name))
            if function is None:
                raise command.error(f"unknown command{did_you_mean(command.name, _COMMANDS)}")
            function(self, command)
            end = after
        self.describe(end, len(content))

    def describe(self, begin: int, end: int) -> None:
        """Add the nodes that a part of the script describes in NDL to the default model."""
        content = re.sub(r"[^\n]", " ", self.text.content[:begin]) + self.text.content[begin:end]
        section = self.reader.read(Text(self.text.name, content, self.text.origin))
        for name, snippet in section.sections.items():
            self.enter(name, NamedModel())
            self.extend(name, snippet)
        if section.statements:
            self.model_at(Place(self.text, begin))
            self.extend(self.default, section)

    def extend(self, name: str, section: Section) -> None:
        """Add the nodes of statements to a model."""
        model, frame = self.models[name.lower()], self.frames.setdefault(name.lower(), Frame("", {}, {}))
        others = {key: value for key, value in frame.values.items() if not isinstance(value, NetNode)}
        frame.values = others | {name.lower(): node for name, node in model.nodes.items()}  # as they are called now
        frame.statements, frame.names = section.statements, section.names
        run = Run(self.reader.macros, self.evaluator)
        run.all(frame)
        for each in (frame, *run.uses):
            for name in each.statements:
                self.add(model, each.node(name))

    def add(self, model: NamedModel, root: NetNode | None) -> None:
        """Add a new node and what it depends on."""
        known = {id(node) for node in model.nodes.values()}
        for node in reachable([root] if root is not None else []):
            if id(node) not in known:
                model.nodes[node.name] = node

    def model_at(self, place: Place) -> NamedModel:
        if self.default not in self.models:
            raise place.error("there is no model here: begin with m = LoadModel(\"file\")")
        return self.models[self.default]

    # Names

    def find(self, pattern: str, command: EditLine) -> dict[str, NetNode]:
        """The nodes whose names match a pattern with ``*``, in any case; at least one."""
        return self.matching(*self.in_model(pattern, command), command)

    def matching(self, model: NamedModel, pattern: str, command: EditLine) -> dict[str, NetNode]:
        """The nodes of a model whose names match a pattern; at least one."""
        expression = re.compile(re.escape(pattern).replace(r"\*", ".*"), re.IGNORECASE)
        nodes = {name: node for name, node in model.nodes.items() if expression.fullmatch(name)}
        if not nodes:
            raise command.error(f"no node is called '{pattern}'{did_you_mean(pattern, model.nodes)}")
        return nodes

    def in_model(self, pattern: str, command: EditLine) -> tuple[NamedModel, str]:
        """The model that a pattern begins with, else the default one, and the rest: all nodes if there is none."""
        model = self.model_at(command.place)
        name, _, rest = pattern.partition(".")
        if name.lower() in self.models and pattern not in model.nodes:
            return self.models[name.lower()], rest or "*"
        return model, pattern

    def one(self, name: str, command: EditLine) -> NetNode:
        """The one node of a name."""
        nodes = self.find(name, command)
        if len(nodes) > 1:
            raise command.error(f"'{name}' is {len(nodes)} nodes, {', '.join(list(nodes)[:4])}, ...: name one")
        return next(iter(nodes.values()))

    def named_model(self, name: str, command: EditLine) -> NamedModel:
        if name.lower() not in self.models:
            raise command.error(f"there is no model '{name}'{did_you_mean(name, self.models)}")
        return self.models[name.lower()]

    # Commands

    def create(self, command: EditLine) -> None:
        self.enter(command.result or command.argument(0), NamedModel())

    def load(self, command: EditLine) -> None:
        path = command.argument(0 if command.result else 1)
        model = loaded(path, command.error)
        roles = {role: [model.nodes[name] for name in model.roles[role]] for role in ROLES}
        self.enter(command.result or command.argument(0), NamedModel(dict(model.nodes), roles))

    def load_snippet(self, command: EditLine) -> None:
        """Add what a file of NDL describes to a model: one section of it, or what it runs."""
        name, path, section = command.argument(0), command.argument(1), command.options.get("section", "")
        if name.lower() not in self.models:
            self.enter(name, NamedModel())
        description = self.reader.read(expanded(include_file(path, command.place), self.scope))
        if section and section.lower() not in description.sections:
            raise command.error(f"there is no section '{section}'{did_you_mean(section, description.sections)}")
        self.extend(name, description.sections[section.lower()] if section else chosen_statements(description))

    def enter(self, name: str, model: NamedModel) -> None:
        self.models[name.lower()] = model
        self.frames.pop(name.lower(), None)
        if not self.is_chosen:
            self.default = name.lower()

    def set_default(self, command: EditLine) -> None:
        self.named_model(command.argument(0), command)
        self.default, self.is_chosen = command.argument(0).lower(), True

    def unload(self, command: EditLine) -> None:
        self.named_model(command.argument(0), command)
        del self.models[command.argument(0).lower()]

    def save(self, command: EditLine) -> None:
        target = new_file(command.argument(max(len(command.arguments) - 1, 0)))
        is_named = len(command.arguments) > 1
        chosen = self.named_model(command.argument(0), command) if is_named else self.model_at(command.place)
        try:
            function_of(chosen.network()).save(str(target))
        except ConfigError as error:
            raise command.error(str(error)) from error

    def dump(self, command: EditLine) -> None:
        model = self.named_model(command.argument(0), command)
        self.write(model.network(), list(model.nodes), command)

    def dump_nodes(self, command: EditLine) -> None:
        model, pattern = self.in_model(command.argument(0), command)
        self.write(model.network(), list(self.matching(model, pattern, command)), command)

    def write(self, network: Network, names: list[str], command: EditLine) -> None:
        """Write nodes as text, with values if ``includeData``."""
        data = command.options.get("includedata", "false").lower() == "true"
        lines = (line for name in sorted(names) for line in described(network, name, data))
        write_lines(command.argument(1), lines)

    def set_input(self, command: EditLine) -> None:
        at = command.number(1)
        new = self.one(command.argument(2), command)
        for name, node in self.find(command.argument(0), command).items():
            inputs = node.operands()
            if at not in range(len(inputs)):
                raise command.error(f"'{name}' has {len(inputs)} inputs, counted from 0; there is no input {at:g}")
            inputs[int(at)] = new

    def set_inputs(self, command: EditLine) -> None:
        node = self.one(command.argument(0), command)
        inputs = [self.one(name, command) for name in command.arguments[1:]]
        if len(inputs) != len(node.operands()):
            raise command.error(f"'{node.name}' has {len(node.operands())} inputs, {len(inputs)} are given")
        node.operands()[:] = inputs

    def set_property(self, command: EditLine, of_subtree: bool = False) -> None:
        name, value = command.argument(1).lower(), command.argument(2).lower() in ("true", "1", "t", "yes")
        targets = self.find(command.argument(0), command)
        if of_subtree:
            targets = {node.name: node for node in reachable(targets.values())}
        if (role := _PROPERTIES.get(name)) == "":
            rate = {"learningRateMultiplier": command.number(2)} if name.startswith("learning") else {}
            for node in (each for each in targets.values() if each.operation == "LearnableParameter"):
                learned = copied_leaf(node, node.name, constant=not any(rate.values() or [value]))
                learned.options |= rate
                self.replace(node, learned)
        elif role is not None:
            nodes = self.model_at(command.place).roles[role]
            for node in targets.values():
                node.tag = "" if not value and node.tag == role else node.tag
                if node in nodes:
                    nodes.remove(node)
                if value:
                    nodes.append(node)
        elif name != "multiseq":
            raise command.error(f"unknown property {command.argument(1)!r}: {', '.join(_PROPERTIES)}")

    def replace(self, old: NetNode, new: NetNode) -> None:
        """Put a node in the place of another one, in all models."""
        for model in self.models.values():
            for name, node in model.nodes.items():
                inputs = node.operands()
                inputs[:] = [new if each is old else each for each in inputs]
                if node is old:
                    model.nodes[name] = new

    def remove(self, command: EditLine) -> None:
        for pattern in command.arguments:
            for name, node in self.find(pattern.strip("\"'"), command).items():
                for model in self.models.values():
                    if model.nodes.get(name) is node:
                        del model.nodes[name]
                        model.roles = {role: [n for n in nodes if n is not node] for role, nodes in model.roles.items()}

    def rename(self, command: EditLine) -> None:
        model = self.model_at(command.place)
        for name, node in self.find(command.argument(0), command).items():
            node.name = _substituted(command.argument(0), command.argument(1), name)
            model.nodes = {node.name if each is node else key: each for key, each in model.nodes.items()}

    def copy(self, command: EditLine) -> None:
        source, pattern = self.in_model(command.argument(0), command)
        model, target = self.in_model(command.argument(1), command)
        sources = self.matching(source, pattern, command)
        targets = [*self.matching(model, target, command)] if "*" in target and "*" not in pattern else [target]
        for each in targets:
            copies = {id(node): (node, _substituted(pattern, each, name)) for name, node in sources.items()}
            self.copy_nodes(copies, model, command)

    def copy_subtree(self, command: EditLine) -> None:
        source, pattern = self.in_model(command.argument(0), command)
        model, target = self.in_model(command.argument(1), command)
        prefix, roots = "".join(command.arguments[2:3]).strip("\"'"), self.matching(source, pattern, command)
        if target == "*":  # all keep their names
            pattern = "*"
        for root in roots.values():
            names = {id(n): (n, prefix + _substituted(pattern, target, n.name)) for n in reachable([root])}
            self.copy_nodes(names, model, command)

    def copy_nodes(self, nodes: dict[int, tuple[NetNode, str]], model: NamedModel, command: EditLine) -> None:
        """Copies under other names; links between the nodes become links between the copies.

        A node that is there already keeps its other inputs; with ``copy=value`` it only gets the values.
        """
        values = command.options.get("copy", "all").lower() == "value"
        copies: dict[int, NetNode] = {}
        for key, (node, name) in nodes.items():
            if node.operation == "LearnableParameter" or not (values or node.operands()):
                target = model.nodes.get(name) if values else None  # which learns as before
                copies[key] = copied_leaf(node, name, None if target is None else not learns(target))
            elif not values:
                copies[key] = NetNode(node.operation, name, None, node.options, node.place, variable=node.variable)
                copies[key].originals = node.originals or node.operands()
        for key, copy in copies.items():
            before = model.nodes.get(copy.name)
            if copy.inputs is None:
                inputs = nodes[key][0].operands()
                kept = before.operands() if before is not None else []
                others = kept if len(kept) == len(inputs) else inputs
                copy.inputs = [copies.get(id(each), other) for each, other in zip(inputs, others, strict=True)]
            if before is not None:
                self.replace(before, copy)
            elif values:
                raise command.error(f"there is no node '{copy.name}' to copy values to")
            model.nodes[copy.name] = copy

    def copy_inputs(self, command: EditLine) -> None:
        source, target = (self.one(command.argument(at), command) for at in (0, 1))
        target.operands()[:] = source.operands()


def _substituted(pattern: str, target: str, name: str) -> str:
    """The name that a node gets: if its own matches a pattern, its part for ``*`` in the place of the target's."""
    expression = re.escape(pattern).replace(r"\*", "(.*)")
    match = re.fullmatch(expression, name, re.IGNORECASE)
    if match is None:
        return name
    parts = iter(match.groups())
    return re.sub(r"\*", lambda _: next(parts, ""), target)


_COMMANDS: dict[str, Callable[[Editor, EditLine], None]] = {
    "CreateModel": Editor.create, "LoadModel": Editor.load, "SaveModel": Editor.save,
    "SaveDefaultModel": Editor.save, "SetDefaultModel": Editor.set_default, "UnloadModel": Editor.unload,
    "Dump": Editor.dump, "DumpModel": Editor.dump, "DumpNode": Editor.dump_nodes, "SetInput": Editor.set_input,
    "SetInputs": Editor.set_inputs, "SetProperty": Editor.set_property, "Remove": Editor.remove,
    "SetPropertyForSubTree": lambda editor, command: editor.set_property(command, of_subtree=True),
    "Delete": Editor.remove, "Rename": Editor.rename, "Copy": Editor.copy, "CopySubTree": Editor.copy_subtree,
    "CopyInputs": Editor.copy_inputs, "LoadNDLSnippet": Editor.load_snippet,
}
_PLAIN = {plain(name): function for name, function in _COMMANDS.items()}

__all__ = ["Editor"]
