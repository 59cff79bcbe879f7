"""The program of each worker in test_workers.py.

    python worker.py <folder>
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cntkjax.parallel import workers
from cntkjax.sgd import SGD
from cntkjax.sgd._checkpoints import Checkpoints
from tests.sgd.problems import X, Y, regression, trained

BLOCKS = {
    "none": {}, "dataParallelSGD": {}, "modelAveragingSGD": {"blockSize": 12},
    "blockMomentumSGD": {"blockSize": 12, "blockMomentumAsTimeConstant": 0, "useNesterovMomentum": False},
    "dataParallelASGD": {"blockSize": 4},
    "searched": {"parallelizationMethod": "dataParallelSGD", "autoAdjustLR": "searchBeforeEpoch"},
}


def main(folder):
    with Checkpoints(None, keep_all=False) as checkpoints:
        if workers.rank() == 1:
            time.sleep(0.5)
            Path(checkpoints.file(1)).touch()  # the folder is there until all have ended
    for name, block in BLOCKS.items():
        path = {"modelPath": f"{folder}/m"} if name == "searched" else {}
        weights, _ = trained(learningRatesPerSample=0.01, **{"parallelizationMethod": name, **block, **path})
        print("weights", name, *map(float, weights), flush=True)
    block = SGD(maxEpochs=3, minibatchSize=4, learningRatesPerSample=0.01, momentumAsTimeConstant=0,
                modelPath=f"{folder}/m")
    block.train(regression(), (X, Y))  # prints its progress, as that of a run that goes on


if __name__ == "__main__":
    main(sys.argv[1])
