"""Networks of descriptions in BrainScript."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from ...configuration import ConfigError, Place, Text
from ...configuration.source import content_of, find_file, nearest
from ..building import Builder, network_of
from ..network import ROLES, Network
from ..nodes import NetNode
from . import syntax
from .construction import NodeMaker
from .editing import editing_functions
from .evaluator import ScriptEvaluator
from .functions import built_in
from .parser import parse_expression, parse_members
from .values import Applied, Array, Fields, LoadedNetwork, Thunk

SPECIAL = {
    "featureNodes": "feature", "inputNodes": "label", "labelNodes": "label", "criterionNodes": "criterion",
    "criteriaNodes": "criterion", "evaluationNodes": "evaluation", "evalNodes": "evaluation", "outputNodes": "output",
}
_LIBRARY = ("primitives.bs", "layers.bs", "namespaces.bs", "ndl.bs")
_OF_OPERANDS = {  # functions that make a node of their operands only, by the names of these in the names of nodes
    "_": "Abs Acos Asin Atan Cosh Cosine Dropout Exp ExponentialLinearUnit Hardmax Log Pass RectifiedLinear Sigmoid "
         "Sin Sinh Softplus Softsign StopGradient StraightThrough Tan",
    "_ : y": "Less Equal Greater GreaterEqual NotEqual LessEqual",
    "z": "Reciprocal Sqrt SumColumnElements Tanh",
    "matrix": "MatrixL1Reg MatrixL2Reg SumElements",
    "leftMatrix : rightMatrix": "KhatriRaoProduct LogPlus Minus Plus",
    "aMatrix : anotherMatrix": "CosDistance ElementTimes SquareError",
    "dataVectorSequence": "InvStdDev Mean",
    "dataVectorSequence : mean : invStdDev": "PerDimMeanVarDeNormalization",
    "refProbVectorSequence : outProbVectorSequence": "CrossEntropy",
    "labelClassDescriptorVectorSequence : mainInputInfo : mainWeight : classLogProbsBeforeSoftmax":
        "ClassBasedCrossEntropyWithSoftmax",
    "gain : prediction : queryId": "LambdaRank NDCG1Eval",
}
_RECURSION = 60_000  # Python's limit while a description is evaluated; calls are counted by the evaluator


class Scope(Protocol):
    """Values of the configuration around a description."""

    def get(self, name: str) -> Text | None:
        """The text of a value, or None."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for descriptions that nest deeply."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@cache
def _library() -> tuple[frozenset[str], dict[str, syntax.Expression]]:
    """The names of the library's texts, and its members."""
    texts = {name: files(__package__).joinpath("..", "library", name).read_text(encoding="utf-8") for name in _LIBRARY}
    texts["operands.bs"] = "\n".join(
        f"{name} ({operands.replace(' :', ',')}, tag='') = "
        f"new ComputationNode {{ operation = '{name}' ; inputs = ({operands}) }}"
        for operands, names in _OF_OPERANDS.items() for name in names.split()
    )
    texts["reductions.bs"] = "\n".join(f"Reduce{kind} (_, axis=0, tag='') = {{ r = Reduce (_, '{kind}', axis, tag) }}.r"
                                       for kind in ("Sum", "LogSum", "Mean", "Max", "Min", "Prod"))
    records = [parse_members(Text(name, content), include_file) for name, content in texts.items()]
    return frozenset(texts), {name: value for record in records for name, value in record.members.items()}


def include_file(path: str, place: Place) -> Text:
    """The text of an included file. Errors: as of `find_file`."""
    file = find_file(path, place)
    return Text(str(file), content_of(file), place)


def expanded(text: Text, scope: Scope | Mapping[str, Text]) -> Text:
    """A text with ``$name$`` replaced by values of the configuration, if that is one."""
    expand = getattr(scope, "expand", None)
    return expand(text) if expand is not None else text


class Description:
    """The evaluation of one description: its scopes, its nodes and what it loads."""

    def __init__(self, scope: Scope | Mapping[str, Text], precision: str, seed_offset: int) -> None:
        self.scope = scope
        self.precision = precision
        texts, members = _library()
        self.evaluator = ScriptEvaluator(
            self.outside,
            {"ComputationNode": NodeMaker(seed_offset), "ComputationNetwork": self.network},
            {"dim": lambda node: float(math.prod(self.evaluator.elements(self._shape(node)))), "shape": self._shape,
             "name": lambda node: node.name,
             "inputs": lambda node: Array([Thunk(None, None, "", each) for each in node.operands()])},
            lambda place: place.text.name in texts,
        )
        library = self.evaluator.library
        library.members = {name: Thunk(value, library, name) for name, value in members.items()}
        built_in(library, editing_functions())

    def outside(self, name: str) -> Any:
        """A key of the configuration as a value: a number, a truth value, or a string."""
        text = self.scope.get(name)
        if text is None:
            return None
        try:
            value = self.evaluator.evaluate(parse_expression(text, include_file), self.evaluator.library, name)
        except ConfigError:
            value = text.content.strip().strip("\"'")
        return value if isinstance(value, float | bool | str | Array) else text.content.strip()

    def network(self, call: Applied) -> Fields:
        """``new ComputationNetwork``: the record that describes it."""
        return call.evaluator.expect(Fields, call.evaluator.force(call.arguments[0]), call.place, "a record")

    def _shape(self, node: NetNode) -> Any:
        """The dimensions of a node, first one first."""
        builder = Builder(precision=self.precision, names=False)
        builder.build([node])
        dimensions = [float(max(each, 0)) for each in reversed(builder.built[id(node)].shape)]
        return Array([Thunk(None, None, "", each) for each in dimensions]) if len(dimensions) != 1 else dimensions[0]

    def finished(self, value: Any, place: Place) -> Network:
        """The network that the description's value describes."""
        roles: dict[str, list[NetNode]]
        if isinstance(value, LoadedNetwork):
            roles = {role: [value.nodes[name] for name in value.roles[role]] for role in ROLES}
            return network_of(value.nodes, roles, self.precision)
        record = self.evaluator.expect(Fields, value, place, "the description of a network")
        places = {name: getattr(thunk.expression, "place", place) for name, thunk in record.members.items()}
        values = {name: self.evaluator.force(record.members[name]) for name in sorted(record.members)}
        members = {name: value for name, value in values.items() if isinstance(value, NetNode)}
        roles = {role: [] for role in ROLES}
        for name in values.keys() - SPECIAL.keys():
            if (guess := nearest(name, SPECIAL, 0.85)) and guess not in values:
                warnings.warn(f"{places[name]}: {name} gives nodes no role; did you mean {guess}?", stacklevel=2)
        for name, role in SPECIAL.items():
            if name in values:
                members.pop(name, None)
                found = self.evaluator.elements(values[name])
                nodes = [self.evaluator.expect(NetNode, each, places[name], f"a node in {name}") for each in found]
                roles[role] += [each for each in nodes if each not in roles[role]]
        return network_of(members, roles, self.precision)


def build_network(
    text: Text, scope: Scope | Mapping[str, Text], *, precision: str = "float", seed_offset: int = 0,
) -> Network:
    """The network that a text in BrainScript describes.

    `text`: the value of BrainScriptNetworkBuilder, in braces, brackets or parentheses, or what stands in the braces.
    `scope`: values of the configuration around it. `seed_offset`: a number added to the seeds of parameters.

    Errors: ConfigError with the place, and the calls that led there.
    """
    with deep_recursion():
        description = Description(scope, precision, seed_offset)
        try:
            if text.content.lstrip()[:1] in ("(", "[", "{"):
                expression = parse_expression(text, include_file)
            else:
                expression = parse_members(text, include_file, (text.name,))
            value = description.evaluator.evaluate(expression, description.evaluator.library, "")
            return description.finished(value, Place(text, 0))
        except RecursionError as error:
            message = "the description nests too deeply: does a function call itself without end?"
            raise Place(text, 0).error(message) from error


__all__ = ["build_network"]
