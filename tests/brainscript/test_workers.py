"""Configurations on several workers: one log, one model, and the numbers of one worker."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .test_commands import CONFIG, LOSSES, write_data

PARALLEL = "Train=[SGD=[ParallelTrain=[parallelizationMethod=DataParallelSGD;DataParallelSGD=[gradientBits=32]]]]"
LAUNCH = """
import sys
from cntkjax.cli import main
sys.exit(main(sys.argv[1:]))
"""
RUN = """
import sys
from cntkjax.brainscript.command_line import main
sys.exit(main())
"""


@pytest.mark.timeout(200)
def test_two_workers_train_as_one(tmp_path):
    (tmp_path / "a.cntk").write_text(CONFIG)
    write_data(tmp_path / "data.ctf")
    (tmp_path / "run.py").write_text(RUN)
    shutil.rmtree(tmp_path / "models", ignore_errors=True)
    command = [sys.executable, "-c", LAUNCH, "launch", "-n", "2", str(tmp_path / "run.py"), "configFile=a.cntk",
               f"Data={tmp_path}/data.ctf", f"Out={tmp_path}", "command=Train:Test", PARALLEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    losses = re.findall(r"Finished Epoch\[[^]]*\]: \[Training\] \w+ = ([\d.]+) \* 50", log)
    assert [float(loss) for loss in losses] == pytest.approx(LOSSES, rel=1e-5)
    assert len(re.findall("Final Results", log)) == 1
    assert (Path(tmp_path) / "models" / "net.dnn").is_file()


def last_loss(log):
    """Number and loss of the last epoch in a log."""
    number, loss = re.findall(r"Finished Epoch\[ *(\d+) of \d+\]: \[Training\] \w+ = ([\d.]+) \* 50", log)[-1]
    return int(number), float(loss)


@pytest.mark.timeout(200)
def test_workers_that_merge_their_models_log_the_epochs_of_all(tmp_path):
    (tmp_path / "a.cntk").write_text(CONFIG)
    write_data(tmp_path / "data.ctf")
    (tmp_path / "run.py").write_text(RUN)
    method = "parallelizationMethod=BlockMomentumSGD;parallelizationStartEpoch=2;BlockMomentumSGD=[blockSize=40]"
    adjusts = "AutoAdjust=[autoAdjustLR=adjustAfterEpoch;reduceLearnRateIfImproveLessThan=0.9]"
    command = [sys.executable, "-c", LAUNCH, "launch", "-n", "2", str(tmp_path / "run.py"), "configFile=a.cntk",
               f"Data={tmp_path}/data.ctf", f"Out={tmp_path}", "command=Train", "parallelTrain=true", "stderr=log",
               f"Train=[SGD=[{adjusts};ParallelTrain=[{method}]]]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    logs = [(tmp_path / name).read_text() for name in ("log", "log.rank1")]
    assert done.returncode == 0, done.stdout + done.stderr
    epochs = [re.findall(r"Finished Epoch.*?\[Training\] (.*); epochTime", log) for log in logs]
    assert epochs[0] == epochs[1]  # also the rate, which depends on the averages
    for epoch, seen in zip(epochs[0], (50, 100, 150), strict=True):
        assert f"* 50; totalSamplesSeen = {seen};" in epoch
    assert all(log.count("Parallel training (2 workers) using BlockMomentumSGD") == 2 for log in logs)
    shared = r"Epoch\[ 2 of 3\]-Minibatch\[   1-   2, 100.00%\]: CrossEntropyWithSoftmax = [\d.]+ \* 20;"
    assert all(re.search(shared, log) for log in logs)  # minibatches of 20 are shared, as in CNTK's log of ParallelBM


@pytest.mark.timeout(400)
def test_a_training_goes_on_after_a_worker_was_killed(tmp_path):
    (tmp_path / "a.cntk").write_text(CONFIG)
    write_data(tmp_path / "data.ctf")
    (tmp_path / "run.py").write_text(RUN)

    def command(workers, folder, epochs):
        launch = ["-c", LAUNCH, "launch", "-n", str(workers)] if workers > 1 else []
        return [sys.executable, *launch, str(tmp_path / "run.py"), "configFile=a.cntk", f"Data={tmp_path}/data.ctf",
                f"Out={tmp_path}/{folder}", "command=Train", PARALLEL, f"Train=[SGD=[maxEpochs={epochs}]]"]

    def ran(*given):
        done = subprocess.run(command(*given), capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(command(2, "two", 100_000), stdout=log, stderr=log, cwd=tmp_path)
        while not (tmp_path / "two/models/net.dnn.3").exists() and run.poll() is None:  # the state is removed again
            time.sleep(0.05)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        assert run.wait(120) != 0, (tmp_path / "log").read_text()
    epochs = max(int(file.name.split(".")[2]) for file in (tmp_path / "two/models").glob("net.dnn.*.ckp")) + 2
    resumed = ran(2, "two", epochs)
    assert "Starting from checkpoint. Loading network from" in resumed
    number, loss = last_loss(resumed)
    assert (number, pytest.approx(loss, rel=1e-5)) == last_loss(ran(1, "one", epochs))
