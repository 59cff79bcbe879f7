"""Configurations on several workers: one log, one model, and the numbers of one worker."""

import re
import shutil
import subprocess
import sys
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
