"""Record the results of CNTK 2.7: oracle/cntk27 tests/programs/record.py, from the root of the repository.

Arguments name modules (default: all); the results of the others stay as recorded.
"""

import importlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from tests.programs.common import MODULES, PROGRAMS, summary  # noqa: E402


def main(modules, path):
    recorded = json.load(open(path)) if os.path.exists(path) else {}
    for module in modules:
        importlib.import_module("tests.programs." + module)
        recorded = {name: value for name, value in recorded.items() if not name.startswith(module + ".")}
    for name, run in sorted(PROGRAMS.items()):
        try:
            recorded[name] = {key: summary(value) for key, value in run().items()}
        except Exception as error:  # CNTK cannot run it on the CPU: the test then asks only that it runs here
            recorded[name] = {"error": "%s: %s" % (type(error).__name__, str(error).strip().splitlines()[0][:200])}
            print(name, recorded[name]["error"])
    rows = ("%s: %s" % (json.dumps(k), json.dumps(v, sort_keys=True)) for k, v in sorted(recorded.items()))
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or MODULES, os.environ.get("RECORDED", os.path.join(HERE, "recorded.json")))
