"""Trains as a block says, in processes that are killed at random moments: see test_restart.py.

    python restarted.py <folder> <kills>
"""

import os
import random
import signal
import sys
import warnings
from pathlib import Path

import numpy as np

import cntkjax as C
from cntkjax.sgd import SGD

BLOCKS = {
    "searched": {"autoAdjustLR": "searchBeforeEpoch", "momentumPerMB": 0.5, "autoAdjustMinibatch": True},
    "adjusted": {"autoAdjustLR": "adjustAfterEpoch", "gradUpdateType": "fsAdaGrad", "momentumAsTimeConstant": 50,
                 "learningRatesPerSample": 0.3, "dropoutRate": "0.3*2:0.1"},
}  # fmt: skip


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


def in_a_process(folder: Path, name: str, minibatches: int | None) -> bool:
    """Train in a process that is killed after so many minibatches; whether it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        os.close(reader)
        try:
            train(folder, name, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    received = 0
    while (minibatches is None or received < minibatches) and os.read(reader, 1):
        received += 1
    if minibatches is not None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(reader)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("training failed")
    return os.WIFSIGNALED(status)


def main(folder: Path, kills: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(170, 4))
    (folder / "data.ctf").write_text("".join(
        f"|x {' '.join(map(str, row))} |y {'1 0' if row.sum() > 0 else '0 1'}\n" for row in rows
    ))
    moments = random.Random(kills)
    for name in BLOCKS:
        for kind in "undisturbed", "killed":
            (folder / f"{name}_{kind}").mkdir()
        in_a_process(folder / f"{name}_undisturbed", name, None)
        killed = sum(in_a_process(folder / f"{name}_killed", name, moments.randint(1, 45)) for _ in range(kills))
        in_a_process(folder / f"{name}_killed", name, None)
        print(f"{killed} killed")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "os.fork")  # jax is imported, but its threads do not run yet
    main(Path(sys.argv[1]), int(sys.argv[2]))
