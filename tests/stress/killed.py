"""Trains in processes that are killed at random moments, each resuming from the last checkpoint: see test_kill.py.

    python killed.py <folder> <kills>
"""

import os
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np

import cntkjax as C
from tests.killing import End, end_of, write_data

MINIBATCH = 10
SAMPLES_PER_KILL = 160  # more than are trained between two kills, so that no training ends before the last one


def train(folder: Path, samples: int, pipe: int) -> None:
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
        trainer, source, MINIBATCH, {x: source.streams.x, y: source.streams.y}, max_samples=samples,
        checkpoint_config=C.CheckpointConfig(str(folder / "model"), frequency=2 * MINIBATCH),
    ).train()
    np.savez(folder / "trained.npz", *[p.value for p in (*z.parameters, *z.constants)])


def main(folder: Path, kills: int) -> None:
    write_data(folder, 70)
    for name in "undisturbed", "killed":
        (folder / name).mkdir()
    samples = SAMPLES_PER_KILL * kills
    train_killed = partial(train, folder / "killed", samples)
    end_of(partial(train, folder / "undisturbed", samples))
    moments = random.Random(kills)
    ends: list[End] = []
    for i in range(kills):
        # Every fifth time while the process starts; checkpoints are written after every second minibatch.
        starts = i % 5 == 4
        minibatches, soon = (0, ends[-1].seconds) if starts else (moments.randint(1, 8), 0.005)
        ends.append(end_of(train_killed, minibatches, moments.uniform(0, soon)))
    ends.append(end_of(train_killed))
    restored = sum(b"r" in end.written for end in ends)
    print(f"{sum(end.killed for end in ends)} killed, {restored} restored")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
