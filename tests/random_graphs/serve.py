"""Run random programs one after the other, and write what they show: serve.py PROGRAMS RESULTS.

The file of programs has a JSON list of lines of Python in each line. A line of results is written before each program
("begin") and after it, so that whoever started this process knows which program ended it. This file is Python 3.6 too:
CNTK 2.7 runs it.
"""

import gc
import json
import os
import sys
import traceback
import types

import numpy as np

import cntk as C

ACCIDENTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, UnicodeError,
)


def plain(value):
    """A value as JSON: dense, with its shape and type; sequences as lists."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, C.core.Value):
        return "Value %s" % (tuple(value.shape),)
    if isinstance(value, (np.ndarray, np.generic)):
        return {"shape": list(np.shape(value)), "dtype": str(value.dtype), "data": np.ravel(value).tolist()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def refusal(error, is_fed_well=False):
    """What went wrong, and whether the package itself says so.

    `is_fed_well`: that something else stopped is no fault of the arguments, although the package explains it by them.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = os.path.join("cntkjax", "")
    ours = type(error).__module__.startswith("cntkjax") or not frames or frames[-1][0] in ("<string>", "header.py")
    message = str(error).strip().split("\n\n[CALL STACK]")[0]
    explained = is_fed_well and type(error).__name__ == "ArgumentError" and error.__cause__ is not None
    place = "%s:%s" % (os.path.basename(frames[-1][0]), frames[-1][1]) if frames else ""
    return {
        "error": type(error).__name__, "message": message[:1500], "place": place,
        "accident": explained or (not ours and (where not in frames[-1][0] or isinstance(error, ACCIDENTS))),
    }


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "header.py")) as source:
    HEADER = compile(source.read(), "header.py", "exec")


def new_names():
    """What header.py defines, as a module: that of its user function is looked up when a model is loaded."""
    module = sys.modules["header"] = types.ModuleType("header")
    exec(HEADER, module.__dict__)
    return module.__dict__


def run(lines):
    """What a program shows: by its name, a value, or why there is none."""
    C.cntk_py.set_fixed_random_seed(1)
    names, shown = new_names(), {}
    names["show"] = lambda what, value: shown.update({what: plain(value)})
    for number, line in enumerate(lines):
        try:
            exec(line, names)
        except Exception as error:
            what = line[6:].split('"')[0] if line.startswith("show(") else "line %d" % number
            shown[what] = refusal(error, line.startswith("show(") and what != "fed oddly")
            if not line.startswith("show("):
                break
    return shown


def main(programs, results):
    gc.set_threshold(20000, 20, 100)  # looking through all that jax has made takes a tenth of the time
    with open(programs) as source, open(results, "a") as out:
        for number, line in enumerate(source):
            out.write(json.dumps({"begin": number}) + "\n")
            out.flush()
            out.write(json.dumps({"number": number, "shown": run(json.loads(line))}) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
