"""The program of each worker in test_workers.py.

    python worker.py <folder>
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.sgd.problems import trained

BLOCKS = {
    "none": {}, "dataParallelSGD": {}, "modelAveragingSGD": {"blockSize": 12},
    "blockMomentumSGD": {"blockSize": 12, "blockMomentumAsTimeConstant": 0, "useNesterovMomentum": False},
    "searched": {"parallelizationMethod": "dataParallelSGD", "autoAdjustLR": "searchBeforeEpoch"},
}


def main(folder):
    for name, block in BLOCKS.items():
        path = {"modelPath": f"{folder}/m"} if name == "searched" else {}
        weights, _ = trained(learningRatesPerSample=0.01, **{"parallelizationMethod": name, **block, **path})
        print("weights", name, *map(float, weights), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
