"""Trains in processes that are killed at random moments, each going on where the one before was: see test_kill.py.

    python killed.py <folder> <kills>

A process is a fork of this one, which has imported everything but computed nothing: jax starts anew in each.
"""

import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import cntkjax as C

SAMPLES, MINIBATCH = 4000, 10


def train(folder: Path, ready: int | None = None) -> None:
    """Train to the end from the last checkpoint; a byte goes to `ready` after the first minibatch."""
    x, y = C.input_variable(4), C.input_variable(2)
    z = C.layers.Sequential([C.layers.Dense(8, C.tanh), C.layers.Dropout(0.3), C.layers.Dense(2)])(x)
    z = C.layers.BatchNormalization()(z)
    loss = C.cross_entropy_with_softmax(z, y)
    learner = C.adam(z.parameters, C.learning_parameter_schedule([0.01, 0.005], epoch_size=1000), 0.9)

    class Ready(C.logging.ProgressWriter):
        def on_training_update_end(self) -> None:
            if ready is not None and self.total_training_updates() == 1:
                os.write(ready, b".")

    trainer = C.Trainer(z, (loss, None), learner, Ready())
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 4), y=C.io.StreamDef("y", 2))
    data = C.io.CTFDeserializer(str(folder.parent / "data.ctf"), streams)
    source = C.io.MinibatchSource(data, randomize=True, max_sweeps=C.io.INFINITELY_REPEAT)
    C.training_session(
        trainer, source, MINIBATCH, {x: source.streams.x, y: source.streams.y}, max_samples=SAMPLES,
        checkpoint_config=C.CheckpointConfig(str(folder / "model"), frequency=2 * MINIBATCH),
    ).train()  # fmt: skip
    np.savez(folder / "trained.npz", *[p.value for p in (*z.parameters, *z.constants)])


def in_a_process(folder: Path, kill_after: float | None = None, once_ready: bool = True) -> bool:
    """Train in a process; whether it was killed, so many seconds after its first minibatch or its start."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(folder, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    if kill_after is not None:
        if once_ready:
            os.read(reader, 1)
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("training failed")
    return os.WIFSIGNALED(status)


def main(folder: Path, kills: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(70, 4))
    (folder / "data.ctf").write_text("".join(
        f"|x {' '.join(map(str, row))} |y {'1 0' if row.sum() > 0 else '0 1'}\n" for row in rows
    ))
    for name in "undisturbed", "killed":
        (folder / name).mkdir()
    in_a_process(folder / "undisturbed")
    moments = random.Random(kills)
    done = 0
    for i in range(kills):
        done += in_a_process(folder / "killed", moments.uniform(0, 0.1), once_ready=i % 5 > 0)
    in_a_process(folder / "killed")
    print(done, "kills")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "os.fork")  # jax is imported, but its threads do not run yet
    main(Path(sys.argv[1]), int(sys.argv[2]))
