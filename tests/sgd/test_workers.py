"""Two workers train as the block's parallelTrain says."""

from pathlib import Path

import numpy as np
import pytest

from tests.parallel.launching import outputs, start


@pytest.mark.timeout(300)
def test_two_workers(tmp_path):
    results = []
    printed = outputs(start(Path(__file__).with_name("worker.py"), tmp_path, timeout="120"), seconds=280)
    assert "which has 2 of 3 epochs" in printed[0] and "Finished Epoch[3 of 3]" in printed[0]
    assert "epochs" not in printed[1] and "Finished" not in printed[1]  # worker 0 prints for all
    for output in printed:
        rows = [line.split() for line in output.splitlines() if line.startswith("weights")]
        assert len(rows) == 6, output[-3000:]
        results.append({name: np.array(list(map(float, values))) for _, name, *values in rows})
    first, second = results
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)  # the same model
    np.testing.assert_allclose(first["dataParallelSGD"], first["none"], rtol=1e-4)  # as one worker with all data
    # the changes of a single minibatch are those by the sum of its gradients
    np.testing.assert_allclose(first["dataParallelASGD"], first["dataParallelSGD"], rtol=1e-4)
    for name in ("none", "blockMomentumSGD"):
        assert not np.allclose(first["modelAveragingSGD"], first[name], rtol=1e-2)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m", "m.1", "m.2", "m.3", "m.3.ckp"]
