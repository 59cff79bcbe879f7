"""Training goes on, with one warning, where a version of jax lacks a private name, an option or a trick."""

import dis
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir

import cntkjax as C
from cntkjax._best_effort import efforts
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla import compiler, private_names
from cntkjax.interop import from_jax

TRAINING = """
import numpy as np
import cntk as C
x, y = C.sequence.input_variable(2), C.sequence.input_variable(2)
z = C.times(C.layers.Recurrence(C.layers.RNNStep(2))(x), C.parameter((2, 2), init=0.5))
for number, p in enumerate(z.parameters):
    p.value = np.reshape(np.sin(np.arange(p.value.size) + number), p.shape)
trainer = C.Trainer(z, C.squared_error(z, y), C.adam(z.parameters, 0.1, 0.9))
losses = []
for number in range(3):
    data = [np.sin(np.arange(6 * (i + 1), dtype=np.float32) + number).reshape(-1, 2) for i in range(2)]
    trainer.train_minibatch({x: data, y: [np.cos(a) for a in data]})
    losses.append(trainer.previous_minibatch_loss_average)
losses.append(float(np.sum([a.sum() for a in z.eval({x: data})])))
"""


def losses():
    programs.clear()
    exec(TRAINING, namespace := {})
    return namespace["losses"]


@pytest.fixture(scope="module")
def expected():
    return losses()


@pytest.fixture(autouse=True)
def found_out_anew(monkeypatch, tmp_path):
    """Nothing is known of this version of jax."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    caches = [f for module in (private_names, compiler) for f in vars(module).values() if hasattr(f, "cache_clear")]
    for cached in caches:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


SOURCE = Path(private_names.__file__).read_text()
NAMES = sorted({
    *re.findall(r"(?<=\.)_(?!_)\w+", SOURCE.partition("def c_function")[2]), "_unloaded_executable", "create_cpp_call",
    "host_callbacks", "compile_args", "kept_var_idx", "clear_all_caches", "serialize_executable", "make_ir_context",
})
SILENT = {"_src", "clear_all_caches", "make_ir_context", "_no_kwargs"}  # the last: for stored programs that call Python


def rename(name, patch):
    """Let the module ask jax for another name."""
    number = len(efforts)
    renamed = dict(vars(private_names))
    head, start, rest = SOURCE.partition("def c_function")
    exec(compile(head + start + re.sub(rf"\b{name}\b", f"{name}_of_old", rest), "renamed", "exec"), renamed)
    del efforts[number:]
    for key, function in vars(private_names).items():
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, FunctionType) and function.__module__ == private_names.__name__:
            patch.setattr(function, "__code__", getattr(renamed[key], "__wrapped__", renamed[key]).__code__)


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_without_a_private_name(name, expected, monkeypatch):
    rename(name, monkeypatch)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        np.testing.assert_allclose(losses(), expected, rtol=1e-5)
    texts = [str(warning.message) for warning in raised]
    assert len(texts) == (name not in SILENT), texts
    assert all("Results are the same" in text and ("twice" in text or "not stored" in text) for text in texts)


OPTIONS = {
    **compiler.OPTIONS, **compiler.SMALL_OPTIONS, **compiler.QUICK_OPTIONS, **compiler.LARGE_SUM_OPTIONS,
    **compiler.COLLECTIVE_OPTIONS, **compiler.LOOP_BARRIER_OPTIONS,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_training_goes_on_without_an_option_of_the_compiler(name, expected, monkeypatch):
    compile_with = compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda options: name not in options and compile_with(options))
    np.testing.assert_allclose(losses(), expected, rtol=1e-5)
    assert name not in compiler.compiler_options() | compiler.small_options() | compiler.quick_options()


def test_the_package_is_imported_and_trains_without_all_of_them(expected):
    blocked = (
        "import sys, jax, jax.core, jax._src.util as u, jax.experimental.serialize_executable, ctypes\n"
        "del u.clear_all_caches, jax.experimental.serialize_executable, jax.core.eval_jaxpr\n"
        "sys.modules['jax.experimental.serialize_executable'] = None\n"
        "def absent(*arguments): raise OSError('no such library')\n"
        "ctypes.CDLL = absent\n"
    )
    command = [sys.executable, "-c", blocked + TRAINING + "print(*losses)"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose([float(n) for n in result.stdout.split()], expected, rtol=1e-5)
    assert result.stderr.count("Results are the same") == 1 and "compiled programs are not stored" in result.stderr


def test_what_did_not_work_is_tried_again_by_the_next_process(monkeypatch):
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="not stored"):
        patch.setattr(private_names, "serialized", None)
        assert not private_names.available().stores
    private_names.available.cache_clear()
    assert all(private_names.available())
    private_names.available.cache_clear()
    monkeypatch.setattr(private_names, "serialized", None)
    assert all(private_names.available())  # kept


def test_an_error_stays_as_it_is_where_bytecode_cannot_be_read(monkeypatch):
    def broken(code):
        raise ValueError("unknown bytecode")

    monkeypatch.setattr(dis, "get_instructions", broken)
    with pytest.raises(TypeError):
        C.ops.reduce_sum(3, axis=object())


@pytest.fixture
def idle(monkeypatch):
    """The contexts that no thread uses."""
    if hasattr(mlir, "_thread_local_context"):
        pytest.skip("this version of jax builds several programs in a context by itself")
    monkeypatch.setattr(private_names, "_idle", contexts := [])
    return contexts


def test_small_programs_are_built_in_one_context_of_which_others_and_the_user_get_none(idle):
    x = C.input_variable(2)
    C.sin(x + 2).eval({x: [[1, 2]]})
    [(context, left)] = idle
    C.cos(x * 3).eval({x: [[1, 2]]})
    assert idle == [(context, left - 1)]
    assert jax.jit(lambda a: a - 7).lower(np.float32(1)).compiler_ir().context is not context
    idle[:] = [(context, 1)]
    C.exp(x - 4).eval({x: [[1, 2]]})
    assert idle == []


def test_a_thread_that_ends_keeps_no_context(idle):
    x = C.input_variable(2)
    thread = threading.Thread(target=lambda: C.tan(x + 2).eval({x: [[1, 2]]}))
    thread.start()
    thread.join()
    assert len(idle) == 1 and private_names._lent.context is None


def test_the_context_of_a_program_with_large_constants_is_not_kept(idle):
    x, table = C.input_variable(2), np.arange(6000, dtype=np.float32).reshape(2, -1)
    from_jax(lambda parameters, a: jnp.tanh(a @ jnp.asarray(table)), {}, x).eval({x: [[1, 2]]})
    assert idle == []
