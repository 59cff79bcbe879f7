"""The comparison with recorded logs itself: a tree made here, whose log is that of its own run, is as recorded."""

import re

import pytest

from tests.brainscript import run_public
from tests.brainscript.test_commands import CONFIG, write_data

LOG = """
Finished Epoch[ 1 of 2]: [Training] ce = 0.63 * 50; errs = 26.000% * 50; totalSamplesSeen = 50; epochTime=1s
Finished Epoch[ 1 of 2]: [Validate] ce = 1.5e-03 * 50; errs = 1.500% * 50
Final Results: Minibatch[1-1]: errs = 4.000% * 50; ce = 0.18 * 50; perplexity = 1.2
=== Deleting last epoch data
Finished Epoch[ 2 of 2]: [Training] ce = 0.5 * 50; errs = 2.000% * 50; totalSamplesSeen = 50; epochTime=1s
"""


def test_averages_are_read_from_a_log_up_to_where_a_test_runs_again():
    assert run_public.lines_in(LOG) == {
        "Training": [{"ce": 0.63, "errs": 0.26}], "Validate": [{"ce": 0.0015, "errs": 0.015}],
        "Final": [{"errs": 0.04, "ce": 0.18}],
    }


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A test of a public tree, with what it logs as the recorded log."""
    monkeypatch.setattr(run_public, "PUBLIC", tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG.replace("$Data$", "data.ctf").replace("$Out$", "$RunDir$"))
    write_data(tmp_path / "data.ctf")
    (tmp_path / "run").mkdir()
    test = run_public.Case("Own", "a.cntk", ".", ("command=Train:Test", "Train=[SGD=[maxEpochs=1]]"), log="log.txt")
    (tmp_path / "log.txt").write_text(run_public.log_of(test, str(tmp_path / "run")))
    return test


def test_what_is_as_recorded_and_what_is_not(case, tmp_path):
    assert run_public.differences(case) == []
    recorded = tmp_path / "log.txt"
    (loss,) = [line["CrossEntropyWithSoftmax"] for line in run_public.recorded(case)["Training"]]
    text = f"CrossEntropyWithSoftmax = {loss:.8f}"
    other = recorded.read_text().replace(text, "CrossEntropyWithSoftmax = 9")
    recorded.write_text(re.sub(r"Model has (\d+)", r"Model has 1\1", other))
    sizes, difference = run_public.differences(case)
    assert re.match(r"Own: networks have sizes \[.*\], not \[\('1\d+',\)\]", sizes)
    assert difference == f"Own, Training 1: CrossEntropyWithSoftmax = {loss} instead of 9.0"
    (tmp_path / "data.ctf").unlink()
    missing = "\n".join(run_public.differences(case))
    assert "Own: 0 of 1 lines of Training" in missing and "exit status 1" in missing
