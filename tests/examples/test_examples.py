"""The programs of examples/ run from start to end and learn; the bounds stand well above what CNTK 2.7 reaches.

Source: CNTK 2.7 with seed 1 and the same reduced settings: digits after 4 epochs 3.06%, ATIS after 12,000 words 22.20%
(the most frequent label alone: 33.37%), the pangram 1.63 nats a character.
"""

import ast
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cntkjax as C

ROOT = Path(__file__).parents[2]
ATIS = ROOT.parent / "shared" / "data" / "atis"
CMUDICT = ATIS.parent / "cmudict"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_learns_and_the_saved_model_makes_the_same_errors(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    path = tmp_path / "digits.model"
    error = example("digits").main(epochs=4, seed=1, path=str(path))
    assert error < 0.12
    assert path.stat().st_size > 40394 * 4
    assert f"loaded again: {round(360 * error)} of 360 digits are wrong" in capsys.readouterr().out


def test_the_sgd_block_finds_its_rate(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    assert example("sgd_block").main(folder=str(tmp_path), epochs=3) < 0.12
    assert (tmp_path / "history.svg").exists() and (tmp_path / "digits.model").exists()


@pytest.mark.skipif(not ATIS.exists(), reason="the ATIS files of ../shared are not here")
def test_atis_tagging_learns(capsys):
    assert example("atis_tagging").main(str(ATIS), epochs=1, epoch_size=12000) < 0.27
    assert "of 10984 words" in capsys.readouterr().out


def test_atis_tagging_names_the_file_it_misses(tmp_path):
    with pytest.raises(SystemExit, match=r"atis\.train\.ctf does not exist: give the folder"):
        example("atis_tagging").main(str(tmp_path))


@pytest.mark.skipif(not CMUDICT.exists(), reason="the pronouncing dictionary of ../shared is not here")
def test_cmudict_g2p_learns_and_speaks(capsys):
    g2p = example("cmudict_g2p")
    assert g2p.errors([1, 2, 3], [2, 3, 4]) == 2
    g2p.main(str(CMUDICT), limit=4000, tested=100)
    assert "sounds/s in decoding" in capsys.readouterr().out


def test_char_lm_learns(tmp_path, capsys):
    text = tmp_path / "pangram.txt"
    text.write_text("the quick brown fox jumps over the lazy dog.\n" * 2000)
    assert example("char_lm").main(str(text)) < 2.2 < math.log(28)
    assert "4544 characters" in capsys.readouterr().out


def test_char_lm_needs_enough_text(tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("too short")
    with pytest.raises(SystemExit, match="has 9 characters: at least 1281 are needed"):
        example("char_lm").main(str(text))


def test_wgan_gp_learns(capsys):
    away, parts = example("wgan_gp").main(steps=250)
    assert away < 0.75 and parts >= 2
    assert "Step   250" in capsys.readouterr().out


def test_jax_and_flax_learn():
    pytest.importorskip("flax", reason="flax is an extra")
    assert max(example("jax_and_flax").main(steps=150)) < 0.1


def test_debugging_finds_the_mistake(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    example("looking_inside").main(str(tmp_path))
    output = capsys.readouterr().out
    assert "NaN in the result of Minus 'margins'" in output and "margins: Minus(" in output
    assert (tmp_path / "network.svg").exists() and list(tmp_path.glob("*_detail_.json"))


@pytest.mark.parametrize("path", [
    *sorted(ROOT.glob("examples/*.py")),
    *(ROOT / "benchmarks" / name for name in ("cntk_networks.py", "data.py", "worker.py")),
], ids=lambda path: path.stem)
def test_examples_for_cntk_are_python_3_6(path):
    ast.parse(path.read_text(), feature_version=(3, 6))


def test_an_operation_in_numpy_and_in_jax_learn_alike(tmp_path, monkeypatch):
    module = example("own_operations")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # as a script's module is; model files name it
    in_numpy, in_jax, model = module.main(steps=150)
    assert in_numpy < 0.02
    assert abs(in_numpy - in_jax) < 1e-4
    model.save(str(tmp_path / "model"))
    again = C.load_model(str(tmp_path / "model"))
    data = np.array([[0.5]], np.float32)
    np.testing.assert_array_equal(again.eval({again.arguments[0]: data}), model.eval({model.arguments[0]: data}))
