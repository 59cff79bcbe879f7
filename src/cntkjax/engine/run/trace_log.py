"""What a program is made of, told when it is compiled, for those who want to know what goes on."""

from __future__ import annotations

import sys
from typing import Any

import jax

from ...graph.function import Function
from ...graph.variable import Variable
from ..plan.parts import Loop, nodes_of, resolve
from ..plan.plan import Plan


def log_compilation(kind: str, plan: Plan, arguments: list[Any], seconds: float) -> None:
    """Print on stderr what was compiled: arrays of arguments, and operations in the order of computation."""
    print(text(kind, plan, arguments, seconds), file=sys.stderr)


def text(kind: str, plan: Plan, arguments: list[Any], seconds: float) -> str:
    """The lines that `log_compilation` prints."""
    lines = [f"Compiled in {seconds:.2f} s: '{kind}' of {len(plan.nodes)} operations, {len(plan.leaves)} leaves"]
    for variable, data in zip(plan.arguments, arguments, strict=True):
        shapes = " and ".join(str(tuple(a.shape)) for a in jax.tree.leaves(data))
        lines.append(f"  {variable.name or variable.uid} is fed as {shapes}")
    for part in plan.parts:
        if isinstance(part, Loop):
            way = "backwards" if part.reverse else "forwards"
            until = " until all sequences have ended" if part.fused_parts else ""
            lines.append(f"  loop {way} along {part.axis.name}{until}:")
            lines += [f"    {_line(node)}" for node in nodes_of(part)]
        else:
            lines.append(f"  {_line(part)}")
    return "\n".join(lines)


def _line(node: Function) -> str:
    operands = [resolve(v) for v in node.node_inputs]
    names = ", ".join(v.name or v.uid for v in operands)
    return f"{node.uid} = {node.op_name}({names}) : {_forms(operands)} -> {_forms(node.node_outputs)}"


def _forms(variables: list[Variable]) -> str:
    return ", ".join(repr(v).partition("', ")[2][:-1] for v in variables)
