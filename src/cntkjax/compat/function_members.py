"""The members that functions inherit from their base class in CNTK's compiled module."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from ..device import Device
from ..engine.run.handover import STATE, settle
from ..formats.containers import Dictionary
from ..formats.model import graph_of, load, record_of
from ..graph.edit import Flattener
from ..graph.function import Node
from ..graph.proxy import add_members
from ..ops._native import native_user_function, register_native_user_function
from ..ops.functions import CloneMethod, Function, cloned_leaf

Values = MutableMapping[Any, Any]  # {variable: None or a Value}


class FunctionMembers(Function):
    """Members of `Function`, added to it when the package is imported."""

    native_user_function = staticmethod(native_user_function)
    register_native_user_function = staticmethod(register_native_user_function)

    def as_string(self, doNotInferOutputs: bool = True) -> str:
        """The same as `repr`."""
        return repr(self)

    def set_name(self, name: str) -> None:
        """The same as setting `name`, which is possible once.

        Errors: TypeError for anything but a string; ValueError for a function that has a name.
        """
        if not isinstance(name, str):
            raise TypeError(f"set_name: a name is a string, not {name!r}")
        self.name = name

    def get_custom_attributes(self) -> Dictionary:
        """A copy of `custom_attributes`."""
        return Dictionary(self.custom_attributes)

    # ---- evaluation into existing values
    def evaluate(self, arguments: Mapping[Any, Any], outputs: Values, device: Device = None) -> None:
        """`eval` into `outputs`: its Values receive the results; None is replaced by a new Value.

        Errors: those of `eval`; ValueError without outputs.

        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> z, outputs = 2 * x, {}
        >>> outputs[z.output] = None
        >>> z.evaluate({x: [[1, 2]]}, outputs)
        >>> outputs[z.output].asarray()
        array([[2., 4.]], dtype=float32)
        """
        if not outputs:
            raise ValueError(f"evaluate: nothing to compute: no outputs of {self!r} are requested")
        _fill(outputs, self.eval(arguments, list(outputs), device, as_numpy=False))

    def gradients(self, arguments: Mapping[Any, Any], *into: Any) -> None:
        """`grad` into a dict of variables. `into`: the output to differentiate, unless there is only one; that dict; a
        dict of outputs for their values; a device.

        Errors: those of `grad`.

        >>> import cntkjax as C
        >>> x, w = C.input_variable(2), C.parameter((2, 1), init=1)
        >>> results = {w: None}
        >>> C.times(x, w).gradients({x: [[1, 2]]}, results)
        >>> results[w].asarray().ravel()
        array([1., 2.], dtype=float32)
        """
        variables, outputs = (*(part for part in into if isinstance(part, MutableMapping)), {})[:2]
        root = None if isinstance(into[0], MutableMapping) else into[0]
        results = self.grad(arguments, list(variables), list(outputs), as_numpy=False, grad_root=root)
        _fill(variables, results[0] if outputs else results)
        _fill(outputs, results[1] if outputs else {})

    # ---- copies
    def clone_flattened(self, method: int | str | CloneMethod = 0) -> Node:
        """A clone without blocks: the nodes inside them become nodes of the graph itself.

        `method`: a number such as ``cntk_py.ParameterCloningMethod_Clone``, or what `clone` takes; parameters are
        shared by default.

        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> [f.op_name for f in (C.layers.Dense(1)(x), C.layers.Dense(1)(x).clone_flattened().root_function)]
        ['CompositeFunctionOpName', 'Plus']
        """
        numbers = CloneMethod.share, CloneMethod.clone, CloneMethod.freeze
        chosen = numbers[method] if isinstance(method, int) else CloneMethod(method)
        with STATE:
            settle()
            return Flattener(lambda leaf: cloned_leaf(leaf, chosen), {}).graph(self)

    def serialize(self) -> Dictionary:
        """The content of its model file, as `cntk_py.Function__deserialize` takes it."""
        return Dictionary(record_of(self))

    @staticmethod
    def _deserialize(record: Mapping[str, Any], device: Device = None) -> Node:
        """The function whose `serialize` returned this record. Errors: FormatError if it is damaged."""
        return graph_of(dict(record), "the record of a function")

    @staticmethod
    def load_from_buffer(buffer: bytes | bytearray, device: Device = None) -> Node:
        """Read a graph from the bytes of a model file. Errors: FormatError if they are damaged."""
        return load(bytes(buffer))


def _fill(values: Values, results: Any) -> None:
    """Store a Value, or several by their variables, in `values`."""
    for key, value in (results.items() if isinstance(results, Mapping) else ((key, results) for key in list(values))):
        if values[key] is None:
            values[key] = value.deep_clone()
        else:
            values[key].copy_from(value)


def add_function_members() -> None:
    """Add the members to `Function`."""
    special = ("__module__", "__doc__")
    add_members(Function, {name: member for name, member in vars(FunctionMembers).items() if name not in special})
