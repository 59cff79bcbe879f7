"""Settings of agents in configuration files."""

from __future__ import annotations

from configparser import ConfigParser
from typing import TYPE_CHECKING, Any, ClassVar

GENERAL = {
    "gamma": ("General", "Gamma", 0.95),
    "preprocessing": ("General", "PreProcessing", ""),
    "preprocessing_args": ("General", "PreProcessingArgs", "()"),
}
OPTIMIZATION = {
    "initial_eta": ("Optimization", "InitialEta", 0.001),
    "eta_decay_step_count": ("Optimization", "EtaDecayStepCount", 100000),
    "eta_minimum": ("Optimization", "EtaMinimum", 0.001),
    "momentum": ("Optimization", "Momentum", 0.95),
}


class Settings:
    """Attributes read from the sections of a file; missing ones have defaults. '' reads no file.

    Errors: ValueError for an option that should be a number and is not.
    """

    table: ClassVar[dict[str, tuple[str, str, Any]]]  # attribute: section, option, default, whose type is the option's

    def __init__(self, config_file: str) -> None:
        self.config = ConfigParser()
        self.config.optionxform = str  # type: ignore[assignment, method-assign]  # options are case-sensitive, as in CNTK
        self.config.read(config_file)
        for attribute, (section, option, default) in self.table.items():
            setattr(self, attribute, self._value(section, option, default))

    def _value(self, section: str, option: str, default: bool | int | float | str) -> bool | int | float | str:
        if isinstance(default, bool):
            return self.config.getboolean(section, option, fallback=default)
        return type(default)(self.config.get(section, option, fallback=default))

    if TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Any: ...  # the attributes of the table

    def save(self, config_file: str) -> None:
        """Write the options that were read, without defaults."""
        with open(config_file, "w") as file:
            self.config.write(file)
