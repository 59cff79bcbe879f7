"""Loops that run side by side, over sequences that are cut."""

import numpy as np

import cntk as C
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla.platform import lowering_for

L = C.layers


def recurrence(cell=None, **options):
    return L.Recurrence(cell or L.LSTM(3), **options)


def test_pieces_of_sequences_continue_where_they_were_cut():
    """Loops that take states from the minibatch before run one by one."""
    values = {}
    for platform in ("cpu", "gpu"):
        programs.clear()
        with lowering_for(platform):
            x = C.sequence.input_variable(2)
            init = C.glorot_uniform(seed=1)
            f = C.splice(*(recurrence(L.LSTM(3, init=init))(x) for _ in range(2)))
            data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
            pieces = ([data[:3]], [True]), ([data[3:]], [False])
            values[platform] = [f.eval({x: piece})[0] for piece in pieces]
    programs.clear()
    np.testing.assert_allclose(values["cpu"], values["gpu"], rtol=1e-5)
    assert not np.allclose(values["gpu"][0], values["gpu"][1])
