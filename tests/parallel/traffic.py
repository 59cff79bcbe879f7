"""Prints how many bytes each worker sends in a step of FCN5 by the number of bits, counted in the compiled programs.

    python traffic.py <workers>
"""

import json
import math
import os
import re
import sys

WORKERS = int(sys.argv[1]) if __name__ == "__main__" else 1
if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={WORKERS}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

from cntkjax.parallel.exchange import AXIS  # noqa: E402
from cntkjax.parallel.gradients import DataParallel, summed  # noqa: E402
from cntkjax.parallel.quantization import is_compressible, no_errors  # noqa: E402

LAYERS = [(784, 4096), (4096, 2048), (2048, 1024), (1024, 10)]
SHAPES = [shape for layer in LAYERS for shape in (layer, layer[1:])]
BYTES = {"f32": 4, "u32": 4, "u16": 2}
SENT = {  # by each worker, for an operand of one byte
    "all-reduce": 2 * (WORKERS - 1) / WORKERS, "all-to-all": (WORKERS - 1) / WORKERS, "all-gather": WORKERS - 1
}


def traffic(bits):
    """Bytes that leave a worker."""
    gradients = [jax.ShapeDtypeStruct(shape, np.float32) for shape in SHAPES]
    errors = no_errors([shape for shape in SHAPES if bits == 1 and is_compressible(shape, np.float32, 1)], WORKERS)
    devices, everywhere = Mesh(np.array(jax.devices()), AXIS), PartitionSpec()
    ways = [DataParallel(bits=bits)] * len(gradients)
    program = jax.jit(jax.shard_map(
        lambda g, e: summed(ways, g, e), mesh=devices, in_specs=everywhere, out_specs=everywhere, check_vma=False
    ))
    text, total = program.lower(gradients, errors).compile().as_text(), 0.0
    for result, collective in re.findall(r"= (.*?) (all-reduce|all-to-all|all-gather)\(", text):
        size = sum(
            BYTES[dtype] * math.prod(map(int, filter(None, dims.split(","))))
            for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", result)
        )
        total += SENT[collective] * (size / WORKERS if collective == "all-gather" else size)
    return total


if __name__ == "__main__":
    print(json.dumps({bits: traffic(bits) for bits in (32, 16, 1)}))
