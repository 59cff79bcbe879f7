"""The lines of a training, in the form that CNTK's logs have."""

import io
import re

import pytest

from cntkjax.brainscript.log import Criterion, Log, TrainingLog
from cntkjax.sgd import Epoch


@pytest.mark.parametrize(("epoch_size", "pieces", "sizes", "expected"), [
    (0, 1, [4, 8], [None, None, "100.00", "200.00"]),  # Examples/Speech/TIMIT: what lines of the first epoch count
    (10, 1, [4, 4], ["80.00", "160.00"] * 2),  # Examples/Text/G2P, Speech/DNN/ParallelBM: above 100%
    (16, 2, [8, 8], ["50.00", "100.00"] * 2),  # Speech/LSTM/Truncated: minibatchSize is that of a piece
])
def test_lines_count_the_epoch_in_full_minibatches(epoch_size, pieces, sizes, expected):
    stream = io.StringIO()
    log = TrainingLog(Log(stream), [Criterion("ce", "Pass")], 2, epoch_size, 2, 0, pieces)
    for number, size in enumerate(sizes, 1):
        epoch = Epoch(number, 15, 5, 1.0, None, 0.1, 1.0, size)
        log.begins(epoch, 0.9)
        for _ in range(5):
            log.trained(3, [6.0])
        log.ended(epoch)
    lines = re.findall(r"Minibatch\[ +\d+- +\d+(?:, ([\d.]+)%)?\]: ce = 2.00000000 \* 6; ", stream.getvalue())
    assert [line or None for line in lines] == expected
