"""Trains one network on one side, in a process of its own. Also runs on Python 3.6, for CNTK 2.7.

    python worker.py SIDE NETWORK [FOLDER]

It builds the network, then reads lines with a number of minibatches. For each it writes a line of JSON: how long they
took, how many samples (images or words) they had, and the compilations so far.
"""
import functools
import importlib
import json
import os
import sys
import time

MODULES = {'cntkjax': 'cntk_networks', 'cntk27': 'cntk_networks', 'torch': 'torch_networks',
           'torch.compile': 'torch_networks', 'jax': 'jax_networks'}


def compilations():
    """Counters of JAX's compilations: programs and seconds; `with_loaded` adds those that were not compiled.

    'large': programs that took more than 0.1 s to compile; most others are helpers of JAX.
    """
    import jax.monitoring

    counters = {'programs': 0, 'large': 0, 'compile_seconds': 0.0}

    def count_duration(event, seconds, **_):
        if event.endswith(('backend_compile_duration', 'jaxpr_to_mlir_module_duration')):
            counters['compile_seconds'] += seconds
        if event.endswith('backend_compile_duration'):
            counters['programs'] += 1
            counters['large'] += seconds > 0.1

    jax.monitoring.register_event_duration_secs_listener(count_duration)
    return counters


def with_loaded(counters):
    """The counters, where programs include those that this package has loaded from its cache, 'cached'."""
    if 'cntkjax' not in sys.modules:
        return {**counters, 'cached': 0}
    from cntkjax.engine.run import compilations as record

    loaded = record.report().loaded
    return {**counters, 'programs': counters['programs'] + loaded, 'cached': loaded}


def version(side):
    """The versions of the side's packages."""
    names = {'cntkjax': ['jax'], 'cntk27': ['cntk'], 'jax': ['jax']}.get(side, ['torch'])
    return ', '.join(f'{name} {importlib.import_module(name).__version__}' for name in names)


def peak_memory(side):
    """The most bytes of an accelerator's memory that were in use; 0 on a CPU."""
    if side.startswith('torch'):
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    if side == 'cntk27':
        return 0
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get('peak_bytes_in_use', 0)


def bytes_moved(side):
    """Bytes that the kernels of a JAX side's largest program read and write on an accelerator; 0 on a CPU."""
    if side not in ('cntkjax', 'jax'):
        return 0
    import jax

    device = jax.local_devices()[0]
    if device.platform == 'cpu':
        return 0
    return _bytes_of(max((e.hlo_modules()[0].to_string() for e in device.client.live_executables()), key=len))


@functools.lru_cache(maxsize=1)
def _bytes_of(program):
    import hlo

    return hlo.kernels(program).bytes


def main(side, network, *folder):
    """Build the network, and train it as standard input asks."""
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)                         # libraries print to stderr
    counters = compilations() if side in ('cntkjax', 'jax') else {}
    build = importlib.import_module(MODULES[side]).NETWORKS[network]
    run = build(*folder, **({'compiled': True} if side == 'torch.compile' else {}))
    print(json.dumps({'version': version(side)}), file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        samples = run(int(line))
        seconds = time.perf_counter() - start
        counts = with_loaded(counters) if counters else {}
        result = dict(counts, seconds=seconds, samples=samples, memory=peak_memory(side), bytes=bytes_moved(side))
        print(json.dumps(result), file=answers, flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
