"""Scripts that take from Python and NumPy what was there when CNTK was, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cntkjax import legacy

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(legacy.__file__).parents[1])}


def run(folder, code, *arguments):
    script = folder / "script.py"
    script.write_text("import sys, numpy as np, cntk as C\n" + code)
    command = [sys.executable, "-m", "cntkjax.legacy", script, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def printed(folder, code, *arguments):
    done = run(folder, code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_trains_with_names_that_numpy_and_python_had(tmp_path):
    assert printed(tmp_path, """
import collections, inspect, time
begin = time.clock()
x, y = C.sequence.input_variable(2), C.input_variable(1)
model = C.sequence.last(C.layers.Recurrence(C.layers.RNNStep(1, init=0.5))(x))
rate = C.learning_rate_schedule(0.1, C.UnitType.sample)
trainer = C.Trainer(model, C.squared_error(model, y), C.sgd(model.parameters, rate))
steps = np.array([[[1, 2]], [[1, 0], [0, 1]]])       # sequences of two lengths
data = [np.array(each).astype(np.float) for each in steps]
labels = np.asfarray([[1], [0]]).astype(np.float32)
trainer.train_minibatch({x: data, y: labels})
print([np.float32(trainer.previous_minibatch_loss_average)], steps.shape, np.asscalar(np.product([2, 3])))
print(isinstance(data, collections.Iterable), inspect.getargspec(lambda a, b=1: a).args, begin <= time.clock())
print(np.lib.pad([1], 1, 'edge'))
print(np.fromstring(b"\\x01\\x02", np.uint8), np.fromstring("1 2", sep=" ", dtype=np.int), sys.argv[1:])
""", "--epochs", "3") == (
        "[0.25632867] (2,) 6\nTrue ['a', 'b'] True\n[1 1 1]\n[1 2] [1 2] ['--epochs', '3']\n"
    )  # fmt: skip


def test_a_script_uses_what_other_packages_and_modules_had(tmp_path):
    pytest.importorskip("pandas"), pytest.importorskip("PIL")
    (tmp_path / "settings.py").write_text("rate = 0.5")
    assert printed(tmp_path, f"""
import imp, pandas
from PIL import Image
frame = pandas.DataFrame({{"a": [1, 2], "b": [3, 4]}})
print(frame.as_matrix(["b"]).ravel(), Image.new("L", (8, 8)).resize((2, 3), Image.ANTIALIAS).size)
print(imp.load_source("settings", {str(tmp_path / "settings.py")!r}).rate, np.random.random_integers(3, 3))
""") == "[3 4] (2, 3)\n0.5 3\n"


def test_lists_of_several_lengths_are_no_data_as_ever(tmp_path):
    done = run(tmp_path, "(C.input_variable(2) + 1).eval([[1, 2], [1]])")
    assert done.returncode == 1
    assert "ValueError" in done.stderr and "inhomogeneous" not in done.stderr


@pytest.mark.parametrize("code", ["np.array([[1], [2, 3]], np.float32)", "np.array('a', int)"])
def test_what_numpy_always_refused_is_refused(code, tmp_path):
    assert run(tmp_path, f"try:\n    {code}\nexcept ValueError:\n    sys.exit(5)").returncode == 5


def test_without_a_script_the_usage_is_shown(tmp_path):
    command = [sys.executable, "-m", "cntkjax.legacy"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == "usage: python -m cntkjax.legacy SCRIPT [ARGUMENT ...]\n"
