"""Prints how many bytes each worker sends in a step of FCN5 in each of `MODES`, counted in the compiled programs.

    python traffic.py <workers>
"""

import json
import math
import os
import re
import sys
from functools import partial

WORKERS = int(sys.argv[1]) if __name__ == "__main__" else 1
if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={WORKERS}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

from cntkjax.engine.run.devices import AXIS, Devices, Divided  # noqa: E402
from cntkjax.parallel.collectives import part  # noqa: E402
from cntkjax.parallel.gradients import DataParallel, summed  # noqa: E402
from cntkjax.parallel.quantization import is_compressible, no_errors  # noqa: E402
from cntkjax.parallel.sharding import on_parts  # noqa: E402

LAYERS = [(784, 4096), (4096, 2048), (2048, 1024), (1024, 10)]
SHAPES = [shape for layer in LAYERS for shape in (layer, layer[1:])]
BYTES = {"f32": 4, "u32": 4, "u16": 2}
SENT = {  # by each worker, for a result of one byte
    "all-reduce": 2 * (WORKERS - 1) / WORKERS, "all-to-all": (WORKERS - 1) / WORKERS,
    "all-gather": (WORKERS - 1) / WORKERS, "reduce-scatter": WORKERS - 1, "collective-permute": 1,
}
MODES = {
    "32": DataParallel(), "16": DataParallel(bits=16), "1": DataParallel(bits=1),
    "32 divided": DataParallel(shard_state=True), "16 divided": DataParallel(bits=16, shard_state=True),
}


def exchanged(way, gradients, errors):
    """The sums of gradients; or if the state is divided, the updates that come of them."""
    sums, errors = summed([way] * len(gradients), gradients, errors)
    if not way.shard_state:
        return sums, errors
    adam = optax.with_extra_args_support(optax.adam(0.1))
    state = Divided(adam.init([part(g) for g in gradients]), None, ())
    return on_parts(adam).update(sums, state, gradients)


def traffic(way):
    """Bytes that leave a worker."""
    gradients = [jax.ShapeDtypeStruct(shape, np.float32) for shape in SHAPES]
    is_quantized = way.bits < 32 and not way.shard_state
    errors = no_errors([g for g in gradients if is_quantized and is_compressible(g.shape, g.dtype, way.bits)], WORKERS)
    devices = Devices(Mesh(np.array(jax.devices()), AXIS))
    program = jax.jit(devices.over(partial(exchanged, way)))
    text, total = program.lower(gradients, errors).compile().as_text(), 0.0
    for result, collective in re.findall(f"= (.*?) ({'|'.join(SENT)})\\(", text):
        total += SENT[collective] * sum(
            BYTES[dtype] * math.prod(map(int, filter(None, dims.split(","))))
            for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", result)
        )
    return total


if __name__ == "__main__":
    print(json.dumps({name: traffic(way) for name, way in MODES.items()}))
