"""An interactive debugger that steps through the nodes of a model while it computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from ..graph import edit
from ..graph.arguments import public
from ..graph.build import composite
from ..graph.function import Node
from ..graph.variable import Edge, producer
from ..ops import combine, output_variable
from ..ops._user_functions import UserFunction, user_function
from ..ops.functions import Function

DEBUG_USAGE = """\
Commands:
    n            run to the next node
    n <number>   run for this many nodes
    u f          run until the forward pass
    u b          run until the backward pass
    u <name>     run until a node of that name
    u nan        run until there is NaN or infinity in the data
    u <lambda>   run until it returns True: lambda arg, node: node.op_name == 'Times'
    c            run to the end
    p            print the data (forward) or the gradient (backward)
    d            start pdb; `arg` is the data, `node` the node
    q            quit
"""

Vertex = Node | Edge
Condition = Callable[[Any, Any], bool]  # of the data and the node


class _Session:
    """The state of a debugger: its streams, and the condition under which it runs past a node."""

    def __init__(self, in_stream: TextIO, out_stream: TextIO, exit_func: Callable[[int], object] | None) -> None:
        self._in_stream, self._out_stream, self._exit = in_stream, out_stream, exit_func
        self._backward: bool | None = None
        self._runs_past: Condition = lambda arg, node: False

    def reach(self, node: Vertex, arg: object, backward: bool) -> None:
        """Report that a node was reached, and execute commands unless the debugger runs past it."""
        if self._backward is not backward:
            self._backward = backward
            rule = "=" * 35
            self._print(f"{rule} backward {rule}\n" if backward else f"\n{rule} forward  {rule}\n")
        self._print(f"\n{node} with uid '{node.uid}'\n")
        if not self._runs_past(arg, node):
            while not self._execute_command(arg, node):
                pass

    def _print(self, text: str) -> None:
        self._out_stream.write(text)
        self._out_stream.flush()

    def _execute_command(self, arg: object, node: Vertex) -> bool:
        """Read and execute a command; return whether the computation continues."""
        self._print(_DebugNode.PROMPT_BACKWARD if self._backward else _DebugNode.PROMPT_FORWARD)
        line = self._in_stream.readline()
        command, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if line and not command:
            return False
        if command == "q":
            if self._exit is not None:
                self._exit(0)
            return True
        condition = self._condition(command, rest) if line else _always  # at the end of the input, run to the end
        if condition is not None:
            self._runs_past = condition
            return True
        if command == "p":
            self._show(arg)
        elif command == "d":
            import pdb

            pdb.set_trace()
        else:
            self._print(DEBUG_USAGE)
        return False

    def _show(self, arg: Any) -> None:
        """Print data or gradients; sequences one by one."""
        label = "Root gradients" if self._backward else "Input"
        for array in arg if isinstance(arg, list) else [arg]:
            self._print(f"{label} with shape {np.shape(array)}: \n{array}\n")

    def _condition(self, command: str, rest: str) -> Condition | None:
        """When to run past a node after a command; None if it does not run."""
        if command == "c":
            return _always
        if command == "n" and (not rest or rest.isdecimal()):
            remaining = iter(range(int(rest or 1) - 1))
            return lambda arg, node: next(remaining, None) is not None
        if command == "u" and (stops := self._stop_condition(rest)) is not None:
            return lambda arg, node: not stops(arg, node)
        return None

    def _stop_condition(self, text: str) -> Condition | None:
        """When to stop at a node; None if the text is malformed."""
        if text in ("f", "b"):
            return lambda arg, node: self._backward is (text == "b")
        if text == "nan":
            return lambda arg, node: not all(_is_finite(d) for d in (arg if isinstance(arg, list) else [arg]))
        if not text.startswith("lambda"):
            return (lambda arg, node: node.name == text) if text else None
        try:
            return eval(text, {"np": np})  # what the user types at the prompt
        except SyntaxError:
            return None


def _always(arg: object, node: Vertex) -> bool:
    return True


def _is_finite(array: Any) -> bool:
    return bool(np.isfinite(array.data if hasattr(array, "tocsr") else array).all())


class _DebugNode(UserFunction):
    """Passes its operand through, and reports it to a session."""

    PROMPT_FORWARD = "[CNTK forward] >>> "
    PROMPT_BACKWARD = "[CNTK backward] >>> "

    def __init__(self, operand: Edge, after: Vertex, session: _Session, name: str) -> None:
        super().__init__([operand], name=name)
        self.after, self.session = after, session

    def infer_outputs(self) -> list[Edge]:
        """The output has the type of the operand."""
        x = self.inputs[0]
        return [output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(  # type: ignore[override]
        self, argument: Any, device: Any = None, outputs_to_retain: Any = None
    ) -> tuple[None, Any]:
        """Report the data of the node."""
        self.session.reach(self.after, argument, backward=False)
        return None, argument

    def backward(self, state: None, root_gradients: Any) -> Any:  # type: ignore[override]
        """Report the gradient of the node."""
        self.session.reach(self.after, root_gradients, backward=True)
        return root_gradients

    def clone(self, cloned_inputs: Sequence[Edge]) -> Function:  # type: ignore[override]
        """A copy that reports to the same session."""
        return _DebugNode(cloned_inputs[0], self.after, self.session, self.name)


class _DebugCloner(edit.Cloner):
    """Copies a graph; the copy shares all leaves, and has a debug node after each variable."""

    def __init__(self, session: _Session) -> None:
        super().__init__(lambda leaf: leaf, {})
        self._session = session

    def _insert_debug_node(self, variable: Edge, after: Vertex) -> Edge:
        name = f"D_{variable.uid.replace('_Output', '')}"
        return user_function(_DebugNode(variable, after, self._session, name)).output

    def _variable(self, variable: Edge) -> Edge:
        if variable not in self.replacements and producer(variable) is None:
            watched = variable if variable.is_placeholder else self._insert_debug_node(variable, variable)
            self.replacements[variable] = watched
        return super()._variable(variable)

    def _node(self, node: Node) -> None:
        super()._node(node)
        if not node.primitive.passes_through:
            for v in node.node_outputs:
                copy, node_of_copy = self.replacements[v], producer(self.replacements[v])
                self.replacements[v] = self._insert_debug_node(copy, copy if node_of_copy is None else node_of_copy)

    def model(self, function: Node) -> Function:
        """The copy of a composite, with debug nodes after its outputs, too."""
        self.graph(function)
        outputs = [self.replacements[v] for v in function.outputs]
        return composite(producer(outputs[0])) if len(outputs) == 1 else combine(outputs)  # type: ignore[return-value, arg-type]


@public
def debug_model(
    model: Function, in_stream: TextIO = sys.stdin, out_stream: TextIO = sys.stdout,
    exit_func: Callable[[int], object] | None = sys.exit,
) -> Function:
    """Return a copy of the model that stops at each of its nodes and reads commands, see ``DEBUG_USAGE``.

    The copy shares parameters and inputs with the model. It stops in the forward and in the backward pass, at nodes in
    any order that the computation allows.

    Args:
        model: the model to debug
        in_stream: where commands are read from
        out_stream: where reports are written to
        exit_func: called with 0 by the command `q`

    >>> import io
    >>> import cntkjax as C
    >>> x = C.input_variable(1, name='x')
    >>> commands, output = io.StringIO('p\\nn\\nc\\n'), io.StringIO()
    >>> value = debug_model(C.relu(x), commands, output).eval({x: [[2]]})
    >>> '[[2.]]' in output.getvalue() and "Input('x', [#], [1]) with uid" in output.getvalue()
    True
    """
    return _DebugCloner(_Session(in_stream, out_stream, exit_func)).model(model)


__all__ = ["DEBUG_USAGE", "debug_model"]
