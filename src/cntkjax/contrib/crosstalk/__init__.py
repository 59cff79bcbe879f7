"""Exchange of parameters and results between toolkits: named variables, whose values are files in a folder.

A script of each toolkit watches its variables under the same names. One saves them, the other one loads them or
compares its own values with them. ``crosstalk_cntk.instance`` does this for graphs of this package; for another
toolkit, register functions that get and set the values of its types with a ``Crosstalk``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from . import _files

Raw: TypeAlias = Any  # an array, a list or dict of arrays, or a tuple such as RnnArgs


class Conv2DArgs(NamedTuple):
    """Parameters of a convolution. Shapes: W [filters, *filter_shape] for one input channel; b [filters]."""

    W: Any
    b: Any


class Conv2DAttr(NamedTuple):
    """The convolution that is watched: the shape of its filter and their number."""

    filter_shape: Any
    num_filters: Any


class EmbedAttr(NamedTuple):
    """The embedding that is watched: the word of each row, as a list or a dict by row, and their number."""

    dict: Any
    input_dim: Any


class RnnArgs(NamedTuple):
    """Parameters of a bidirectional LSTM, forward and backward; gates in CNTK's order: input, cell, forget, output.

    Shapes: W [input_dim, 4 * hidden_dim], H [hidden_dim, 4 * hidden_dim], b [4 * hidden_dim].
    """

    fw_W: Any
    fw_H: Any
    fw_b: Any
    bw_W: Any
    bw_H: Any
    bw_b: Any


for _pickled in (Conv2DArgs, RnnArgs):
    _pickled.__module__ = "cntk.contrib.crosstalk"  # the name under which pickles refer to them, CNTK's own as well


class RnnAttr(NamedTuple):
    """The recurrence that is watched. ``op_type`` is CNTK's name, 'lstm'; ``forget_bias`` is for other toolkits."""

    bidirectional: Any
    op_type: Any
    input_dim: Any
    hidden_dim: Any
    forget_bias: Any


class _FuncInfo(NamedTuple):
    """How a type of variables is set and read."""

    setter: Callable[[Any, Raw, Any], object] | None
    getter: Callable[[Any, Any], Raw] | None


class _VarInfo(NamedTuple):
    """A variable that is watched."""

    var: Any
    type: Any
    attr: Any


class Crosstalk:
    """Named variables of a toolkit, saved to and loaded from a folder.

    Errors: KeyError for a name that is not watched or a type without registered functions; ValueError for values that
            do not fit; FileNotFoundError for a name without a file.

    >>> import numpy as np, tempfile
    >>> weights = {"layer": np.zeros(2)}
    >>> crosstalk = Crosstalk()
    >>> crosstalk.register_funcs(dict, getter=lambda var, name: var[name], setter=lambda var, w, name:
    ...                          var.update({name: w}))
    >>> crosstalk.watch(weights, "w", attr="layer")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     crosstalk.set_workdir(folder)
    ...     crosstalk.save(["w"])
    ...     crosstalk.assign("w", np.ones(2))
    ...     crosstalk.compare("w"), crosstalk.load(["w"]), weights
    (False, None, {'layer': array([0., 0.])})
    """

    def __init__(self) -> None:
        self.funcs: dict[Any, _FuncInfo] = {}
        self.vars: dict[str, _VarInfo] = {}
        self.passes = 0
        self.work_dir: str | None = None

    def set_workdir(self, dir: str) -> None:
        """Set the folder of the files; it is created if needed."""
        os.makedirs(dir, exist_ok=True)
        self.work_dir = dir

    def register_funcs(
        self,
        var_type: object,
        setter: Callable[[Any, Raw, Any], object] | None = None,
        getter: Callable[[Any, Any], Raw] | None = None,
    ) -> None:
        """Register how variables of a type, or of any other key, are read and set.

        Args:
            var_type: the type
            setter: function of the variable, a value and the attributes given to ``watch``
            getter: function of the variable and the attributes
        """
        self.funcs[var_type] = _FuncInfo(setter, getter)

    def watch(self, var: object, name: str, var_type: object = None, attr: object = None) -> None:
        """Give a variable a name.

        Args:
            var: the variable
            name: its name
            var_type: the key of its functions, by default its type
            attr: what these functions have to know, such as a ``Conv2DAttr``, ``EmbedAttr`` or ``RnnAttr``
        """
        if name in self.vars:
            raise ValueError(f"var with name {name} already exists; choose another name, or call reset")
        self.vars[name] = _VarInfo(var, type(var) if var_type is None else var_type, attr)

    def is_param(self, name: str) -> bool:
        """Whether a variable is a parameter, which can be set. Here all are; toolkits have others as well."""
        return name in self.vars

    def fetch(self, name: str, save: bool = False) -> Raw:
        """The value of a variable, which is also saved if ``save`` is true."""
        var, var_type, attr = self.vars[name]
        getter = self.funcs[var_type].getter
        if getter is None:
            raise TypeError(f"fetch: no getter is registered for {var_type}; call register_funcs")
        value = getter(var, attr)
        if save:
            _files.save(self._get_filename(name), value)
        return value

    def assign(self, name: str, value: Raw = None, load: bool = False, load_name: str | None = None) -> None:
        """Set a variable.

        Args:
            name: its name
            value: the value, of the type and shape that ``fetch`` returns
            load: load the value instead
            load_name: the name of its file, if it is another one
        """
        if load:
            if value is not None:
                raise ValueError(f"assign: either a value for {name}, or load=True")
            value = self.load_raw_value(load_name or name)
        original = self.fetch(name)
        if not isinstance(value, type(original)):
            raise ValueError(
                f"cannot assign with different types: original {type(original)}, new {type(value)}; give {name} a "
                "value of the type that fetch returns"
            )
        if isinstance(original, np.ndarray) and original.shape != value.shape:
            raise ValueError(f"different shape, expected {original.shape} actual {value.shape} for {name}")
        var, var_type, attr = self.vars[name]
        setter = self.funcs[var_type].setter
        if setter is None:
            raise TypeError(f"assign: {name} is a {var_type}, which has no setter; only parameters can be set")
        setter(var, value, attr)

    def load_raw_value(self, name: str) -> Raw:
        """The value in the file of a name."""
        return _files.load(self._get_filename(name), name)

    def compare(
        self, name: str, compare_name: str | None = None, rtol: float = 1e-5, atol: float = 1e-8,
        equal_nan: bool = False,
    ) -> bool:
        """Whether a variable is close to the value in a file.

        Args:
            name: its name
            compare_name: the name of the file, if it is another one
            rtol: relative tolerance, as in ``numpy.isclose``
            atol: absolute tolerance
            equal_nan: NaN equals NaN
        """
        actual, expected = self.fetch(name), self.load_raw_value(compare_name or name)
        return _close(actual, expected, rtol, atol, equal_nan)

    def save(self, names: Iterable[str]) -> None:
        """Save the variables of these names; others are ignored."""
        for name in names:
            if name in self.vars:
                self.fetch(name, save=True)

    def load(self, names: Iterable[str]) -> None:
        """Set the variables of these names to the values in their files; other names are ignored."""
        for name in names:
            if name in self.vars:
                self.assign(name, load=True)

    def save_all(self) -> None:
        """Save all variables."""
        self.save(self.vars)

    def save_all_params(self) -> None:
        """Save all parameters."""
        self.save(self._parameters())

    def load_all_params(self) -> None:
        """Load all parameters."""
        self.load(self._parameters())

    def _parameters(self) -> list[str]:
        return [name for name in self.vars if self.is_param(name)]

    def next_pass(self) -> None:
        """Use other files from now on: the name of a file begins with the number of the pass."""
        self.passes += 1

    def reset(self) -> None:
        """Forget all variables and start with pass 0; the registered functions stay."""
        self.vars, self.passes = {}, 0

    def _get_filename(self, name: str) -> str:
        """Path of a file, without its extension."""
        if self.work_dir is None:
            raise AttributeError("Crosstalk has no folder yet; call set_workdir(folder) first")
        return os.path.join(self.work_dir, f"{self.passes}_{name}")


def _close(actual: Raw, expected: Raw, rtol: float, atol: float, equal_nan: bool) -> bool:
    tolerance = rtol, atol, equal_nan
    if isinstance(actual, list) and isinstance(expected, np.ndarray):
        return _compare_list_to_ndarray(actual, expected, *tolerance)
    if isinstance(actual, np.ndarray) and isinstance(expected, list):
        return _compare_list_to_ndarray(expected, actual, *tolerance)
    if not all(isinstance(value, (np.ndarray, list, Mapping)) for value in (actual, expected)):
        raise ValueError(
            "can only compare numpy.ndarray, list of numpy.ndarray or dict of numpy.ndarray, not "
            f"{type(actual).__name__} and {type(expected).__name__}; compare their parts"
        )
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return bool(np.isclose(actual, expected, *tolerance).all())
    if type(actual) is not type(expected) or len(actual) != len(expected):
        raise ValueError(f"mismatch length or type: {type(actual).__name__} of {len(actual)} and "
                         f"{type(expected).__name__} of {len(expected)} values")
    if isinstance(actual, list):
        pairs = list(zip(actual, expected, strict=True))
    elif actual.keys() != expected.keys():
        raise ValueError(f"mismatch of keys: {sorted(actual)} and {sorted(expected)}")
    else:
        pairs = [(value, expected[key]) for key, value in actual.items()]
    return all(bool(np.isclose(a, b, *tolerance).all()) for a, b in pairs)


def _compare_list_to_ndarray(
    list_of_arrays: list[np.ndarray], array: np.ndarray, rtol: float, atol: float, equal_nan: bool
) -> bool:
    """Whether sequences are close to an array of padded ones; prints the first difference.

    Shapes: [time, *shape] each; array [batch, longest time or more, *shape].
    """
    if len(list_of_arrays) != len(array):
        raise ValueError(f"mismatch batch size: {len(list_of_arrays)} and {len(array)} sequences")
    for i, (sequence, padded) in enumerate(zip(list_of_arrays, array, strict=True)):
        for row, (a, b) in enumerate(zip(sequence, padded, strict=False)):
            if not np.isclose(a, b, rtol, atol, equal_nan).all():
                print(f"mismatch found at item {i} row {row}")
                return False
    return True
