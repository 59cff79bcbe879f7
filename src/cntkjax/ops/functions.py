"""Functions: computation graphs that can be called, evaluated, differentiated, cloned and saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, unique
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np

from .._typing import AnyArray
from ..device import Device
from ..engine.run.handover import STATE, device_copy, settle
from ..formats import model as model_files
from ..formats import registry
from ..formats.containers import unwrap_values
from ..graph import edit
from ..graph.arguments import public, public_operation
from ..graph.axis import UNKNOWN_AXES
from ..graph.build import composite, make_node
from ..graph.errors import AxisError, OutputError, ShapeError, explain, layer_title, of_layer
from ..graph.function import CUSTOM, Node
from ..graph.public import classes
from ..graph.settings import Settings
from ..graph.shape import UNKNOWN_SHAPE
from ..graph.variable import Edge, Leaf, VariableKind, has_value, initializer_of, outside, producer, rename, value_of
from ..logging._notebook import as_html
from ..primitives.structure import Combine
from ..tensor import TensorOpsMixin
from ..variables import Constant, Parameter, Record, Variable, VariableMixin, type_text
from ._attributes import shown
from ._calling import ENCLOSING, annotated, check_types, from_python, input_of_type, placeholder_of_type
from ._computing import Computing
from ._indexing import Index
from ._native import native_user_function, register_native_user_function
from ._operand import Operand, as_variable
from ._structure import combine
from ._user_function_files import register_udf_deserialize_callback, udf_callbacks

Source: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO


@public
@unique
class CloneMethod(Enum):
    """What a clone does with parameters: copy them, share them, or freeze copies of them as constants.

    >>> import cntkjax as C
    >>> model = C.layers.Dense(2)(C.input_variable(3))
    >>> frozen = model.clone(CloneMethod.freeze)
    >>> len(frozen.parameters), len(frozen.constants)
    (0, 2)
    """

    clone = "clone"
    share = "share"
    freeze = "freeze"


@public
@unique
class ModelFormat(Enum):
    """File formats of models.

    >>> ModelFormat.CNTKv2.name, ModelFormat.ONNX.name
    ('CNTKv2', 'ONNX')
    """

    CNTKv2 = 0
    ONNX = 1


class _OutputAttribute:
    """An attribute of the single output; AttributeError if there are several outputs, so that ``hasattr`` is False.

    A non-data descriptor instead of a property: as in CNTK, a user function can set an attribute of the same name.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, function: Function | None, owner: type | None = None) -> Any:
        if function is None:
            return self
        if len(function.outputs) != 1:
            raise AttributeError(self.name)
        return getattr(function.outputs[0], self.name)


@public
class Function(Computing, VariableMixin, TensorOpsMixin, Node):
    """A computation graph with arguments and outputs.

    ``Function(f)``, also as a decorator, traces a Python function of variables. Calling a Function with variables
    returns a clone with these as its arguments; calling it with data evaluates it.

    >>> import cntkjax as C
    >>> @C.Function
    ... def affine(x, y):
    ...     return 2 * x + y
    >>> a, b = C.input_variable(1), C.input_variable(1)
    >>> affine(a, b).eval({a: [[1]], b: [[10]]})
    array([[12.]], dtype=float32)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Function:
            return super().__new__(cls)
        return from_python(*args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # __new__ has initialized it

    @classmethod
    def _new(cls, **kwargs: Any) -> Function:
        """Create a node; called by the graph."""
        node = object.__new__(cls)
        Node.__init__(node, **kwargs)
        return node

    @staticmethod
    def with_signature(*args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Function]:
        """Decorator that declares argument types: ``@Function.with_signature(Tensor[3], Sequence[Tensor[2]])``."""
        return lambda f: from_python(annotated(f, args, kwargs))

    # ---- properties
    @property
    def name(self) -> str:
        """The user's name for the function, or ''; it can be set once.

        A composite has a name of its own: setting it names neither the node at its root nor the output, as in CNTK.

        Errors: ValueError if it is set already.
        """
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if self._name and not Settings.renaming:
            raise ValueError(f"Function '{self._name}': a name that is set cannot be changed")
        rename(self, value)

    @property
    def output(self) -> Variable:
        """The single output; OutputError if the number of outputs is not one."""
        outputs = self.outputs
        if len(outputs) != 1:
            raise OutputError(f"{self!r} has {len(outputs)} outputs, not one: select one, as in f.outputs[0]")
        return outputs[0]  # type: ignore[return-value]

    @property
    def signature(self) -> tuple[Any, ...]:
        """The arguments that a call takes, in order; those of an enclosing Python function are excluded."""
        return tuple(v for v in self.arguments if v not in ENCLOSING)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the operation, in the form in which CNTK presents them; a composite has none of its own."""
        return {} if self.is_composite else shown(self.node_attributes)

    @property
    def custom_attributes(self) -> dict[str, Any]:
        """User-defined attributes: numbers, strings, arrays, and lists and dicts of them. Files and clones keep them.

        Errors: TypeError if set to anything but a dict.
        """
        return self.root_function.node_attributes.setdefault(CUSTOM, {})

    @custom_attributes.setter
    def custom_attributes(self, values: dict[str, Any]) -> None:
        if not isinstance(values, dict):
            raise TypeError(f"custom_attributes: values must be a dictionary, got {values!r}")
        self.root_function.node_attributes[CUSTOM] = unwrap_values(dict(values))

    def reset_custom_attributes(self) -> None:
        """Remove all custom attributes."""
        self.root_function.node_attributes[CUSTOM] = {}

    @property
    def block_root(self) -> Function:
        """The root of the graph inside a block; ValueError for anything but a block."""
        inner = self.root_function.block_composite
        if inner is None:
            raise ValueError(f"{self!r} is not a block: check is_block first")
        return inner.root_function  # type: ignore[return-value]

    @property
    def block_arguments_mapping(self) -> tuple[tuple[Variable, Variable], ...]:
        """Pairs (argument inside the block, operand outside); ValueError for anything but a block."""
        if self.root_function.block_composite is None:
            raise ValueError(f"{self!r} is not a block: check is_block first")
        return tuple(self.root_function.block_map)  # type: ignore[arg-type]

    shape, dtype, dynamic_axes, is_sparse, needs_gradient = (_OutputAttribute() for _ in range(5))
    owner, is_output, is_input, is_parameter, is_constant, is_placeholder = (_OutputAttribute() for _ in range(6))

    @property
    def type(self) -> Record | tuple[Record, ...]:
        """The type of the output, or a tuple of types if there are several outputs."""
        types = tuple(v._type for v in self.outputs)  # type: ignore[attr-defined]
        return types[0] if len(types) == 1 else types

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_root" not in self.__dict__:
            raise AttributeError(name)
        inside = None if self.is_composite else self.root_function.block_composite  # of a block that was found by name
        matches = edit.find_all(self if inside is None else inside, name, 1)
        if not matches:
            of_outputs = isinstance(getattr(type(self), name, None), _OutputAttribute)
            fix = f": each of its {len(self.outputs)} outputs has its own" if of_outputs else ""
            raise AttributeError(f"{self!r} has no attribute or member '{name}'{fix}")
        return _only(matches, name)

    def __getitem__(self, arg: Index) -> Variable | Function:
        if len(self.outputs) > 1:
            return self._select_outputs(arg)
        return super().__getitem__(arg)

    def _select_outputs(self, arg: Index) -> Any:
        """An output by its number, or the outputs of a slice; KeyError for anything else, as in CNTK."""
        try:
            return self.outputs[arg]  # type: ignore[index]
        except (TypeError, IndexError):
            raise KeyError(
                f"{self} has {len(self.outputs)} outputs, and {arg!r} selects none of them: give a number from 0 to "
                f"{len(self.outputs) - 1}, as in f.outputs[i]; index a single output, f.outputs[i][...], to slice it, "
                "and use f.find_by_name(name) for a name"
            ) from None

    def __iter__(self) -> Iterator[Variable | Function]:
        return iter(self.outputs) if len(self.outputs) > 1 else super().__iter__()  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        """True for the function itself and for its single output, although their hashes differ, as in CNTK."""
        if not isinstance(other, Edge):
            return NotImplemented
        return len(self.outputs) == 1 and self.outputs[0] is other

    __hash__ = Node.__hash__

    def __repr__(self) -> str:
        kind = f"Composite({self.root_function.op_name})" if self.is_composite else self.op_name
        return f"{kind}: {', '.join(map(repr, self.arguments))} -> {', '.join(map(repr, self.outputs))}"

    def __str__(self) -> str:
        root = self.root_function
        differs = any(v != w for v, w in zip(self.inputs, root.inputs, strict=False))  # CNTK's rule
        name = "Composite" if self.is_composite and differs else root.op_name
        name = f"{self._name}: {name}" if self._name else name
        operands: list[Any] = [outside(v) for v in self.signature]
        arguments = [f"{v.name}: {type_text(v._type)}" if v.name else type_text(v._type) for v in operands]
        types = [type_text(v._type) for v in self.outputs]  # type: ignore[attr-defined]
        return f"{name}({', '.join(arguments)}) -> {types[0] if len(types) == 1 else 'Tuple[%s]' % ', '.join(types)}"

    def _repr_html_(self) -> str:
        return as_html(self)

    # ---- calling and composing
    def argument_map(self, *args: Any, **kwargs: Any) -> dict[Variable, Any]:
        """The value that a call binds to each argument.

        Errors: TypeError if the values do not fit the signature; SyntaxError for two values for one argument.
        """
        signature = self.signature
        if len(args) + len(kwargs) != len(signature) and not kwargs:
            raise self._call_error(f"CNTK Function expected {len(signature)} arguments, got {len(args)}")
        mapped = dict(zip(signature, args, strict=False))
        by_name = {v.name: v for v in signature}
        for name, value in kwargs.items():
            if name not in by_name:
                raise self._call_error(f"got an unexpected keyword argument '{name}'")
            if by_name[name] in mapped:
                raise SyntaxError(f"got multiple values for argument '{name}': pass it by position or by name")
            mapped[by_name[name]] = value
        if len(mapped) != len(signature):
            raise self._call_error(f"CNTK Function expected {len(signature)} arguments, got {len(mapped)}")
        return mapped

    def _call_error(self, problem: str) -> TypeError:
        """The error for arguments that do not fit the signature; it names the function and its arguments."""
        signature = self.signature
        if len(signature) == 1:
            fix = f"pass one value for {signature[0].name or signature[0].uid!r}; cntk.splice joins several into one"
        else:
            fix = "pass one value for each argument, by position or by name"
        names = ", ".join(v.name or v.uid for v in signature)
        return TypeError(explain(f"{self._title or self.op_name}: {problem}: it takes ({names})", fix=fix))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function to variables, or evaluate it on data.

        Returns: for variables, a clone that has them as arguments and shares the parameters; for data, the value of the
                output, or a tuple of values if there are several outputs.
        Errors: TypeError for a wrong number of arguments, unknown names, a mixture of variables and data, or a variable
                of another type than the argument was declared with.
        """
        mapped = self.argument_map(*args, **kwargs)
        symbolic = [isinstance(v, (Edge, Node)) for v in mapped.values()]
        if all(symbolic) and self.arguments:
            check_types(mapped)
            enclosing = {v: v for v in self.arguments if v not in mapped}
            try:
                return self.clone(CloneMethod.share, {**enclosing, **mapped})
            except (ShapeError, AxisError) as error:
                if not self._made_by:  # the error already names the block
                    raise
                raise of_layer(error, self._title, mapped.values()) from None
        if any(symbolic):
            raise self._call_error("expected variables for all arguments, or data for all; wrap data in constant()")
        if self.placeholders:
            data = ", ".join(f"{v.name or v.uid} = {type(value).__name__}" for v, value in mapped.items())
            raise ValueError(
                f"{self._title or 'a function'} has no inputs yet, so it takes variables and no data, but got {data}: "
                "apply it to cntk.input_variable(...) and evaluate the result"
            )
        results = self.eval(mapped)
        return tuple(results[v] for v in self.outputs) if len(self.outputs) > 1 else results

    @property
    def _title(self) -> str:
        """The name of this layer in messages; empty if the function is not a layer."""
        root = self.root_function
        return layer_title(self._made_by or (root.block_name if root.is_block else ""), self._name)

    def __rshift__(self, other: Any) -> Any:
        """``f >> g`` is ``g(f(x))``; ``f >> (g, h)`` has the outputs of both.

        If f has several outputs, they become the arguments of g; a tuple (g, h) takes one output each.
        """
        outputs = self.outputs
        if not isinstance(other, tuple):
            return other(*outputs) if len(outputs) > 1 else other(self)
        operands = outputs if len(outputs) > 1 else [self] * len(other)
        return combine([g(x) for g, x in zip(other, operands, strict=False)])

    def __lshift__(self, other: Any) -> Any:
        """``f << g`` is ``f(g(x))``."""
        return self(other)

    # ---- editing
    def __deepcopy__(self, memo: object) -> Function:
        raise TypeError(f"{self!r} cannot be copied by copy.deepcopy, as in CNTK: use f.clone('clone')")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as in CNTK: use f.save(file) and cntk.load_model(file)")

    def clone(self, method: CloneMethod | str, substitutions: Mapping[Any, Any] | None = None) -> Function:
        """A copy of the graph, with variables replaced.

        `method`: 'clone' copies parameters, 'share' shares them, 'freeze' copies them as constants.
        `substitutions`: {variable of this graph: its replacement in the copy}. A replacement that is computed from
        this graph is computed from the copy instead, which can close a recurrent loop.
        Errors: TypeError for substitutions that are not variables; AttributeError for None, as in CNTK.
        """
        method = CloneMethod(method) if not isinstance(method, CloneMethod) else method
        if not isinstance(substitutions or {}, Mapping):
            raise TypeError(f"clone: substitutions must be a dict {{variable: replacement}}, got {substitutions!r}")
        mapped: dict[Any, Any] = {_of_graph(k): _of_graph(v) for k, v in (substitutions or {}).items()}
        if self.outputs and all(v in mapped for v in self.outputs):
            outputs = [mapped[v] for v in self.outputs]
            node = producer(outputs[0]) if len(outputs) == 1 else None
            return composite(make_node(Combine, outputs, {}) if node is None else node)  # type: ignore[return-value]
        with STATE:
            settle()
            return self._copy_of_graph(method, mapped)

    def _copy_of_graph(self, method: CloneMethod, mapped: dict[Any, Any]) -> Function:
        cloner = edit.SubstitutingCloner(
            self, lambda leaf: cloned_leaf(leaf, method), method is CloneMethod.share, mapped
        )
        return cloner.graph(self if self.is_composite else composite(self, ""))  # type: ignore[return-value]

    def replace_placeholders(self, substitutions: Mapping[Any, Any]) -> Function:
        """Replace placeholders by variables, in place, and return this function.

        Errors: ValueError for a variable that is not among its `placeholders`.
        """
        replacements: dict[Any, Any] = {as_variable(k): as_variable(v) for k, v in substitutions.items()}
        for variable in replacements.keys() - set(self.placeholders):
            raise ValueError(f"{variable!r} cannot be replaced: it is no placeholder of {self!r}; see f.placeholders")
        edit.replace_placeholders(self, replacements)
        return self

    def replace_placeholder(self, substitution: Operand) -> Function:
        """Replace the single placeholder by a variable; ValueError if the number of placeholders is not one."""
        placeholders = self.placeholders
        if len(placeholders) != 1:
            raise ValueError(f"{self!r} has {len(placeholders)} placeholders, not one: use replace_placeholders")
        return self.replace_placeholders({placeholders[0]: substitution})

    def find_all_with_name(self, name: str | None, depth: int = 0) -> list[Any]:
        """All functions and variables of that name; blocks are searched up to a nesting of `depth`, -1 means all."""
        return edit.find_all(self, name, depth)

    def find_by_name(self, name: str, depth: int = 0) -> Node | Edge | None:
        """The function or variable of that name, or None; ValueError for several matches or a non-str name."""
        matches = edit.find_all(self, name, depth)
        return _only(matches, name) if matches else None

    def set_attribute(self, name: str, value: float) -> None:
        """Set 'dropoutRate' of the operation, or 'rngSeed', with which its random numbers begin again.

        Errors: RuntimeError for any other attribute.
        """
        if name not in ("dropoutRate", "rngSeed") or name not in self.root_function.node_attributes:
            raise RuntimeError(f"{self!r} has no attribute '{name}' that can be set: only dropoutRate and rngSeed can")
        node = self.root_function
        node.node_attributes[name] = value
        if name == "rngSeed":
            node.node_attributes["rngOffset"] = 0
            node.seedings += 1
        edit.note_edit()

    def declare_args(self, *arg_types: Any) -> None:
        """Replace the placeholders by new ones of the given types; None leaves a placeholder unchanged.

        Errors: TypeError for more types than placeholders.
        """
        placeholders = self.placeholders
        if len(placeholders) < len(arg_types):
            raise TypeError(
                f"{self!r} has {len(placeholders)} placeholders, got {len(arg_types)} types: pass at most one for each"
            )
        self.replace_placeholders({
            p: placeholder_of_type(t, p.name) for p, t in zip(placeholders, arg_types, strict=False) if t is not None
        })

    def update_signature(self, *arg_types: Any, **kwarg_types: Any) -> None:
        """Declare the types of the arguments, as in ``f.update_signature(Tensor[3])``; dependent shapes are inferred.

        Each argument needs a type, which is None for those that are not declared.

        Errors: TypeError for another number of types, two for one argument, an unknown name, or another type than was
        declared.
        """
        count = len(arg_types) + len(kwarg_types)
        if count != len(self.signature):
            raise TypeError(f"CNTK Function expected {len(self.signature)} arguments, got {count}")
        mapped = dict(zip(self.signature, arg_types, strict=False))
        further = {v.name: v for v in self.signature[len(arg_types):]}
        if unknown := kwarg_types.keys() - further.keys():
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}; it can be {', '.join(further)}")
        mapped |= {further[name]: kind for name, kind in kwarg_types.items()}
        inputs = {v: input_of_type(t, v.name) for v, t in mapped.items() if t is not None}
        check_types(inputs)
        self.replace_placeholders(inputs)

    # ---- files
    def save(
        self, filename: str | os.PathLike[str], format: ModelFormat = ModelFormat.CNTKv2,
        use_external_files_to_store_parameters: bool = False, *, opset: int = 9,
    ) -> None:
        """Save the graph and the values of its parameters in CNTK's format or as an ONNX model.

        For ONNX, `use_external_files_to_store_parameters` writes the parameters to a second file, and `opset` is the
        version of the operator set: 9 like CNTK, with a batch size of 1, or up to 21, with any batch size.
        """
        if format is ModelFormat.ONNX:
            registry.of("ONNX").save(self, filename, opset, use_external_files_to_store_parameters)
        else:
            model_files.save(self, filename, format)

    def restore(self, filename: Source) -> None:
        """Restore the values of the parameters from a file that was saved from the same graph."""
        model_files.restore(self, filename)

    @staticmethod
    def load(
        model: Source, device: Device = None, format: ModelFormat = ModelFormat.CNTKv2, *,
        udf_factory_callback_map: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Function:
        """Load a graph in CNTK's format, or an ONNX model, from a path, bytes or a file object.

        `udf_factory_callback_map`: for each class 'module.Class' of user functions in this file a callback
        ``f(inputs, name, state)`` that creates them; `register_udf_deserialize_callback` registers one for all files.
        """
        if format is ModelFormat.ONNX:
            return registry.of("ONNX").load(model)  # type: ignore[return-value]
        with udf_callbacks(udf_factory_callback_map or {}):
            return model_files.load(model, format)  # type: ignore[return-value]

    register_udf_deserialize_callback = staticmethod(register_udf_deserialize_callback)


@public_operation
def BlockFunction(op_name: str, name: str) -> Callable[[Callable[..., Any]], Function]:
    """Decorator like `Function` that creates a block: a single operation in the graph and in model files.

    >>> import cntkjax as C
    >>> @BlockFunction('Double', 'twice')
    ... def double(x):
    ...     return x + x
    >>> double(C.input_variable(2)).root_function.op_name
    'Double'
    """
    return lambda f: from_python(f, make_block=True, op_name=op_name, name=name)


@public_operation
def load_model(model: Source, device: Device = None, format: ModelFormat = ModelFormat.CNTKv2) -> Function:
    """Load a graph from a path, bytes or a file object; see `Function.load`.

    Errors: those of `Function.load`: a file that is missing, damaged or of another format.

    >>> import os, tempfile
    >>> import cntkjax as C
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     C.layers.Dense(2, name='scores')(C.input_variable(3)).save(os.path.join(folder, 'dense.model'))
    ...     load_model(os.path.join(folder, 'dense.model')).name
    'scores'
    """
    return Function.load(model, device, format)


def _only(matches: list[Any], name: str) -> Node | Edge:
    if len(matches) > 1:
        raise ValueError(f'multiple items are called "{name}": find_all_with_name returns all {len(matches)}')
    return matches[0]


def _of_graph(item: object) -> Variable:
    """The variable of a substitution; numbers are not accepted. As in CNTK, AttributeError for None."""
    if item is None:
        raise AttributeError("clone: a substitution is None, not a variable: check the result of find_by_name for None")
    if not isinstance(item, (Edge, Node)):
        raise TypeError(
            f"clone: a substitution must be a variable or a function, got {item!r}: wrap data in cntk.constant(...)"
        )
    return as_variable(item)


def cloned_leaf(leaf: Leaf, method: CloneMethod) -> Leaf:
    """The counterpart in a clone of a parameter or constant of the original."""
    if method is CloneMethod.share:
        return leaf
    kind = Constant if method is CloneMethod.freeze else type(leaf)
    array = _copy(value_of(leaf)) if has_value(leaf) else None
    return kind._new(  # type: ignore[attr-defined]
        VariableKind.Parameter if kind is Parameter else VariableKind.Constant, leaf.shape, leaf.dtype,
        array=array, initializer=initializer_of(leaf), name=leaf.name,
        needs_gradient=kind is Parameter,
    )


def _copy(array: AnyArray) -> AnyArray:
    """A copy of the same precision, whatever jax computes in."""
    return array.copy() if isinstance(array, np.ndarray) else device_copy(array)


classes.function = Function._new


def _identity() -> Function:
    # With CNTK's ids for it, which come before those of the user's graph.
    keep = Variable._new(VariableKind.Placeholder, UNKNOWN_SHAPE, None, UNKNOWN_AXES, name="keep", uid="Placeholder0")
    return composite(make_node(Combine, [keep], {}, uid="Combine1"), uid="CompositeFunction2")  # type: ignore[return-value]


identity = _identity()
__all__ = [
    "BlockFunction", "CloneMethod", "Function", "ModelFormat", "Record", "identity", "load_model",
    "native_user_function", "register_native_user_function",
]
