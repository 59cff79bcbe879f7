"""The values of a block: given in a text, as arguments or by default, with where each came from."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..parallel import workers
from ._expressions import Names, Value, parse_value
from ._text import Assignment, ConfigError, ConfigText, Raw, as_raw, assignments, sgd_block
from .keys import BY_ID, KEYS, SECTIONS, Key, Kind, keys_within, nearest
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
    origin: object


class BlockSettings:
    """The values of all keys. `overrides` precede what is `given`, and that precedes what is `around` the block.

    `references` are values for ``$name$``.

    Errors: ConfigError for unknown keys, values that are not allowed, and keys that contradict each other.
    """

    def __init__(
        self, given: Iterable[Assignment], overrides: Iterable[Assignment] = (), references: Mapping[str, Raw] = {},
        around: Mapping[str, Raw] = {},
    ) -> None:
        outer = {key.id: around[key.name.lower()] for key in KEYS if key.name.lower() in around}
        self._raw = outer | _by_key(given) | _by_key(overrides)
        self._references = references
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
        return key_id in self._raw

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
        raw = self._raw.get(key.id)
        if key.id in self._resolving:
            assert raw is not None
            raise raw.error(f"{key.name} refers to itself; write a number")
        self._resolving.append(key.id)
        origin = "default" if raw is None else raw.place()
        if raw is None and key.default is not None:
            raw = as_raw(key.default, f"default of {key.name}")
        value = None if raw is None else parse_value(key, raw, self._scope(key))
        self._resolving.pop()
        self._settings[key.id] = Setting(key, value, origin)
        return value

    def _scope(self, key: Key) -> Names:
        raw = self._raw.get(key.id) or next(iter(self._raw.values()), None)
        precision = self._references.get("precision") or (raw.definition("precision") if raw else None)
        name = "float" if precision is None else precision.text.strip("\"' ").lower()
        number = float(workers.size())
        known = {
            "infinity": math.inf, "inf": math.inf, "#workers": number, "workers": number, **_BYTES,
            "precision": _BYTES.get(name, 4.0),
        }

        def number_of(name: str) -> float:
            near = (key.section, key.section[:-1], ())
            other = next((k for k in KEYS if k.name.lower() == name.lower() and k.section in near), None)
            value = None if other is None else self._resolve(other)
            number = value.at(0) if isinstance(value, Schedule) else value
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise KeyError(name)
            return number

        return Names(known, self._references, number_of)

    def _check(self) -> None:
        for first, second in _EXCLUSIVE:
            if self[first] is not None and self[second] is not None:
                other, place = self._settings[first].origin, self._settings[second].origin
                raise ConfigError(f"{second} and {first} ({other}) exclude each other: give one of them", place)
        kind = self["gradUpdateType"]
        if self["useNAG"] and kind not in ("", "none"):
            problem = f"useNAG = true is for plain gradients, not for gradUpdateType = {kind}: leave out one of them"
            raise ConfigError(problem, self._settings["useNAG"].origin)
        for low, high in (("rms_wgt_min", "rms_wgt_max"), ("minibatchSize", "minibatchSizeTuningMax")):
            is_used = kind == "rmsProp" if low.startswith("rms") else self["autoAdjustMinibatch"]
            least = max(v for _, v in self[low].entries) if isinstance(self[low], Schedule) else self[low]
            if is_used and least > self[high]:
                raise ConfigError(f"{high} = {self[high]:g} is smaller than {low} = {least:g} "
                                  f"({self._settings[low].origin}): give a larger one", self._settings[high].origin)

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
        name, note = setting.key.name, str(setting.origin)
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


# ---- where values are given


def in_text(source: ConfigText) -> list[Assignment]:
    """The assignments of the SGD block in a text. Errors: ConfigError for what is no such block."""
    return list(assignments(source, *sgd_block(source)))


def as_arguments(values: Mapping[str, Any], section: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """The same from Python: numbers, texts, lists by epoch, and nested mappings for nested blocks."""
    for name, value in values.items():
        place = f"argument {name}"
        if isinstance(value, Mapping):
            yield Assignment(name, place, section, None)
            yield from as_arguments(value, (*section, name))
        else:
            yield Assignment(name, place, section, as_raw(_written(name, value), place))


def on_command_line(name: str, value: str) -> Assignment:
    """The same from ``name=value`` in a command."""
    place = f"{name} on the command line"
    return Assignment(name, place, (), as_raw(_written(name, value), place))


def _written(name: str, value: Any) -> str:
    """A value as it would be written in a block."""
    if isinstance(value, Schedule):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ":".join(_item(name, item) for item in value)
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        is_text = any(k.name.lower() == name.lower() and k.kind in (Kind.TEXT, Kind.CHOICE) for k in KEYS)
        quote = "'" if '"' in text else '"'
        return f"{quote}{text}{quote}" if is_text and text[:1] not in ('"', "'") else text
    if isinstance(value, bool):
        return shown(value)
    if isinstance(value, numbers.Real):
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
        return "(infinity)" if math.isinf(number) and number > 0 else repr(number)
    raise ConfigError(f"{value!r} of type {type(value).__name__} is no value of a key; give a number, a text or a list "
                      "by epoch", f"argument {name}")


def _item(name: str, item: Any) -> str:
    """A value of one epoch, or a pair (number of epochs, value)."""
    if isinstance(item, (list, tuple)) and len(item) == 2:
        return f"{_written(name, item[1])}*{_written(name, item[0])}"
    return _written(name, item)


def _by_key(given: Iterable[Assignment]) -> dict[str, Raw]:
    """The given values by the ids of their keys. A key in a block is inherited by the blocks inside it."""
    raw: dict[str, Raw] = {}
    places: dict[str, tuple[int, object]] = {}  # how deep the value stands, and where
    for assignment in given:
        section = _section(assignment)
        if assignment.value is None or assignment.value.text.strip() == "...":
            continue
        for key in _keys(assignment, section):
            depth, place = places.get(key.id, (-1, ""))
            if depth == len(section):
                problem = f"{key.name} is given twice, first at {place}: leave out one"
                raise ConfigError(problem, assignment.place)
            if depth < len(section):
                raw[key.id], places[key.id] = assignment.value, (len(section), assignment.place)
    return raw


def _section(assignment: Assignment) -> tuple[str, ...]:
    """The section that an assignment is in, or that it opens. Errors: ConfigError for unknown blocks."""
    names = assignment.section if assignment.value is not None else (*assignment.section, assignment.name)
    for section in SECTIONS:
        if [name.lower() for name in section] == [name.lower() for name in names]:
            return section
    name = names[-1]
    if any(key.name.lower() == name.lower() for key in KEYS):
        raise ConfigError(f"{name} takes a value, not a block: write {name} = value", assignment.place)
    blocks = {section[-1]: section[-2] if len(section) > 1 else "SGD" for section in SECTIONS if section}
    guess = nearest(name, blocks)
    hint = f"did you mean {guess}?" if guess else f"the blocks are {', '.join(blocks)}"
    if guess and guess.lower() == name.lower():
        around = names[-2] if len(names) > 1 else "SGD"
        name, hint = f"{guess} in {around}", f"it belongs in {blocks[guess]}"
    raise ConfigError(f"there is no block {name}; {hint}", assignment.place)


def _keys(assignment: Assignment, section: tuple[str, ...]) -> Sequence[Key]:
    """The keys of this name that may stand in the section. Errors: ConfigError if there is none."""
    name, allowed = assignment.name, keys_within(section)
    matches = [key for key in allowed if key.name.lower() == name.lower()]
    if matches:
        return matches
    block = section[-1] if section else "SGD"
    elsewhere = [key for key in KEYS if key.name.lower() == name.lower()]
    if elsewhere:
        belongs = " or ".join(key.section[-1] if key.section else "SGD" for key in elsewhere)
        raise ConfigError(f"{block} has no key {name}: it belongs in {belongs}", assignment.place)
    if any(part and part[-1].lower() == name.lower() for part in SECTIONS):
        raise ConfigError(f"{name} is a block: write {name} = {{ ... }}", assignment.place)
    guess = nearest(name, [key.name for key in allowed])
    hint = f"did you mean {guess}?" if guess else f"its keys are {', '.join(key.name for key in allowed)}"
    raise ConfigError(f"{block} has no key {name}; {hint}", assignment.place)


def is_key(name: str) -> bool:
    """Whether a key of the block, or of one inside it, has this name, whatever its case."""
    return any(key.name.lower() == name.lower() for key in KEYS)


def definitions(settings: Mapping[str, str]) -> dict[str, Raw]:
    """What the user defines for ``$name$``."""
    return {name.lower(): as_raw(value, f"{name} on the command line") for name, value in settings.items()}
