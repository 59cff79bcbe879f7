"""Names that CNTK's modules have only because they import them, and that scripts came to use."""

from __future__ import annotations

import sys
from importlib import import_module

# What, by where it is at home, and the modules that show it too.
_SHOWN_IN = {
    "": {"C": "layers layers.layers layers.models layers.models.attention losses", "cntk": "io ops.functions"},
    "core": {"core": "logging logging.progress_print"},
    "core:NDArrayView": {"NDArrayView": "variables"},
    "core:Value": {"Value": "ops.functions"},
    "default_options:default_override_or": {"default_override_or": "ops"},
    "default_options:get_default_override": {"get_default_override": "ops"},
    "device:DeviceDescriptor": {"DeviceDescriptor": "variables ops.functions"},
    "device:cpu": {"cpu": "logging logging.progress_print ops.functions"},
    "device:use_default_device": {"use_default_device": "ops variables"},
    "io:INFINITELY_REPEAT": {"INFINITELY_REPEAT": "ops"},
    "ops:user_function": {"user_function": "core"},
    "variables:Variable": {"Variable": "logging logging.graph"},
}


def show() -> None:
    """Put the names where CNTK has them; called when all modules are there."""
    package = __package__
    for home, names in _SHOWN_IN.items():
        module, _, attribute = home.partition(":")
        found = import_module(f".{module}", package) if module else sys.modules[package]
        for name, places in names.items():
            for place in places.split():
                setattr(import_module(f".{place}", package), name, getattr(found, attribute) if attribute else found)
