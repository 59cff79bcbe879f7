"""Names that CNTK's modules have only because they import them, and that scripts rely on."""

from __future__ import annotations

import sys
from importlib import import_module

# By home module and attribute: the name, and the other modules that have it.
_SHOWN_IN = {
    "": {
        "C": "layers layers.layers layers.models layers.models.attention losses misc misc.converter "
        "misc.optimized_rnnstack_converter",
        "cntk": "io ops.functions",
    },
    "core": {"core": "logging logging.progress_print"},
    "core:NDArrayView": {"NDArrayView": "variables"},
    "core:Value": {"Value": "ops.functions"},
    "default_options:default_override_or": {"default_override_or": "ops"},
    "default_options:get_default_override": {"get_default_override": "ops"},
    "device:DeviceDescriptor": {"DeviceDescriptor": "variables ops.functions"},
    "device:cpu": {"cpu": "core logging logging.progress_print ops.functions"},
    "device:use_default_device": {"use_default_device": "ops variables"},
    "io:INFINITELY_REPEAT": {"INFINITELY_REPEAT": "ops"},
    "ops.sequence": {"sequence": "layers"},  # not layers.sequence, which is imported by its full name only
    "ops:user_function": {"user_function": "core"},
    "ops._user_functions:UserFunction": {"UserFunction": "ops.functions"},
    "variables:Variable": {"Variable": "logging logging.graph"},
    "compat.cntk_py": {
        "cntk_py": "axis core debugging debugging.debug debugging.profiler device eval eval.evaluator initializer "
        "internal internal.sanitize internal.swig_helper internal.utils io io.transforms learners logging "
        "logging.progress_print ops ops.functions train train.distributed train.trainer train.training_session "
        "variables",
    },
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
    "internal.sanitize:_as_tuple": {"_as_tuple": "layers.typing ops.functions train.training_session"},
    "internal.sanitize:np": {
        "np": ". contrib internal io layers layers.sequence layers.typing learners losses misc ops random",
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


def show() -> None:
    """Set the names in the modules that have them in CNTK; called when all modules are imported."""
    package = __package__.rpartition(".")[0]
    for name in ("cntk_py", "cntk_py_init"):  # CNTK has these modules beside its packages
        sys.modules[f"{package}.{name}"] = import_module(f".{name}", __package__)
    for home, names in _SHOWN_IN.items():
        module, _, attribute = home.partition(":")
        source = import_module(f".{module}", package) if module else sys.modules[package]
        for name, places in names.items():
            for place in places.split():
                target = sys.modules[package] if place == "." else import_module(f".{place}", package)
                setattr(target, name, getattr(source, attribute) if attribute else source)
