"""Trains in processes that are killed at random moments, each resuming from the last checkpoint: see test_kill.py.

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

SAMPLES, MINIBATCH = 8000, 10


def train(folder: Path, pipe: int) -> None:
    """Train to the end from the last checkpoint; writes a byte to `pipe` after each minibatch, "r" if restored."""
    x, y = C.input_variable(4), C.input_variable(2)
    z = C.layers.Sequential([C.layers.Dense(8, C.tanh), C.layers.Dropout(0.3), C.layers.Dense(2)])(x)
    z = C.layers.BatchNormalization()(z)
    loss = C.cross_entropy_with_softmax(z, y)
    learner = C.adam(z.parameters, C.learning_parameter_schedule([0.01, 0.005], epoch_size=1000), 0.9)

    class Reporter(C.logging.ProgressWriter):
        def on_training_update_end(self) -> None:
            restored = trainer.total_number_of_samples_seen > self.total_training_updates() * MINIBATCH
            os.write(pipe, b"r" if restored else b".")

    trainer = C.Trainer(z, (loss, None), learner, Reporter())
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 4), y=C.io.StreamDef("y", 2))
    data = C.io.CTFDeserializer(str(folder.parent / "data.ctf"), streams)
    source = C.io.MinibatchSource(data, randomize=True, max_sweeps=C.io.INFINITELY_REPEAT)
    C.training_session(
        trainer, source, MINIBATCH, {x: source.streams.x, y: source.streams.y}, max_samples=SAMPLES,
        checkpoint_config=C.CheckpointConfig(str(folder / "model"), frequency=2 * MINIBATCH),
    ).train()  # fmt: skip
    np.savez(folder / "trained.npz", *[p.value for p in (*z.parameters, *z.constants)])


def in_a_process(
    folder: Path, minibatches: int | None = None, later: float = 0.0
) -> tuple[bool, bool, float]:
    """Train in a process that is killed some seconds after a minibatch.

    Returns whether it was killed, whether it was restored, and the seconds until it had trained on its minibatches.
    """
    begin = time.perf_counter()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        os.close(reader)
        try:
            train(folder, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    received, last = b"", b"."
    while last and (minibatches is None or len(received) < minibatches):
        last = os.read(reader, 1)
        received += last
    seconds_taken = time.perf_counter() - begin
    if minibatches is not None:
        time.sleep(later)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(reader)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("training failed")
    return os.WIFSIGNALED(status), b"r" in received, seconds_taken


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
    ends: list[tuple[bool, bool, float]] = []
    for i in range(kills):
        # Every fifth time while the process starts; checkpoints are written after every second minibatch.
        starts = i % 5 == 4
        minibatches, soon = (0, ends[-1][2]) if starts else (moments.randint(1, 8), 0.005)
        ends.append(in_a_process(folder / "killed", minibatches, moments.uniform(0, soon)))
    ends.append(in_a_process(folder / "killed"))
    killed, restored = (sum(end[i] for end in ends) for i in range(2))
    print(f"{killed} killed, {restored} restored")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "os.fork")  # jax is imported, but its threads do not run yet
    main(Path(sys.argv[1]), int(sys.argv[2]))
