"""One side training one network, in a process of its own. Runs on Python 3.6 too: CNTK 2.7 has no other.

    python worker.py SIDE NETWORK [FOLDER]

It builds the network and then answers lines of JSON: each line read holds a number of minibatches, the line written
back says how long they took, how many samples (images or words) they held, and what has been compiled so far.
"""
import importlib
import json
import os
import sys
import time

MODULES = {'cntkjax': 'cntk_networks', 'cntk27': 'cntk_networks', 'torch': 'torch_networks',
           'torch.compile': 'torch_networks', 'jax': 'jax_networks'}


def compilations():
    """Counters that grow as jax compiles: programs, those of them that came from its cache on disk, seconds."""
    import jax.monitoring

    counted = {'programs': 0, 'cached': 0, 'compile_seconds': 0.0}

    def timed(event, seconds, **_):
        if event.endswith(('backend_compile_duration', 'jaxpr_to_mlir_module_duration')):
            counted['compile_seconds'] += seconds
        counted['programs'] += event.endswith('backend_compile_duration')

    def happened(event, **_):
        counted['cached'] += event.endswith('compilation_cache/cache_hits')

    jax.monitoring.register_event_duration_secs_listener(timed)
    jax.monitoring.register_event_listener(happened)
    return counted


def version(side):
    names = {'cntkjax': ['jax'], 'cntk27': ['cntk'], 'jax': ['jax']}.get(side, ['torch'])
    return ', '.join(f'{name} {importlib.import_module(name).__version__}' for name in names)


def main(side, network, *folder):
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)                         # whatever a library prints goes to stderr
    counted = compilations() if side in ('cntkjax', 'jax') else {}
    build = importlib.import_module(MODULES[side]).NETWORKS[network]
    run = build(*folder, **({'compiled': True} if side == 'torch.compile' else {}))
    print(json.dumps({'version': version(side)}), file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        samples = run(int(line))
        seconds = time.perf_counter() - start
        print(json.dumps(dict(counted, seconds=seconds, samples=samples)), file=answers, flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
