"""Going through a model node by node while it computes, by commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from ..graph import edit
from ..graph.build import composite
from ..graph.function import Function as GraphFunction
from ..graph.variable import Variable, producer
from ..ops import combine, output_variable
from ..ops._user_functions import UserFunction, user_function
from ..ops.functions import Function

DEBUG_USAGE = """\
Commands:
    n            the next node
    n <number>   so many nodes
    u f          until the forward pass
    u b          until the backward pass
    u <name>     until a node of that name
    u nan        until there is NaN or infinity in the data
    u <lambda>   until it holds of the data and the node: lambda arg, node: node.op_name == 'Times'
    c            to the end
    p            print the data (forward) or the gradient (backward)
    d            drop into pdb; `arg` is the data, `node` the node
    q            quit
"""


class _Session:
    """Where the user stands: what is read and written, and how far to go before asking again."""

    def __init__(self, in_stream: TextIO, out_stream: TextIO, exit_func: Callable[[int], Any]) -> None:
        self.reads, self.writes, self.leave = in_stream, out_stream, exit_func
        self.backward: bool | None = None
        self.goes_on: Callable[[Any, Any], bool] = lambda arg, node: False

    def reach(self, node: Any, arg: Any, backward: bool) -> None:
        """Tell that a node is reached, and wait for commands if it is time."""
        if self.backward is not backward:
            self.backward = backward
            rule = "=" * 35
            self._say(f"{rule} backward {rule}\n" if backward else f"\n{rule} forward  {rule}\n")
        self._say(f"\n{node} with uid '{node.uid}'\n")
        if not self.goes_on(arg, node):
            while not self._obey(arg, node):
                pass

    def _say(self, text: str) -> None:
        self.writes.write(text)
        self.writes.flush()

    def _obey(self, arg: Any, node: Any) -> bool:
        """Read a command and follow it; True if the computation goes on."""
        self._say(_DebugNode.PROMPT_BACKWARD if self.backward else _DebugNode.PROMPT_FORWARD)
        line = self.reads.readline()
        command, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if line and not command:
            return False
        if command == "n" and (not rest or rest.isdecimal()):
            left = iter(range(int(rest or 1) - 1))
            self.goes_on = lambda arg, node: next(left, None) is not None
        elif command == "c" or not line:  # nothing more will ever be read
            self.goes_on = lambda arg, node: True
        elif command == "u" and (met := self._condition(rest)) is not None:
            self.goes_on = lambda arg, node: not met(arg, node)
        elif command == "q":
            self.leave(0)
        else:
            if command == "p":
                self._show(arg)
            elif command == "d":
                import pdb

                pdb.set_trace()
            else:
                self._say(DEBUG_USAGE)
            return False
        return True

    def _show(self, arg: Any) -> None:
        """Print data or gradients; sequences one by one."""
        what = "Root gradients" if self.backward else "Input"
        for piece in arg if isinstance(arg, list) else [arg]:
            self._say(f"{what} with shape {np.shape(piece)}: \n{piece}\n")

    def _condition(self, text: str) -> Callable[[Any, Any], bool] | None:
        """What has to hold where the computation stops; None if it cannot be understood."""
        if text in ("f", "b"):
            return lambda arg, node: self.backward is (text == "b")
        if text == "nan":
            return lambda arg, node: not all(_is_finite(d) for d in (arg if isinstance(arg, list) else [arg]))
        if not text.startswith("lambda"):
            return (lambda arg, node: node.name == text) if text else None
        try:
            return eval(text, {"np": np})  # what the user types at the prompt
        except SyntaxError:
            return None


def _is_finite(piece: Any) -> bool:
    return bool(np.isfinite(piece.data if hasattr(piece, "tocsr") else piece).all())


class _DebugNode(UserFunction):
    """Passes on what it gets, and reports it."""

    PROMPT_FORWARD = "[CNTK forward] >>> "
    PROMPT_BACKWARD = "[CNTK backward] >>> "

    def __init__(self, arg: Any, after: Any, session: _Session, name: str) -> None:
        super().__init__([arg], name=name)
        self.after, self.session = after, session

    def infer_outputs(self) -> list[Variable]:
        x = self.inputs[0]
        return [output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(  # type: ignore[override]
        self, argument: Any, device: Any = None, outputs_to_retain: Any = None
    ) -> tuple[None, Any]:
        self.session.reach(self.after, argument, backward=False)
        return None, argument

    def backward(self, state: None, root_gradients: Any) -> Any:  # type: ignore[override]
        self.session.reach(self.after, root_gradients, backward=True)
        return root_gradients

    def clone(self, cloned_inputs: Sequence[Any]) -> Function:  # type: ignore[override]
        return _DebugNode(cloned_inputs[0], self.after, self.session, self.name)


class _Watched(edit.Cloner):
    """A copy that shares all leaves and has a debug node behind each variable."""

    def __init__(self, session: _Session) -> None:
        super().__init__(lambda leaf: leaf, {})
        self._session = session

    def _watch(self, variable: Variable, after: Any) -> Variable:
        name = f"D_{variable.uid.replace('_Output', '')}"
        return user_function(_DebugNode(variable, after, self._session, name)).output

    def _variable(self, variable: Variable) -> Variable:
        if variable not in self.made and producer(variable) is None:
            self.made[variable] = variable if variable.is_placeholder else self._watch(variable, variable)
        return super()._variable(variable)

    def _node(self, node: GraphFunction) -> None:
        super()._node(node)
        if not node.primitive.passes_through:
            for v in node.node_outputs:
                self.made[v] = self._watch(self.made[v], producer(self.made[v]))

    def model(self, function: GraphFunction) -> Function:
        """The copy of a composite, its outputs watched too."""
        self.graph(function)
        outputs = [self.made[v] for v in function.outputs]
        return composite(producer(outputs[0])) if len(outputs) == 1 else combine(outputs)  # type: ignore[return-value, arg-type]


def debug_model(
    model: Function, in_stream: TextIO = sys.stdin, out_stream: TextIO = sys.stdout,
    exit_func: Callable[[int], Any] = sys.exit,
) -> Function:
    """The model with a stop behind each of its nodes, in the forward and in the backward pass: see ``DEBUG_USAGE``.

    It shares parameters and inputs with the model. Nodes are reached in any order that the computation allows.

    Example:
        >>> import io
        >>> import cntkjax as C
        >>> x = C.input_variable(1, name='x')
        >>> commands, said = io.StringIO('p\\nn\\nc\\n'), io.StringIO()
        >>> value = debug_model(C.relu(x), commands, said).eval({x: [[2]]})
        >>> '[[2.]]' in said.getvalue() and "Input('x', [#], [1]) with uid" in said.getvalue()
        True
    """
    return _Watched(_Session(in_stream, out_stream, exit_func)).model(model)


__all__ = ["DEBUG_USAGE", "debug_model"]
