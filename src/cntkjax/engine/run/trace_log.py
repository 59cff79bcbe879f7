"""Reports of compilations on stderr, for users who set a trace level."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax

from ...graph.function import Node
from ...graph.variable import Edge
from ..plan.parts import Loop, nodes_of, resolve
from ..plan.plan import Plan
from .compiling import Executable
from .minibatch import PackedArray


def log_compilation(name: str, plan: Plan, arguments: Sequence[PackedArray], executable: Executable) -> None:
    """Print what was compiled: the shapes of the arguments, and the operations in the order of computation."""
    print(compilation_text(name, plan, arguments, executable), file=sys.stderr)


def compilation_text(name: str, plan: Plan, arguments: Sequence[PackedArray], executable: Executable) -> str:
    """The lines that `log_compilation` prints."""
    seconds = f"in {executable.seconds:.2f} s{' by an earlier process' * executable.stored}"
    lines = [f"Compiled {seconds}: '{name}' of {len(plan.nodes)} operations, {len(plan.leaves)} leaves"]
    for variable, data in zip(plan.arguments, arguments, strict=True):
        shapes = " and ".join(str(tuple(a.shape)) for a in jax.tree.leaves(data))
        lines.append(f"  {variable.name or variable.uid} is fed as {shapes}")
    for part in plan.parts:
        if isinstance(part, Loop):
            direction = "backwards" if part.reverse else "forwards"
            until = " until all sequences have ended" if part.fused_parts else ""
            lines.append(f"  loop {direction} along {part.axis.name}{until}:")
            lines += [f"    {_node_text(node)}" for node in nodes_of(part)]
        else:
            lines.append(f"  {_node_text(part)}")
    return "\n".join(lines)


def _node_text(node: Node) -> str:
    operands = [resolve(v) for v in node.node_inputs]
    names = ", ".join(v.name or v.uid for v in operands)
    return f"{node.uid} = {node.op_name}({names}) : {_shapes_text(operands)} -> {_shapes_text(node.node_outputs)}"


def _shapes_text(variables: Sequence[Edge]) -> str:
    return ", ".join(repr(v).partition("', ")[2][:-1] for v in variables)


__all__ = ["compilation_text", "log_compilation"]
