"""One of several workers that train a network, started by benchmarks/workers.py. Also runs on CNTK 2.7 (Python 3.6).

    python workers_worker.py FOLDER NETWORK [ATIS]

FOLDER/0, FOLDER/1, ... are numbers of minibatches, each written when it is to be trained; 0 ends the process. Every
worker answers in FOLDER/0.RANK, ... with the seconds that it took. With DEVICES in the environment it trains on all.
"""
import itertools
import json
import os
import sys
import time


def main(folder, network, *arguments):
    """Build the network, and train it as asked."""
    from cntk_networks import NETWORKS

    import cntk as C

    if 'DEVICES' in os.environ:
        C.device.use_all_devices()
    run, rank = NETWORKS[network](*arguments), C.train.distributed.Communicator.rank()
    for i in itertools.count():
        count = wait_for(os.path.join(folder, str(i)))
        if not count:
            break
        start = time.time()
        run(count)
        answer = os.path.join(folder, f'{i}.{rank}')
        with open(answer + '~', 'w') as file:
            json.dump(time.time() - start, file)
        os.rename(answer + '~', answer)
    C.train.distributed.Communicator.finalize()


def wait_for(path):
    """The number in a file, once it is there."""
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path) as file:
        return json.load(file)


if __name__ == '__main__':
    main(*sys.argv[1:])
