"""What ``new ComputationNode`` makes: nodes, with the numbers that CNTK seeds parameters with."""

from __future__ import annotations

from typing import Any

from ..library.leaves import RANDOM
from ..library.table import OPERATIONS
from ..network import ROLES
from ..nodes import NetNode, seeds
from .evaluator import ScriptEvaluator, did_you_mean
from .functions import NONE
from .values import Applied, Array, Fields, Thunk, kind_of

_TAGS = {role: role for role in ("", *ROLES)} | {
    "eval": "evaluation", "labels": "label", "features": "feature", "criteria": "criterion",
}
_MORE = {
    "InputValue": ("dynamicAxis",), "SparseInputValue": ("dynamicAxis",),
    "LearnableParameter": ("value", "needGradient", "computeGradient"), "DynamicAxis": (), "Mean": (), "InvStdDev": (),
}  # options that no builder gets


class NodeMaker:
    """Makes nodes, with the seeds of random parameters."""

    def __init__(self, seed_offset: int = 0) -> None:
        self.seed_offset, self.seeds = seed_offset, seeds()

    def __call__(self, call: Applied) -> NetNode:
        evaluator: ScriptEvaluator = call.evaluator
        record = evaluator.expect(Fields, evaluator.force(call.arguments[0]), call.place, "a record")
        operation = self._text(evaluator, record, "operation", call)
        if operation not in OPERATIONS and operation not in _MORE:
            raise call.error(f"there is no operation '{operation}'{did_you_mean(operation, OPERATIONS)}")
        options = self._options(evaluator, record, operation, call)
        place, chain = evaluator.origin(call.place)
        node = NetNode(operation, call.path, None, options, place, chain)
        node.tag = self._tag(evaluator, record, operation, call)
        inputs = record.option("inputs")
        if inputs is None:
            raise call.error("a node needs 'inputs'")
        if operation in OPERATIONS and OPERATIONS[operation].delays:
            node.late = lambda: self._nodes(evaluator, inputs, call)
        else:
            node.inputs = self._nodes(evaluator, inputs, call)
        if operation == "LearnableParameter":
            self._initial(node)
        return node

    def _text(self, evaluator: ScriptEvaluator, record: Fields, name: str, call: Applied) -> str:
        thunk = record.option(name)
        return evaluator.expect(str, evaluator.force(thunk) if thunk else None, call.place, f"'{name}', a string,")

    def _options(self, evaluator: ScriptEvaluator, record: Fields, operation: str, call: Applied) -> dict[str, Any]:
        """The options of the operation that the record or the function around it gives."""
        options = {}
        names = OPERATIONS[operation].options if operation in OPERATIONS else {}
        for name in (*names, *_MORE.get(operation, ())):
            thunk = record.option(name)
            if thunk is not None:
                options[name] = plain(evaluator, evaluator.force(thunk), call)
        return options

    def _nodes(self, evaluator: ScriptEvaluator, inputs: Thunk, call: Applied) -> list[NetNode]:
        """The inputs; numbers become constants."""
        nodes = []
        for value in evaluator.elements(evaluator.force(inputs)):
            if isinstance(value, float):
                value = evaluator.call_library("ConstantTensor", [value, 1.0], call.path, call.place)
            nodes.append(evaluator.expect(NetNode, value, call.place, "a node of the network"))
        return nodes

    def _tag(self, evaluator: ScriptEvaluator, record: Fields, operation: str, call: Applied) -> str:
        thunk = record.option("tag")
        tag = evaluator.force(thunk) if thunk is not None else ""
        if tag not in _TAGS:
            raise call.error(f"there is no tag {tag!r}: {', '.join(ROLES)}")
        return _TAGS[tag]

    def _initial(self, node: NetNode) -> None:
        """How a parameter begins: the first of file, literal, value and random numbers that is given."""
        options, flags = node.options, ("needGradient", "computeGradient")
        if False in [options.pop(name, True) for name in flags]:
            options["learningRateMultiplier"] = 0.0
        value = options.pop("value", "")
        value = value if options.get("initValue", "") == "" else options["initValue"]
        if options.get("initFromFilePath"):
            options["init"] = "fromFile"
        elif options.get("initFromLiteral"):
            options["init"] = "fromLiteral"
        elif value != "" and options.get("init", "") not in RANDOM:
            options["init"] = "fixedValue"
        options["initValue"] = value if value != "" else 0.0
        options["init"] = options.get("init") or "uniform"
        if options["init"] in RANDOM:
            self._seed(options)

    def _seed(self, options: dict[str, Any]) -> None:
        seed = int(options.get("randomSeed", -1))
        options["randomSeed"] = (seed if seed >= 0 else self.seeds.next()) + self.seed_offset


def plain(evaluator: ScriptEvaluator, value: Any, call: Applied) -> Any:
    """A value as an option of a node: numbers, strings, truth values, nodes, and lists of them."""
    if isinstance(value, Array):
        return [plain(evaluator, each, call) for each in evaluator.elements(value)]
    if isinstance(value, NetNode) and value.options.get("init") == "fixedValue":
        return value.options["initValue"]
    if value is NONE:
        return 0.0  # all axes, or an inferred size
    if isinstance(value, Fields):  # a format, as text
        members = {name: plain(evaluator, evaluator.force(thunk), call) for name, thunk in value.members.items()}
        return "\n".join(f"{name} = {each if isinstance(each, bool) else repr(each)}" for name, each in members.items())
    if isinstance(value, float | str | bool | NetNode):
        return value
    raise call.error(f"{kind_of(value)} cannot be an option of a node")


__all__ = ["NodeMaker", "plain"]
