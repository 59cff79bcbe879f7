"""Mutated configurations end with an error that says where it is, or with networks: no hang, no traceback."""

import random
import re
import time

import pytest

from cntkjax.brainscript.describe import describe
from cntkjax.brainscript.language import build_network
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.mel import edit
from cntkjax.brainscript.models import function_of
from cntkjax.brainscript.ndl import build_network as build_ndl
from cntkjax.configuration import load
from cntkjax.configuration.source import ConfigError, Text
from tests.brainscript.actions.test_train import CONFIG
from tests.brainscript.language.descriptions import build
from tests.brainscript.mel.test_editor import NET

BRAINSCRIPT = """
    dim = 3 ; layers = 2
    x = Input {dim} ; labels = Input {2}
    Layer (n, input, scale=1) = {
        W = ParameterTensor {(n : 0), init="uniform", initValueScale=scale}
        y = Tanh (W * input)
    }.y
    h[i:0..layers-1] = if i == 0 then Layer (4, x)
                       else Layer (4, h[i-1], scale=2)
    sizes = 2 : layers*1 : Length (1 : 2)
    state = Sigmoid (h[layers-1] + 0.5 .* BS.Loop.Previous (state))
    model = Sequential (DenseLayer {4} : ReLU : (v => v + 1) : LinearLayer {sizes[0]})
    z = model (state)
    text = Format (layers, "%.2f") + " layers"  // a comment
    ce = CrossEntropyWithSoftmax (labels, z)
    criterionNodes = (ce) ; featureNodes = (x) ; labelNodes = (labels) ; outputNodes = (z : h[0])
"""
SCRIPT = """
m = LoadModel("old.dnn", format="cntk")
SetDefaultModel(m)
New = Sigmoid(L1.Y)
SetInput(L2.T, 1, New)
Copy(L1.*, L9.*, copy=all)
Rename(L9.*, L8.*)
SetProperty(L2.P, output, true)
Remove(L8.*)
SaveModel(m, "new.dnn")
"""
_PIECES = ("[", "]", "{", "}", "(", ")", ":", "=", "$", "$x$", '"', "..", "*", ",", ";", "\n", "0", "-1", "1e9", "#",
           "=>", "if", "then", "new", "é", "\x01", "a.b", "999999999")


def mutated(text, seed):
    """The text with some of its pieces removed, doubled, exchanged or replaced."""
    rng = random.Random(seed)
    pieces = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                pieces[at] = ""
            case 1:
                pieces[at] += pieces[at]
            case 2:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 3:
                pieces[at] = rng.choice(_PIECES)
            case 4:
                pieces = pieces[:at] + pieces[at + rng.randint(1, 20):]
                pieces = pieces or [""]
    return "".join(pieces)


def read_configuration(text, folder):
    (folder / "a.cntk").write_text(text)
    list(describe(load([f"configFile={folder}/a.cntk"]), Log()))


def edit_model(text, folder):
    edit(Text("edit.mel", text), {})


READ = {
    "configuration": (CONFIG, read_configuration),
    "BrainScript": (BRAINSCRIPT, lambda text, folder: build(text)),
    "NDL": (NET, lambda text, folder: build_ndl(Text("net.ndl", text), {})),
    "MEL": (SCRIPT, edit_model),
}


@pytest.mark.parametrize("language", READ)
def test_mutated_texts_give_errors_with_places_or_networks(language, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function_of(build_ndl(Text("net.ndl", NET), {})).save("old.dnn")
    text, read = READ[language]
    read(text, tmp_path)
    for seed in range(60):
        broken, start = mutated(text, seed), time.process_time()
        try:
            read(broken, tmp_path)
        except (ConfigError, OSError):
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{broken}") from error
        assert time.process_time() - start < 30, f"seed {seed} takes too long\n{broken}"


def test_a_command_without_an_action_is_not_described(tmp_path):
    with pytest.raises(ConfigError, match="no command that builds a network"):
        read_configuration(CONFIG.replace('action = "train"', "action ="), tmp_path)


@pytest.mark.parametrize("text", [
    "x = [1..1000000000]", "x = array[0..1000000000] (i => i)", "x[i:0..1000000000] = i",
    "f (n) = f (n) + f (n)\nx = f (1)", "f (n, t) = if n == 0 then t else f (n - 1, t + t)\nx = f (60, \"a\")",
    "x = y\ny = x", "x = Repeat (1000000000, 1)", "x = " + "(" * 20000, "x = " + "-" * 20000 + "1", "x = { y = x }.y",
    'x = Replace (Replace ("' + "a" * 1000 + '", "a", "' + "a" * 1000 + '"), "a", "' + "a" * 10000 + '")',
    "x = Fac (100000)", "x = 10 ** 10 ** 10 ** 10", "x = Format (1, '.999999999')",
])
def test_hostile_descriptions_are_refused_within_a_second(text):
    start = time.process_time()
    with pytest.raises(ConfigError):
        build_network(Text("net.bs", text + "\noutputNodes = (x)"), {})
    assert time.process_time() - start < 5  # a second on an idle machine
