"""The values of a block: given or by default, with where each came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..configuration import Block, ConfigError, Place, Text
from ..parallel import workers
from ._expressions import Names, Value, parse_value
from ._given import Assignment, by_key
from .keys import BY_ID, KEYS, SECTIONS, Key
from .schedule import Schedule, combine, momentum_time_constant, rate_per_sample, single_precision

_BYTES = {"float": 4.0, "double": 8.0}
_EXCLUSIVE = (
    ("learningRatesPerSample", "learningRatesPerMB"), ("momentumAsTimeConstant", "momentumPerMB"),
)
DEFAULT_MOMENTUM = 0.9  # per minibatch, where no key says it: CNTK's logs show it, its page does not
_NO_MOMENTUM = ("adagrad", "rmsProp")


@dataclass(frozen=True)
class Setting:
    """A resolved value, and where it came from. The value is None for a key without value and default."""

    key: Key
    value: Value | None
    origin: Place | None  # None for a default

    @property
    def origin_text(self) -> str:
        """Where it came from, in words."""
        return "default" if self.origin is None else str(self.origin)


class BlockSettings:
    """The values of all keys. `overrides` precede what is `given`, and that precedes what the block `outer` assigns.

    `precision`: the type of numbers, ``float`` or ``double``.
    Errors: ConfigError for unknown keys, values that are not allowed, and keys that contradict each other.
    """

    def __init__(
        self, given: Iterable[Assignment], overrides: Iterable[Assignment] = (), outer: Block | None = None,
        precision: str = "float",
    ) -> None:
        self._texts = by_key(given) | by_key(overrides)
        for key in KEYS:
            text = outer.get(key.name) if outer is not None and key.id not in self._texts else None
            if text is not None and text.content[:1] not in ("[", "{"):
                self._texts[key.id] = text
        self._precision = precision.lower()
        self._settings: dict[str, Setting] = {}
        self._resolving: list[str] = []
        for key in KEYS:
            self._resolve(key)
        self._check()

    # ---- access
    def __getitem__(self, key_id: str) -> Any:
        """The value of a key; None if it has none."""
        return self._settings[key_id].value

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def is_given(self, key_id: str) -> bool:
        """Whether a value was given; otherwise it is the default."""
        return key_id in self._texts

    def required(self, key_id: str) -> Any:
        """The value of a key. Errors: ConfigError if it has none."""
        if self[key_id] is None:
            raise ConfigError(f"the SGD block has no {key_id}: give {BY_ID[key_id].allowed}")
        return self[key_id]

    # ---- derived values
    @property
    def rates(self) -> Schedule[float] | None:
        """Learning rates per sample by epoch; None if none were given."""
        if self["learningRatesPerMB"] is not None:
            return combine(_per_sample, self["learningRatesPerMB"], self["minibatchSize"])
        return self["learningRatesPerSample"]

    @property
    def momentum(self) -> Schedule[float]:
        """The momentum as time constants in samples, by epoch; 0 for none."""
        if self["gradUpdateType"] in _NO_MOMENTUM:
            return Schedule(((1, 0.0),))
        if self["momentumPerMB"] is not None:
            return combine(_time_constant, self["momentumPerMB"], self["minibatchSize"])
        if self["momentumAsTimeConstant"] is not None:
            return Schedule(tuple(
                (epochs, single_precision(constant)) for epochs, constant in self["momentumAsTimeConstant"].entries
            ))
        return combine(_time_constant, Schedule(((1, DEFAULT_MOMENTUM),)), self["minibatchSize"])

    @property
    def search_minibatches(self) -> int:
        """The minibatches for trials of rates and sizes, by the size that the first epoch has."""
        samples, size = self["numSamples4Search"], self["minibatchSize"].at(0)
        return max(samples // size, 1) if samples else self["numMiniBatch4LRSearch"]

    # ---- resolution
    def _resolve(self, key: Key) -> Value | None:
        if key.id in self._settings:
            return self._settings[key.id].value
        text = self._texts.get(key.id)
        if key.id in self._resolving:
            assert text is not None
            raise text.at(0).error(f"{key.name} refers to itself; write a number")
        self._resolving.append(key.id)
        origin = None if text is None else text.at(0)
        if text is None and key.default is not None:
            text = Text(f"default of {key.name}", key.default)
        value = None if text is None else parse_value(key, text, self._scope(key))
        self._resolving.pop()
        self._settings[key.id] = Setting(key, value, origin)
        return value

    def _scope(self, key: Key) -> Names:
        number = float(workers.size())
        known = {
            "infinity": math.inf, "inf": math.inf, "#workers": number, "workers": number, **_BYTES,
            "precision": _BYTES.get(self._precision, 4.0),
        }

        def number_of(name: str) -> float:
            near = (key.section, key.section[:-1], ())
            other = next((k for k in KEYS if k.name.lower() == name.lower() and k.section in near), None)
            value = None if other is None else self._resolve(other)
            number = value.at(0) if isinstance(value, Schedule) else value
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise KeyError(name)
            return number

        return Names(known, number_of)

    def _check(self) -> None:
        for first, second in _EXCLUSIVE:
            if self[first] is not None and self[second] is not None:
                other = self._settings[first].origin_text
                raise self._error(second, f"{second} and {first} ({other}) exclude each other: give one of them")
        kind = self["gradUpdateType"]
        if self["useNAG"] and kind not in ("", "none"):
            problem = f"useNAG = true is for plain gradients, not for gradUpdateType = {kind}: leave out one of them"
            raise self._error("useNAG", problem)
        for low, high in (("rms_wgt_min", "rms_wgt_max"), ("minibatchSize", "minibatchSizeTuningMax")):
            is_used = kind == "rmsProp" if low.startswith("rms") else self["autoAdjustMinibatch"]
            least = max(v for _, v in self[low].entries) if isinstance(self[low], Schedule) else self[low]
            if is_used and least > self[high]:
                raise self._error(high, f"{high} = {self[high]:g} is smaller than {low} = {least:g} "
                                        f"({self._settings[low].origin_text}): give a larger one")

    def _error(self, key_id: str, problem: str) -> ConfigError:
        origin = self._settings[key_id].origin
        return ConfigError(problem) if origin is None else origin.error(problem)

    # ---- description
    def describe(self) -> str:
        """All values as a block, with where each came from."""
        lines: list[str] = ["SGD = {"]
        open_blocks: tuple[str, ...] = ()
        for section in SECTIONS:
            while section[: len(open_blocks)] != open_blocks:
                lines.append(f"{'    ' * len(open_blocks)}}}")
                open_blocks = open_blocks[:-1]
            if section:
                lines.append(f"{'    ' * len(section)}{section[-1]} = {{")
            open_blocks = section
            indent = "    " * (len(section) + 1)
            for setting in self:
                if setting.key.section == section:
                    lines.append(f"{indent}{setting.key.name} = {shown(setting.value)}  # {self._note(setting)}")
        lines += [f"{'    ' * depth}}}" for depth in range(len(open_blocks), -1, -1)]
        return "\n".join(lines)

    def _note(self, setting: Setting) -> str:
        name, note = setting.key.name, setting.origin_text
        if setting.value is None and name == "learningRatesPerSample" and self.rates is not None:
            note += f"; from learningRatesPerMB: {shown(self.rates)}"
        if setting.value is None and name == "momentumAsTimeConstant" and any(c for _, c in self.momentum.entries):
            note += f"; from momentumPerMB: {shown(self.momentum)}"
        if setting.value is None and name == "momentumPerMB" and self["momentumAsTimeConstant"] is None and any(
            constant for _, constant in self.momentum.entries
        ):
            note += f"; {DEFAULT_MOMENTUM}"
        if name.startswith("momentum") and setting.value is not None and self["gradUpdateType"] in _NO_MOMENTUM:
            note += f"; without effect: gradUpdateType = {self['gradUpdateType']}"
        if setting.key.effect.startswith("accepted"):
            note += f"; {setting.key.effect}"
        return note


def shown(value: Value | None) -> str:
    """A value as it is written in a block.

    >>> shown(None), shown(True), shown(math.inf), shown("a"), shown(0.1)
    ('...', 'true', '(infinity)', '"a"', '0.1')
    """
    match value:
        case None:
            return "..."
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case float() if math.isinf(value):
            return "(infinity)" if value > 0 else "(-infinity)"
    return str(value)


def _per_sample(rate: float, size: float) -> float:
    return rate_per_sample(rate, int(size))


def _time_constant(momentum: float, size: float) -> float:
    return momentum_time_constant(momentum, int(size))
