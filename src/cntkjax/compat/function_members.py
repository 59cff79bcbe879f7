"""What functions have of their base class in CNTK's compiled module."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from ..formats.containers import Dictionary
from ..formats.model import graph_of, load, record_of
from ..graph.edit import Flattener
from ..graph.proxy import add_members
from ..ops._native import native_user_function, register_native_user_function
from ..ops.functions import CloneMethod, Function, cloned_leaf

Values = MutableMapping[Any, Any]  # {variable: None or a Value}


class FunctionMembers(Function):
    """Members of `Function`, added to it when the package is imported."""

    native_user_function = staticmethod(native_user_function)
    register_native_user_function = staticmethod(register_native_user_function)

    def as_string(self, verbose: bool = True) -> str:
        """As it is printed with `repr`."""
        return repr(self)

    def set_name(self, name: str) -> None:
        """The same as setting `name`, which can be done once.

        Errors: TypeError for what is no text; ValueError for a function that has a name.
        """
        if not isinstance(name, str):
            raise TypeError(f"set_name: a name is a text, not {name!r}")
        self.name = name

    def get_custom_attributes(self) -> Dictionary:
        """A copy of `custom_attributes`."""
        return Dictionary(self.custom_attributes)

    # ---- computing into what is given
    def evaluate(self, arguments: Mapping[Any, Any], outputs: Values, device: Any = None) -> None:
        """`eval` into `outputs`, whose Values get the results in their own place; None becomes a new one.

        Errors: as of `eval`; ValueError without outputs.

        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> z, outputs = 2 * x, {}
        >>> outputs[z.output] = None
        >>> z.evaluate({x: [[1, 2]]}, outputs)
        >>> outputs[z.output].asarray()
        array([[2., 4.]], dtype=float32)
        """
        if not outputs:
            raise ValueError(f"evaluate: nothing to compute: no outputs of {self!r} are asked for")
        _fill(outputs, self.eval(arguments, list(outputs), device, as_numpy=False))

    def gradients(self, arguments: Mapping[Any, Any], *into: Any) -> None:
        """`grad` into a dict of variables. The other arguments are: the output that the gradients are of, unless there
        is only one; that dict; a dict of outputs, for their values; a device.

        Errors: as of `grad`.

        >>> import cntkjax as C
        >>> x, w = C.input_variable(2), C.parameter((2, 1), init=1)
        >>> found = {w: None}
        >>> C.times(x, w).gradients({x: [[1, 2]]}, found)
        >>> found[w].asarray().ravel()
        array([1., 2.], dtype=float32)
        """
        found, outputs = (*(part for part in into if isinstance(part, MutableMapping)), {})[:2]
        root = None if isinstance(into[0], MutableMapping) else into[0]
        made = self.grad(arguments, list(found), list(outputs), as_numpy=False, grad_root=root)
        _fill(found, made[0] if outputs else made)
        _fill(outputs, made[1] if outputs else {})

    # ---- copies
    def clone_flattened(self, method: Any = 0) -> Any:
        """A clone without blocks: what was inside of them stands in the graph itself.

        `method`: a number such as ``cntk_py.ParameterCloningMethod_Clone``, or what `clone` takes; parameters are
        shared by default.

        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> [f.op_name for f in (C.layers.Dense(1)(x), C.layers.Dense(1)(x).clone_flattened().root_function)]
        ['CompositeFunctionOpName', 'Plus']
        """
        numbers = CloneMethod.share, CloneMethod.clone, CloneMethod.freeze
        chosen = numbers[method] if isinstance(method, int) else CloneMethod(method)
        return Flattener(lambda leaf: cloned_leaf(leaf, chosen), {}).graph(self)

    def serialize(self) -> Dictionary:
        """The content of its model file, as it stands in `cntk_py.Function__deserialize`."""
        return Dictionary(record_of(self))

    @staticmethod
    def _deserialize(record: Mapping[str, Any], device: Any = None) -> Any:
        """The function of which `serialize` gave this record. Errors: FormatError if it is damaged."""
        return graph_of(dict(record), "the record of a function")

    @staticmethod
    def load_from_buffer(buffer: bytes | bytearray, device: Any = None) -> Any:
        """Read a graph from the bytes of a model file. Errors: FormatError if they are damaged."""
        return load(bytes(buffer))


def _fill(values: Values, made: Any) -> None:
    """Put a Value, or several by their variables, where they are asked for."""
    for key, value in (made.items() if isinstance(made, Mapping) else ((key, made) for key in list(values))):
        if values[key] is None:
            values[key] = value.deep_clone()
        else:
            values[key].copy_from(value)


def add_function_members() -> None:
    """Give `Function` what CNTK's has."""
    special = ("__module__", "__doc__")
    add_members(Function, {name: member for name, member in vars(FunctionMembers).items() if name not in special})
