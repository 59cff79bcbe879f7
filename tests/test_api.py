"""The 2,452 public names of CNTK 2.7, with their parameters and defaults.

api.json is a recording of what Python's `inspect` says about the modules of CNTK 2.7: for each name its kind, the
module that defines it, and the parameters of functions and methods, as `name`, `name=default`, `*name` or `**name`.
"""

import importlib
import inspect
import json
from pathlib import Path

import pytest

API = json.loads((Path(__file__).parent / "api.json").read_text())
COMPARED = ("'", '"', "-", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "(", "[", "True", "False", "None")
MISSING = object()


def parameters(thing):
    """[(name, default or None)] of all that are not variadic; None for what has no signature."""
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [(p.name, None if p.default is p.empty else repr(p.default)) for p in plain]


def difference(recorded, thing):
    """How the parameters of something differ from the recorded ones: those that follow them need defaults."""
    plain = [tuple(p.split("=", 1)) if "=" in p else (p, None) for p in recorded if not p.startswith("*")]
    is_free = len(plain) < len(recorded)
    names = [name for name, _ in plain]
    mine = parameters(thing)
    if mine is None or names in ([], ["self"]):
        return None
    if names[0] == "self" and mine[:1] != [("self", None)]:
        names, plain = names[1:], plain[1:]
    if [name for name, _ in mine[: len(names)]] != names:
        return f"parameters {[name for name, _ in mine]}, recorded are {names}"
    for (name, expected), (_, default) in zip(plain, mine, strict=False):
        if expected is not None and (default is None or (expected.startswith(COMPARED) and default != expected)):
            return f"the default of {name} is {default}, recorded is {expected}"
    extra = [name for name, default in mine[len(names) :] if default is None]
    return f"{extra} have no default" if extra and not is_free else None


def items(module, names):
    """(label, recorded parameters, what is there) of each name of a module, and of each member of a class."""
    for name, entry in names.items():
        thing = getattr(module, name, MISSING)
        yield name, entry.get("parameters"), thing
        for member, recorded in entry.get("members", {}).items():
            found = inspect.getattr_static(thing, member, MISSING)
            found = getattr(thing, member, MISSING) if found is MISSING else found
            found = getattr(found, "__func__", found)  # of static and class methods
            yield f"{name}.{member}", recorded if isinstance(recorded, list) else None, found


@pytest.mark.parametrize("name", API)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_public_name_of_cntk_exists_with_its_parameters(name):
    module, wrong = importlib.import_module(name), {}
    for label, recorded, thing in items(module, API[name]):
        if thing is MISSING:
            wrong[label] = "missing"
        elif recorded is not None and (why := difference(recorded, thing)):
            wrong[label] = why
    assert wrong == {}


def test_all_names_are_recorded():
    assert sum(1 + len(entry.get("members", {})) for names in API.values() for entry in names.values()) == 2452
