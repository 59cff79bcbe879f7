"""Reads a file of `benchmarks.reading` and prints what that took, as JSON. Runs unchanged on CNTK 2.7 and on cntkjax.

python reading_worker.py KIND FOLDER [--sweeps N] [--window CHUNKS] [--size SAMPLES]: the seconds of each sweep, those
until the first minibatch, both with the time to open the file, the CPU seconds, and the peak of resident memory, of
which so much is there before the file is opened.
"""
import argparse
import json
import time

from cntk.io import (
    CBFDeserializer,
    CTFDeserializer,
    HTKFeatureDeserializer,
    HTKMLFDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
    transforms,
)

import cntk as C

DENSE_WIDTH, SPARSE_WIDTH, CLASSES, FRAME_WIDTH, SIDE = 784, 100000, 10, 40, 224


def dense():
    return StreamDefs(x=StreamDef("x", DENSE_WIDTH), y=StreamDef("y", CLASSES, is_sparse=True))


def images(folder):
    steps = [
        transforms.crop("randomside", side_ratio=(0.5, 1.0), jitter_type="uniratio"),
        transforms.scale(SIDE, SIDE, 3, interpolations="linear"),
    ]
    streams = StreamDefs(x=StreamDef("image", transforms=steps), y=StreamDef("label", CLASSES))
    return ImageDeserializer(folder + "/images.txt", streams)


def speech(folder):
    features = HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=FRAME_WIDTH, scp=folder + "/htk.scp")))
    labels = HTKMLFDeserializer(folder + "/htk.list", StreamDefs(y=StreamDef(shape=CLASSES, mlf=folder + "/htk.mlf")))
    return [features, labels]


DESERIALIZERS = {
    "dense": lambda folder: CTFDeserializer(folder + "/dense.ctf", dense()),
    "sparse": lambda folder: CTFDeserializer(
        folder + "/sparse.ctf", StreamDefs(x=StreamDef("x", SPARSE_WIDTH, is_sparse=True), y=StreamDef("y", 1))
    ),
    "cbf": lambda folder: CBFDeserializer(folder + "/dense.cbf", dense()),
    "images": images,
    "htk": speech,
}


def memory():
    """Peak of resident memory so far, in MB. That of `getrusage` includes the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(DESERIALIZERS))
    parser.add_argument("folder")
    parser.add_argument("--sweeps", type=int, default=1)
    parser.add_argument("--window", type=int, default=C.io.DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    before, cpu, start = memory(), time.process_time(), time.perf_counter()
    source = MinibatchSource(
        DESERIALIZERS[options.kind](options.folder), max_sweeps=options.sweeps, randomize=options.window > 0,
        randomization_window_in_chunks=options.window,
    )
    first, sweeps, samples, begin = None, [], 0, start
    while True:
        minibatch = source.next_minibatch(options.size)
        if not minibatch:
            break
        now = time.perf_counter()
        first = first or now - start
        data = minibatch[source.streams.x]
        samples += data.num_samples
        if data.end_of_sweep:
            sweeps.append(now - begin)
            begin = now
    print(json.dumps({
        "first": first, "sweeps": sweeps, "samples": samples, "cpu": time.process_time() - cpu,
        "memory": memory(), "before": before,
    }))


if __name__ == "__main__":
    main()
