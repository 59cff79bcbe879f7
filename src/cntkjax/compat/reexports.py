"""Names that CNTK's modules have only because they import them, and that scripts rely on.

CNTK's modules have no ``__all__``, so ``from cntk.debugging import *`` brings the `sys` that the module imports, too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

# By home module and attribute: the name, and the other modules that have it.
_SHOWN_IN = {
    "": {
        "C": "internal internal.sanitize layers layers.layers layers.models layers.models.attention losses misc "
        "misc.converter misc.optimized_rnnstack_converter",
        "cntk": "internal io ops.functions",
    },
    "axis:Axis": {"Axis": "internal"},
    "core": {"core": "logging logging.progress_print"},
    "core:NDArrayView": {"NDArrayView": "internal.utils learners variables"},
    "core:Value": {"Value": "io ops.functions"},
    "core:asarray": {"asarray": "learners"},
    "debugging.debug": {"debug": "debugging"},
    "debugging.profiler": {"profiler": "debugging"},
    "default_options:default_override_or": {"default_override_or": "layers.sequence ops variables"},
    "default_options:get_default_override": {"get_default_override": "layers.sequence ops variables"},
    "device:DeviceDescriptor": {"DeviceDescriptor": "variables ops.functions"},
    "device:cpu": {"cpu": "core logging logging.progress_print ops.functions"},
    "device:use_default_device": {"use_default_device": "io ops variables"},
    "io:INFINITELY_REPEAT": {"INFINITELY_REPEAT": "ops"},
    "logging.progress_print": {"progress_print": "logging"},
    "logging:TraceLevel": {"TraceLevel": "io"},
    "logging:get_trace_level": {"get_trace_level": "io"},
    "ops.sequence": {"sequence": "layers"},  # not layers.sequence, which is imported by its full name only
    "ops:user_function": {"user_function": "core"},
    "ops._user_functions:UserFunction": {"UserFunction": "ops.functions"},
    "tensor:ArrayMixin": {"ArrayMixin": "io"},
    "tensor:TensorOpsMixin": {"TensorOpsMixin": "variables"},
    "variables:Variable": {"Variable": "logging logging.graph ops.functions"},
    "compat.cntk_py": {
        "cntk_py": "axis core debugging debugging.debug debugging.profiler device eval eval.evaluator initializer "
        "internal internal.sanitize internal.swig_helper internal.utils io io.transforms learners logging "
        "logging.progress_print ops ops.functions train train.distributed train.trainer train.training_session "
        "variables",
    },
    "compat.cntk_py:DictionaryValue": {"DictionaryValue": "internal.utils"},
    "compat.cntk_py:NDShape": {"NDShape": "layers layers.layers"},
    "internal.utils": {"utils": ". internal learners"},
    "internal.swig_helper:typemap": {
        "typemap": ". axis core device eval eval.evaluator internal.sanitize io learners losses metrics ops "
        "ops.functions ops.sequence random train train.distributed train.trainer train.training_session variables",
    },
    "internal.swig_helper:map_if_possible": {"map_if_possible": ". debugging debugging.debug learners ops.functions"},
    "internal.utils:get_data_type": {"get_data_type": ". losses metrics ops ops.sequence"},
    "internal.utils:get_python_function_arguments": {
        "get_python_function_arguments": "layers layers.typing ops.functions",
    },
    "internal.utils:_py_dict_to_cntk_dict": {"_py_dict_to_cntk_dict": "io ops.functions train.trainer"},
    "internal.sanitize:data_type_to_dtype": {"data_type_to_dtype": ". core"},
    "internal.sanitize:is_byte_buffer": {"is_byte_buffer": "ops.functions"},
    "internal.sanitize:is_string": {"is_string": "io"},
    "internal.sanitize:_as_tuple": {
        "_as_tuple": "layers.blocks layers.layers layers.typing ops.functions train.training_session",
    },
    "internal.sanitize:np": {
        "np": ". contrib core internal io layers layers.layers layers.sequence layers.typing learners losses misc ops "
        "random variables",
    },
}

# Checks of arguments, from internal.sanitize.
_SANITIZERS = {
    "2d_number": "io.transforms",
    "axis": ". losses metrics ops",
    "axis_list": ". ops",
    "batch": ". core ops.functions",
    "convolution_args": ". ops",
    "dtype_cntk": ". io ops ops.functions variables",
    "dynamic_axes": ". losses ops variables",
    "function": ". eval eval.evaluator train train.trainer train.training_session",
    "input": ". losses metrics ops ops.sequence random",
    "multi_axis_reduction_list": ". ops",
    "permutation": ". ops",
    "pooling_args": ". ops",
    "precision": "variables",
    "random_args": "random",
    "range": "io.transforms",
    "shape": ". layers layers.typing losses ops variables",
    "value": "variables",
    "variables_or_functions": "ops.functions",
}
_SHOWN_IN |= {f"internal.sanitize:sanitize_{n}": {f"sanitize_{n}": places} for n, places in _SANITIZERS.items()}


# The same for Python's own modules.
_OF_PYTHON = {
    "__future__:division": {
        "division": ". debugging layers layers.blocks layers.layers layers.models layers.models.attention "
        "layers.sequence logging logging.progress_print losses metrics ops random",
    },
    "__future__:print_function": {
        "print_function": ". debugging logging logging.progress_print losses metrics ops random sample_installer",
    },
    "collections": {"collections": "internal internal.sanitize ops.functions"},
    "collections:defaultdict": {"defaultdict": "debugging debugging.debug"},
    "ctypes": {"ctypes": ". train train.distributed"},
    "enum": {"enum": ". train train.training_session"},
    "enum:Enum": {"Enum": ". device learners logging ops.functions train train.training_session"},
    "enum:unique": {"unique": ". device learners logging ops.functions train train.training_session"},
    "functools:wraps": {"wraps": "internal.swig_helper"},
    "numbers": {"numbers": ". core internal ops"},
    "numpy:float32": {"DATATYPE": "."},
    "os": {"os": "logging logging.graph sample_installer"},
    "os.path": {"path": "ops.functions"},
    "platform": {"platform": ". train train.distributed"},
    "string": {"string": "sample_installer"},
    "sys": {
        "sys": "debugging debugging.debug logging logging.graph logging.progress_print ops.functions "
        "sample_installer train train.training_session",
    },
    "textwrap": {"textwrap": "sample_installer"},
    "time": {"time": "logging logging.progress_print"},
    "types:FunctionType": {"FunctionType": "layers"},
    "urllib.request:urlretrieve": {"urlretrieve": "sample_installer"},
    "uuid": {"uuid": "io"},
    "warnings": {"warnings": ". core io learners ops.functions sample_installer tensor"},
    "warnings:warn": {"warn": "layers layers.models layers.models.attention"},
    "zipfile": {"zipfile": "sample_installer"},
}


def _module(name: str) -> ModuleType:
    """A module of the package by its name there, "." or "" for the package itself."""
    package = __package__.rpartition(".")[0]
    return sys.modules[package] if name in ("", ".") else import_module(f".{name}", package)


def _set(target: ModuleType, name: str, value: object) -> None:
    setattr(target, name, value)
    _export(target, name)


def _export(target: ModuleType, name: str) -> None:
    """Let ``from target import *`` bring a name, as it does where there is no ``__all__``."""
    exported = getattr(target, "__all__", None)
    if exported is not None and name not in exported and not name.startswith("_"):
        target.__all__ = [*exported, name]  # type: ignore[attr-defined]


def _show_sparse(target: ModuleType) -> None:
    """Set ``sparse``, which is SciPy's: loaded at first use, since it takes longer than all other names together."""

    def load(name: str) -> object:
        if name != "sparse":
            raise AttributeError(f"module {target.__name__!r} has no attribute {name!r}")
        return import_module("scipy.sparse")

    target.__getattr__ = load  # type: ignore[method-assign]
    _export(target, "sparse")


def show() -> None:
    """Set the names in the modules that have them in CNTK; called when all modules are imported."""
    package = __package__.rpartition(".")[0]
    for name in ("cntk_py", "cntk_py_init"):  # CNTK has these modules beside its packages
        sys.modules[f"{package}.{name}"] = import_module(f".{name}", __package__)
    for table, load in ((_SHOWN_IN, _module), (_OF_PYTHON, import_module)):
        for home, names in table.items():
            module, _, attribute = home.partition(":")
            source = load(module)
            for name, places in names.items():
                for place in places.split():
                    _set(_module(place), name, getattr(source, attribute) if attribute else source)
    for place in (".", "core", "tensor"):
        _show_sparse(_module(place))
