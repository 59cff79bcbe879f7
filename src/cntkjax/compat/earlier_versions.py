"""Modules and names of scripts for earlier versions of CNTK, with what CNTK 2.7 has in their place.

Source: the release notes of CNTK 2.0, its beta versions and release candidates, and what users reported as missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULES = {
    "blocks": "cntk.layers",
    "distributed": "cntk.train.distributed",
    "learner": "cntk.learners",
    "models": "cntk.layers",
    "persist": "cntk.load_model and the method save of a function",
    "trainer": "cntk.train",
    "training_session": "cntk.train",
    "utils": "cntk.logging for ProgressPrinter and log_number_of_parameters, cntk.Value.one_hot, "
    "and trainer.previous_minibatch_loss_average for get_train_loss(trainer)",
}
_NAMES = {
    "LayerStack": "For, as in For(range(2), lambda: Dense(3))",
    "StreamConfiguration": "cntk.io.StreamDef",
    "adam_sgd": "cntk.adam",
    "find_nodes_by_name": "find_all_with_name",
    "future_value": "cntk.sequence.future_value",
    "gaussian": "cntk.normal",
    "learning_parameter_per_sample": "cntk.learning_parameter_schedule_per_sample",
    "learning_rates_per_sample": "cntk.learning_parameter_schedule_per_sample",
    "momentums_per_sample": "cntk.momentum_schedule_per_sample",
    "output_function_graph": "cntk.logging.graph.plot",
    "past_value": "cntk.sequence.past_value",
    "placeholder_variable": "cntk.placeholder",
    "reduce_log_sum": "cntk.reduce_log_sum_exp",
    "save_model": "the method save of a function",
    "select_last": "cntk.sequence.last",
    "set_default_device": "cntk.try_set_default_device",
    "text_format_minibatch_source": "cntk.io.MinibatchSource(cntk.io.CTFDeserializer(file, cntk.io.StreamDefs(...)))",
}
_HOMES = "", ".device", ".initializer", ".io", ".layers", ".learners", ".logging.graph", ".ops", ".ops.sequence"
_PACKAGE = __name__.partition(".")[0]


class _Finder(MetaPathFinder):
    """Finds no module, but says what became of one, or of a name that is imported from a package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package in ("cntk", _PACKAGE):
            if name in _MODULES:
                name, new = "cntk." + name, _MODULES[name]
                raise ModuleNotFoundError(f"No module named {name!r}: CNTK 2.7 has {new}", name=name)
            name = name.rpartition(".")[2]
            if name in _NAMES:
                raise ImportError(f"cannot import name {name!r}: CNTK 2.7 has {_NAMES[name]}", name=fullname)
        return None


def explain_names() -> None:
    """Let the errors for names that are missing in the package's modules say what CNTK 2.7 has in their place."""
    sys.meta_path.append(_Finder())  # the last one, for what nothing else finds
    for home in _HOMES:
        _explain_attributes_of(sys.modules[_PACKAGE + home])


def _explain_attributes_of(module: ModuleType) -> None:
    load = vars(module).get("__getattr__")  # of names that are loaded at their first use

    def attribute(name: str) -> object:
        if new := _NAMES.get(name) or _MODULES.get(name):
            message = f"module {module.__name__!r} has no attribute {name!r}: CNTK 2.7 has {new}"
            raise AttributeError(message, name=name, obj=module)
        if load is not None:
            return load(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    module.__getattr__ = attribute  # type: ignore[method-assign]
