"""Looking into a network: its table and picture, where NaN comes from, what takes the time.

    python looking_inside.py [FOLDER]      the picture and the profile go there (default: a temporary folder)
"""
import argparse
import glob
import io
import os
import tempfile

import numpy as np

import cntk as C


def network():
    """A small network with a mistake: exponentials of scores overflow, and infinity minus infinity is no number."""
    pixels = C.input_variable((1, 8, 8), name='pixels')
    features = C.layers.Sequential([
        C.layers.Convolution2D((3, 3), 8, activation=C.relu, name='convolution'),
        C.layers.MaxPooling((2, 2), strides=2, name='pooling'),
        C.layers.Dense(4, name='scores')])(pixels)
    odds = C.exp(features * 1000, name='odds')
    return C.minus(odds, C.reduce_max(odds), name='margins')


def main(folder=None):
    folder = folder or tempfile.mkdtemp()
    margins = network()
    data = np.random.RandomState(1).random_sample((16, 1, 8, 8)).astype(np.float32)

    print(C.logging.summary(margins))
    picture = os.path.join(folder, 'network.svg')
    C.logging.graph.plot(margins, picture)
    print('\nA picture is in', picture)

    print('\nWhere NaN begins, found by checked mode:')
    C.debugging.set_checked_mode(True)
    try:
        margins.eval(data)
    except RuntimeError as error:
        print(error)
    C.debugging.set_checked_mode(False)

    print('\nThe same, found by the debugger with the commands "u nan", "n" and "c":')
    output = io.StringIO()
    watched = C.debugging.debug_model(margins, io.StringIO('u nan\nn\nc\n'), output)
    watched.eval(data)
    stops = [line for line in output.getvalue().splitlines() if 'with uid' in line]
    print('\n'.join(stops[-2:]))

    print('\nHow long operations take by themselves:')
    C.debugging.start_profiler(folder)
    C.debugging.enable_profiler()
    C.debugging.set_node_timing(True)
    scores = C.as_composite(margins.root_function.inputs[0].owner)
    for _ in range(3):
        scores.eval(data)
    C.debugging.set_node_timing(False)
    C.debugging.stop_profiler()
    scores.print_node_timing()
    (trace,) = glob.glob(os.path.join(folder, '*_detail_.json'))
    print('\nOpen', trace, 'in https://ui.perfetto.dev')
    return folder


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('folder', nargs='?')
    main(**vars(arguments.parse_args()))
