"""Trains as a block says, in processes that are killed at random moments: see test_restart.py.

    python restarted.py <folder> <kills>
"""

import os
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np

import cntkjax as C
from cntkjax.sgd import SGD
from tests.killing import end_of, write_data

BLOCKS = {
    "searched": {"autoAdjustLR": "searchBeforeEpoch", "momentumPerMB": 0.5, "autoAdjustMinibatch": True},
    "adjusted": {"autoAdjustLR": "adjustAfterEpoch", "gradUpdateType": "fsAdaGrad", "momentumAsTimeConstant": 50,
                 "learningRatesPerSample": 0.3, "dropoutRate": "0.3*2:0.1"},
}


def train(folder: Path, name: str, pipe: int) -> None:
    """Train from the last checkpoint; writes a byte to `pipe` after each minibatch, those of trials included."""
    C.cntk_py.set_fixed_random_seed(1)
    x, y = C.input_variable(4, name="x"), C.input_variable(2, name="y")
    z = C.layers.Sequential([C.layers.Dense(8, C.tanh), C.layers.Dropout(0.3), C.layers.Dense(2)])(x)
    loss = C.cross_entropy_with_softmax(C.layers.BatchNormalization()(z), y)

    class Reporter(C.logging.ProgressWriter):
        def on_training_update_end(self) -> None:
            os.write(pipe, b".")

    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 4), y=C.io.StreamDef("y", 2))
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(folder.parent / "data.ctf"), streams))
    block = SGD(modelPath=folder / "model", maxEpochs=5, epochSize=300, minibatchSize=10, **BLOCKS[name])
    history = block.train(loss, source, progress_writers=Reporter())
    np.savez(folder / "trained.npz", *[p.value for p in (*loss.parameters, *loss.constants)])
    (folder / "history.json").write_text(history.to_text())


def main(folder: Path, kills: int) -> None:
    write_data(folder, 170)
    moments = random.Random(kills)
    for name in BLOCKS:
        for kind in "undisturbed", "killed":
            (folder / f"{name}_{kind}").mkdir()
        end_of(partial(train, folder / f"{name}_undisturbed", name))
        resumed = partial(train, folder / f"{name}_killed", name)
        killed = sum(end_of(resumed, moments.randint(1, 45)).killed for _ in range(kills))
        end_of(resumed)
        print(f"{killed} killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
