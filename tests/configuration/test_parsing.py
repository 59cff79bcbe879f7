"""The syntax of configurations: mistakes are shown with their place, hostile texts are refused."""

import time

import pytest

from cntkjax.configuration import load
from cntkjax.sgd import ConfigError
from tests.configuration.reading import read


@pytest.mark.parametrize(("text", "place", "message"), [
    ("a = [ b = 1", "line 1, column 5", "[ is not closed; add ]"),
    ("a = [ b = 1\n}", "line 2, column 1", "} closes [ of line 1; expected ]"),
    ("a = 1\n]\nb = 2", "line 2, column 1", "] closes nothing"),
    ("a = 1\n b c", "line 2, column 2", "expected key = value, not 'b c'"),
    ("value = $valeu$", "line 1, column 9", "$valeu$ is not defined; did you mean $value$?"),
    ("value = $a$\na = x$a$", "line 2, column 5", "$a$ refers to itself; give it a value, as in a=value on"),
    ("value = $b$\nb = $a$\na = $b$", "line", "refers to itself"),
    ("value = 'x", "line 1, column 9", "the quote ' is not closed"),
    ("include = nowhere.cntk", "line 1, column 1", "there is no file nowhere.cntk"),
])
def test_mistakes_are_shown_with_their_place(tmp_path, text, place, message):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text).text("value")
    shown = str(error.value)
    assert place in shown and message in shown and str(tmp_path) in shown and shown.splitlines()[2].strip() == "^"


def test_closing_brackets_too_many_at_the_end_count_for_nothing(tmp_path):
    (tmp_path / "a.cntk").write_text("a = [ b = 1 ]\n]\n} ")
    block = load([f"configFile={tmp_path}/a.cntk"]).block("a")
    assert block.integer("b") == 1


@pytest.mark.parametrize("text", [
    "value = 1*1000000000",
    "value = $a0$\n" + "".join(f"a{i} = $a{i + 1}$$a{i + 1}$\n" for i in range(60)) + "a60 = xx",
    "value = " + "(" * 100_000, "value = [" * 5000, "value = 1:" * 100_000 + "\n]\nb = 1",
])
def test_hostile_texts_are_refused_within_a_second(tmp_path, text):
    start = time.process_time()
    with pytest.raises(ConfigError):
        read(tmp_path, text).array("value")
    assert time.process_time() - start < 5  # much less on an idle machine
