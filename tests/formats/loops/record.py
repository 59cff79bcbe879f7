"""Writes the models and results.json. With CNTK 2.7, in the root of the repository:

    python -m tests.formats.loops.record
"""
import json
import os

from tests.formats.loops.forms import FORMS, results

if __name__ == "__main__":
    import cntk

    folder = os.path.dirname(os.path.abspath(__file__))
    lines = []
    for name, build in FORMS.items():
        f = build(cntk)
        f.save(os.path.join(folder, name + ".model"))
        lines.append("%s: %s" % (json.dumps(name), json.dumps(results(cntk, f))))
    with open(os.path.join(folder, "results.json"), "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
