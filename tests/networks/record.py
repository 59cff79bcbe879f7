"""Writes losses.json. With CNTK 2.7, in the root of the repository: ``python -m tests.networks.record [NAME ...]``."""
import json
import os
import sys

from tests.networks import adversarial, images, plain, sequences, video
from tests.networks.common import tenths

NETWORKS = [network for module in (plain, images, video, adversarial, sequences) for network in module.NETWORKS]

if __name__ == "__main__":
    import cntk

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json")
    known = {}
    if os.path.exists(path):
        with open(path) as f:
            known = json.load(f)
    for network in NETWORKS:
        if network.__name__ in sys.argv[1:] or not sys.argv[1:]:
            known[network.__name__] = tenths(network(cntk)).round(6).tolist()
    with open(path, "w") as f:
        lines = ["%s: %s" % (json.dumps(n.__name__), json.dumps(known[n.__name__])) for n in NETWORKS]
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
