"""Whole processes with an empty and then with a full compilation cache."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cold, cold_programs, report, taggers

SCRIPT = """
import sys
import numpy as np
import cntk as C

x = C.input_variable(3)
scores = C.layers.Dense(4)(x)
learner = C.sgd(scores.parameters, C.learning_parameter_schedule(0.1))
trainer = C.Trainer(scores, (C.reduce_sum(scores), None), [learner])
trainer.train_minibatch({x: np.ones((int(sys.argv[1]), 3), np.float32)})
"""


def test_a_script_runs_cold_and_then_warm(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    runs = cold.compare(cold.Script("one step", path, ["5"]), cntk27=None, atis=None)
    assert set(runs) == {"cold", "warm"}
    for result in runs.values():
        assert result["seconds"] > 0 and result["cpu"] > 0 and result["megabytes"] > 10
    compiled = {name: result["programs"] - result["cached"] for name, result in runs.items()}
    assert compiled["cold"] > compiled["warm"] == 0


def test_a_script_that_fails_is_reported_with_the_end_of_its_output(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text("raise SystemExit('no such file')")
    runs = cold.compare(cold.Script("failing", path, only_cold=True), cntk27=None, atis=None)
    assert runs["cold"]["error"] == "no such file"
    assert "failing: cold failed:\nno such file" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_run():
    measured = {"seconds": 12.34, "cpu": 20.06, "megabytes": 512.3}
    runs = {"cold": measured | {"large": 5, "compile_seconds": 6.78}, "warm": {"error": "no"}, "cntk27": measured}
    title = cold.SCRIPTS["digits"].title
    assert cold.table({"digits": runs}).splitlines()[2:] == [
        f"| {title} | cold | 12.3 | 20.1 | 512 | 5 | 6.8 |",
        f"| {title} | second process | failed |  |  |  |  |",
        f"| {title} | CNTK 2.7 | 12.3 | 20.1 | 512 |  |  |",
    ]


def test_the_first_minibatches_of_a_slow_network_are_extrapolated():
    result = {"cold": {"minibatches": 60, "seconds": 20.0}, "milliseconds": [400.0, 500.0, 900.0]}
    assert report.cold_seconds(result) == pytest.approx(20 + 40 * 0.5)


def test_a_program_of_the_benchmark_computes_what_cntk_does(tmp_path):
    script = Path(cold_programs.__file__)
    run = subprocess.run([sys.executable, script, "yolo"], capture_output=True, text=True, check=True)
    assert float(run.stdout.split()[-1]) == pytest.approx(218.76303, rel=1e-5)  # printed by CNTK 2.7


@pytest.mark.parametrize("name", ["normalized", "bi-directional, gated"])
def test_a_tagger_of_the_script_trains_and_is_tested(name, tmp_path):
    lines = "0\t|S0 178:1\t|S2 128:1\n0\t|S0 479:1\t|S2 12:1\n1\t|S0 7:1\t|S2 1:1\n"
    for part in ("train", "test"):
        (tmp_path / f"atis.{part}.ctf").write_text(lines)
    assert taggers.train_and_test(name, taggers.TAGGERS[name](), str(tmp_path), words=3) in (0, 1 / 3, 2 / 3, 1)
