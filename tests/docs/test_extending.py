"""docs/extending.md: its code runs, and each of its four walks touches three files."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.function import nodes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
WALKS = ("An operation", "A layer", "A learner", "A reader")


@dataclass
class Block:
    """A block of code: a new file, lines appended to a file or inserted into it, or a script without a path."""

    kind: str  # python or diff
    path: str
    appended: bool
    text: str

    def apply(self, root: Path) -> None:
        """Change the file below this folder."""
        path = root / self.path
        if self.kind == "diff":
            path.write_text(inserted(path.read_text(), self.text))
        elif self.appended:
            path.write_text(f"{path.read_text()}\n\n{self.text}")
        else:
            assert not path.exists()
            path.write_text(self.text)


def blocks(section):
    """The blocks of code in a section of the page, in order."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]
    result = []
    for kind, code in re.findall(r"^```(python|diff)\n(.*?)^```", text, re.M | re.S):
        header = re.match(r"(?:# |\+\+\+ )([\w./]+\.py)( \(appended\))?\n", code)
        path, appended, body = (header[1], bool(header[2]), code[header.end() :]) if header else ("", False, code)
        result.append(Block(kind, path, appended, body))
    return result


def inserted(text, diff):
    """The text with the lines of a diff that begin with +, next to the context line above, or else below them."""
    lines, changes = text.split("\n"), diff.rstrip("\n").split("\n")
    for i, change in enumerate(changes):
        if change[0] == "+" and (i == 0 or changes[i - 1][0] != "+"):
            end = next((j for j in range(i, len(changes)) if changes[j][0] != "+"), len(changes))
            context = changes[i - 1] if i else changes[end]
            matches = [n for n, line in enumerate(lines) if line == context[1:]]
            assert len(matches) == 1, f"the context {context!r} is found {len(matches)} times"
            at = matches[0] + bool(i)
            lines[at:at] = [added[1:] for added in changes[i:end]]
    assert all(change[0] == "+" or change[1:] in lines for change in changes)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def contributed(tmp_path_factory):
    """A copy of the sources and tests with all four contributions."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("src", "tests/golden", "tests/ops", "tests/layers", "tests/learners", "tests/io"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("conftest.py", "pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, root / file)
    for section in WALKS:
        for block in blocks(section):
            block.apply(root)
    return root


def run(root, *command):
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    result = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, timeout=110
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout


@pytest.mark.parametrize("section", WALKS)
def test_a_contribution_touches_three_files(section):
    paths = {block.path for block in blocks(section)}
    assert len(paths) == 3 and len([path for path in paths if path.startswith("tests/")]) == 1


def test_the_tests_of_the_contributions_pass(contributed):
    tests = [
        "tests/ops/test_every_op.py", "tests/ops/test_operand_errors.py", "tests/layers/test_layers.py",
        "tests/learners/test_trajectories.py", "tests/io/test_json_lines.py", "tests/layers/test_docstrings.py",
    ]
    examples = ["src/cntkjax/ops/_reduce.py", "src/cntkjax/layers/_quantiles.py", "src/cntkjax/io/_json_lines.py",
                "src/cntkjax/learners/_learners.py"]
    names = "cumsum or Quantiles or lion or json_lines or JSONLines or have_a_row or has_a_mismatch"
    output = run(contributed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *examples, "-k", names)
    assert int(re.search(r"(\d+) passed", output)[1]) >= 14


def test_the_contributions_are_clean(contributed):
    pytest.importorskip("ruff", reason="ruff is a package of the tests")
    run(contributed, "-m", "ruff", "check", "--no-cache", "src", "tests")


def test_the_contributions_work_together(contributed):
    (script,) = blocks("All four together")
    (contributed / "together.py").write_text(script.text)
    run(contributed, "together.py")


# ---- outside the package


@pytest.fixture
def extensions(tmp_path, monkeypatch):
    """The page's module of extensions, imported as a user's module; the registries are restored afterwards."""
    from cntkjax.io import deserializer
    from cntkjax.primitives import BY_ID, BY_NAME

    for registry in (BY_ID, BY_NAME, deserializer._REGISTRY):
        for key in registry:
            monkeypatch.setitem(registry, key, registry[key])
    known = [(registry, set(registry)) for registry in (BY_ID, BY_NAME, deserializer._REGISTRY)]
    (block,) = blocks("Outside the package")
    path = tmp_path / block.path
    path.write_text(block.text)
    spec = importlib.util.spec_from_file_location("extensions", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "extensions", module)
    spec.loader.exec_module(module)
    yield module
    for registry, keys in known:
        for key in set(registry) - keys:
            del registry[key]


def test_the_gradient_of_an_operation_and_a_layer_matches_finite_differences(extensions):
    with C.default_options(dtype=np.float64):
        x = C.input_variable(3, np.float64, needs_gradient=True)
        f = C.reduce_sum(extensions.Highway(3, extensions.squareplus)(x))
    data = np.random.default_rng(0).standard_normal((2, 3))
    gradients = f.grad({x: data}, wrt=[x, *f.parameters])
    for p in f.parameters:
        expected, start = np.zeros(p.shape), p.value
        for index in np.ndindex(p.shape):
            step = np.zeros(p.shape)
            step[index] = 1e-6
            values = []
            for value in (start + step, start - step):
                p.value = value
                values.append(f.eval({x: data}).sum())
            expected[index] = (values[0] - values[1]) / 2e-6
        p.value = start
        np.testing.assert_allclose(gradients[p], expected, rtol=1e-6, atol=1e-8)
    steps = 1e-6 * np.eye(3)
    expected = np.stack([(f.eval({x: data + s}) - f.eval({x: data - s})).ravel() / 2e-6 for s in steps], axis=-1)
    np.testing.assert_allclose(gradients[x], expected, rtol=1e-6, atol=1e-8)


def test_extensions_train_save_and_load(extensions, tmp_path):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((512, 3)).astype(np.float32)
    labels = np.sign(samples[:, :1] * samples[:, 1:2])
    np.savez(tmp_path / "data.npz", x=samples, y=labels)
    source = C.io.MinibatchSource(extensions.NPZDeserializer(str(tmp_path / "data.npz")))
    x, y = C.input_variable(3), C.input_variable(1)
    layers = [C.layers.Dense(8), *(extensions.Highway(8, extensions.squareplus) for _ in range(2))]
    model = C.layers.Sequential([*layers, C.layers.Dense(1)])(x)
    loss = C.squared_error(model, y)
    trainer = C.Trainer(model, (loss, None), [extensions.sign_sgd(model.parameters, lr=0.01)])
    losses = []
    for _ in range(300):
        trainer.train_minibatch(source.next_minibatch(64, input_map={x: source.streams.x, y: source.streams.y}))
        losses.append(trainer.previous_minibatch_loss_average)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    trainer.save_checkpoint(str(tmp_path / "checkpoint"))
    trainer.restore_from_checkpoint(str(tmp_path / "checkpoint"))
    model.save(str(tmp_path / "model"))
    loaded = C.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.eval({loaded.arguments[0]: samples}), model.eval({x: samples}))
    assert "Squareplus" in {node.op_name for node in nodes([loaded.root_function], into_blocks=True)}
