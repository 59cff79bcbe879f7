"""`cntkjax doctor --compile`: what a script compiles, with its lines, and advice."""

import re

from cntkjax.cli import _compilations, main
from cntkjax.engine.run.compilations import Compilation

SCRIPT = """
import sys

import numpy as np

import cntkjax as C

assert sys.argv[1:] == ["--epochs", "3"]
x, w = C.input_variable(3), C.parameter(3)
loss = C.reduce_sum(C.square(x * w))
trainer = C.Trainer(loss, (loss, None), [C.sgd([w], 0.1)])
for count in (2, 900):
    trainer.train_minibatch({x: np.ones((count, 3), np.float32)})
"""


def test_the_compilations_of_a_script_are_listed_with_its_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_compilations, "_SHORT", 0.0)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["doctor", "--compile", str(script), "--epochs", "3"]) == 0
    output = capsys.readouterr().out
    line = r"s  the training step for minibatches of up to 900: \w+, \d+ operations, first needed at train.py:13"
    assert re.search(line, output)
    assert "one of 2 programs for minibatches of other sizes" in output


def test_large_graphs_get_advice():
    large = Compilation("the training step", 9.0, False, False, 5000, "train.py:3", 9.0)
    small = Compilation("an evaluation", 0.1, True, False, 5)
    text = "\n".join(_compilations.lines([small, large]))
    assert text.index("train.py:3") < text.index("C.layers.Recurrence") < text.index("an evaluation: loaded")


def test_a_script_that_is_missing_is_an_error(capsys):
    assert main(["doctor", "--compile"]) != 0
    assert "cntkjax doctor --compile train.py" in capsys.readouterr().err
