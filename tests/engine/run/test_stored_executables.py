"""Stored executables: what an earlier process compiled is loaded without tracing it; what is damaged is not run."""

import io
import pickle
import subprocess
import sys
import threading
import zlib
from concurrent.futures import wait

import jax
import numpy as np
import pytest

from cntkjax.engine.run import stored_executables
from cntkjax.engine.run.compiling import Computation
from cntkjax.engine.run.executables import Executables
from cntkjax.engine.run.handover import captured
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla import cache, descriptions, private_names

ONES = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own, and no programs of other tests."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    programs.clear()
    return tmp_path


class Doubling:
    """Executables that double an array, as each process makes them anew; `traces` counts."""

    def __init__(self, description=lambda: "double"):
        self.traces = 0
        self.executables = Executables(self._double, computation=Computation(description), donate_argnums=0)

    def _double(self, x):
        self.traces += 1
        return captured({"twice": 2 * x, "none": None})

    def __call__(self, x=ONES):
        outputs = []
        self.executables.run(x.shape, (x,), outputs)
        return outputs[0]()["twice"].tolist()


def entries(folder):
    """The stored programs, the largest first, and then what refers to them, when all are written."""
    wait(list(stored_executables._unsaved.values()))
    return sorted(folder.glob("*.program"), key=lambda path: -path.stat().st_size)


def reference(folder):
    """The entry that refers to the only program."""
    return next(path for path in entries(folder) if entries(folder)[0].stem in path.read_text(errors="replace"))


def test_an_executable_is_loaded_without_tracing():
    first, second = Doubling(), Doubling()
    assert first() == second() == [2, 2, 2]
    assert (first.traces, second.traces) == (1, 0)
    one, other = next(iter(first.executables)), next(iter(second.executables))
    assert not one.stored and other.stored and other.seconds == one.seconds > 0


def test_a_loaded_executable_is_a_function_in_c_and_donates():
    Doubling()()
    second = Doubling()
    second()
    assert type(next(iter(second.executables)).run) is type(jax.jit(abs))
    for _ in range(2):
        array = jax.numpy.ones(3)
        assert second(array) == [2, 2, 2]
    assert array.is_deleted()


def test_other_shapes_types_and_computations_are_others():
    Doubling()()
    for doubling, x in [(Doubling(), np.ones(4, np.float32)), (Doubling(), np.ones(3, np.int32)),
                        (Doubling(lambda: "other"), ONES)]:
        doubling(x)
        assert doubling.traces == 1


def test_options_of_jax_are_part_of_the_key():
    Doubling()()
    with jax.default_matmul_precision("float32"):
        other = Doubling()
        other()
    assert other.traces == 1


def test_what_has_no_description_is_found_by_its_program():
    first, second = Doubling(object), Doubling(object)
    assert first() == second() == [2, 2, 2]
    assert second.traces == 1 and next(iter(second.executables)).stored


def calling(*functions):
    """Executables that call these functions of Python in turn."""

    def call(x):
        for function in functions:
            x = jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return captured(x)

    return Executables(call, computation=Computation(object))


def test_a_loaded_program_calls_the_functions_of_this_process():
    first, second = calling(lambda x: x + 1, lambda x: 3 * x), calling(lambda x: 2 * x, lambda x: x - 5)
    for _ in range(2):
        assert first.call("key", (ONES,))().tolist() == [6, 6, 6]
    for _ in range(3):  # from the second call on jax runs no code of its own
        assert second.call("key", (ONES,))().tolist() == [-3, -3, -3]
    loaded = next(iter(second))
    assert not next(iter(first)).stored and loaded.stored
    assert type(loaded.run) is type(jax.jit(abs)), "called in C"


def test_an_executable_is_not_loaded_for_another_number_of_functions():
    compiled = calling(np.negative).compiler.jitted.lower(ONES).compile()
    structures = jax.tree.structure(((ONES,), {})), compiled.out_tree
    with pytest.raises(ValueError, match="calls 1 functions, not 2"):
        data = private_names.serialized(compiled)
        private_names.deserialized(data, jax.devices()[:1], *structures, [np.negative] * 2)


def test_programs_that_call_python_run_where_their_functions_cannot_be_replaced(monkeypatch):
    monkeypatch.setattr(stored_executables, "platform", lambda: "gpu")
    for _ in range(2):
        negating = calling(np.negative)
        assert negating.call("key", (ONES,))().tolist() == [-1, -1, -1]
        assert not next(iter(negating)).stored


def test_unused_inputs_distinguish_programs_of_the_same_text():
    first = Executables(lambda x, y: 2 * x, computation=Computation(object))
    second = Executables(lambda x, y: 2 * y, computation=Computation(object))
    assert first.get(0, (ONES, 0 * ONES)).run(ONES, 0 * ONES).tolist() == [2, 2, 2]
    assert second.get(0, (ONES, 0 * ONES)).run(ONES, 0 * ONES).tolist() == [0, 0, 0]


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("which", [lambda folder: entries(folder)[0], reference])
def test_a_garbled_entry_is_made_again_and_replaced(folder, which, place):
    Doubling()()
    path = which(folder)
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)
    second, third = Doubling(), Doubling()
    assert second() == third() == [2, 2, 2]
    assert (second.traces, third.traces) == (1, 0)


def test_code_that_has_changed_is_traced_again_and_finds_its_program(monkeypatch):
    Doubling()()
    monkeypatch.setattr(stored_executables, "code", lambda: "another version")
    second, third = Doubling(), Doubling()
    assert second() == third() == [2, 2, 2]
    assert (second.traces, third.traces) == (1, 0)
    assert next(iter(second.executables)).stored


def test_entries_under_each_others_names_are_not_run(folder):
    Doubling()()
    Doubling()(np.ones(4, np.float32))
    a, b = entries(folder)[:2]
    a.rename(folder / "aside")
    b.rename(a)
    (folder / "aside").rename(b)
    second = Doubling()
    assert second() == [2, 2, 2] and second(np.ones(4, np.float32)) == [2, 2, 2, 2]
    assert second.traces == 2


@pytest.mark.parametrize("content", [b"", b"\x02\0\0\0{}", b"\xff" * 100, b'["ab", 1]', b'["../ab", "leaf"]', b"{}"])
@pytest.mark.parametrize("which", [lambda folder: entries(folder)[0], reference])
def test_whole_entries_of_another_form_are_made_again(folder, which, content):
    Doubling()()
    cache.store().write(which(folder).stem, content)
    second = Doubling()
    assert second() == [2, 2, 2] and second.traces == 1


def test_an_entry_calls_nothing_but_jax(folder, tmp_path):
    Doubling()()

    class Attack:
        def __reduce__(self):
            return open, (str(tmp_path / "attacked"), "w")

    content = stored_executables._SECONDS.pack(1.0) + zlib.compress(pickle.dumps(Attack()))
    cache.store().write(entries(folder)[0].stem, content)
    second = Doubling()
    assert second() == [2, 2, 2] and second.traces == 1
    assert not (tmp_path / "attacked").exists()
    with pytest.raises(ValueError, match="open is not part of an executable"):
        private_names.deserialized(pickle.dumps(Attack()), jax.devices()[:1], None, None)


def test_members_of_enumerations_are_read_as_all_releases_of_python_write_them():
    class ByName:
        def __reduce__(self):
            return getattr, (jax.memory.Space, "Device")

    class Attack:
        def __reduce__(self):
            return getattr, (jax.memory.Space, "mro")

    class Outside:
        def __reduce__(self):
            return getattr, (jax.Device, "__doc__")

    def read(content):
        device = jax.devices()[0]
        return private_names._unpickler()(io.BytesIO(pickle.dumps(content)), device.client, [device]).load()

    assert read(ByName()) is jax.memory.Space.Device
    with pytest.raises(KeyError, match="mro"):
        read(Attack())
    with pytest.raises(ValueError, match="is not part of an executable"):
        read(Outside())


def test_a_quick_start_is_the_same_with_stored_executables(monkeypatch):
    """First the quick version, for as many runs as in the process that compiled it, then the thorough one."""
    monkeypatch.setattr("cntkjax.engine.run.quick_starts.LOST_TIME_OF_AN_OPERATION", 6)  # 12 elements
    for is_stored in (False, True):
        negate = Executables(lambda x: captured(-x), quick_start=True, computation=Computation(lambda: "-"))
        used = []
        for _ in range(6):
            outputs = []
            negate.run("key", (ONES,), outputs)
            assert outputs[0]().tolist() == [-1, -1, -1]
            used.append(negate._executables[next(iter(negate._executables))])
        assert used[0] is used[2] is not used[4] is used[5]
        assert used[0].allowance.left == 0  # in run 4 it may be replaced already, once it has begun
        assert used[0].stored == used[5].stored == is_stored and used[5].allowance.left > 1e9


def test_what_jax_cannot_serialize_runs(monkeypatch):
    def fail(executable):
        raise NotImplementedError

    monkeypatch.setattr(stored_executables, "serialized", fail)
    first, second = Doubling(), Doubling()
    assert first() == second() == [2, 2, 2] and second.traces == 1


def test_nobody_waits_while_an_executable_is_stored_but_who_reads_it(monkeypatch):
    may_store = threading.Event()

    def serialized(executable):
        assert may_store.wait(60)
        return private_names.serialized(executable)

    monkeypatch.setattr(stored_executables, "serialized", serialized)
    assert Doubling()() == [2, 2, 2] and stored_executables._unsaved
    threading.Timer(0.05, may_store.set).start()
    second = Doubling()
    assert second() == [2, 2, 2] and second.traces == 0


def test_a_folder_on_which_nothing_can_be_written_has_one_warning(monkeypatch, folder):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "/dev/full/cache")
    cache._store.cache_clear()
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning) as warned:
        assert Doubling()() == Doubling()() == [2, 2, 2]
    assert len(warned) == 1


TRAINING = """
import sys
import numpy as np
import cntkjax as C
from cntkjax.engine.run import compilations, executables
C.cntk_py.reset_random_seed()
x, y = C.sequence.input_variable(4), C.input_variable(2)
z = C.sequence.last(C.layers.Recurrence(C.layers.LSTM(3))(C.layers.Dropout(0.5, seed=1)(x)))
z = C.layers.Dense(2)(z)
loss = C.cross_entropy_with_softmax(z, y)
learners = {
    "adam": lambda: C.adam(z.parameters, 0.1, 0.9, gaussian_noise_injection_std_dev=0.1),
    "optax": lambda: C.learners.from_optax(z.parameters, __import__("optax").adamw(0.1)),
}
trainer = C.Trainer(z, (loss, C.classification_error(z, y)), [learners[sys.argv[1]]()])
rng = np.random.default_rng(0)
for _ in range(4):
    data = {x: [rng.normal(size=(n, 4)).astype("f") for n in (3, 5)], y: np.eye(2, dtype="f")}
    trainer.train_minibatch(data)
print(repr([p.value.tolist() for p in z.parameters]), trainer.test_minibatch(data), z.eval({x: data[x]}).tolist())
print(z.grad({x: data[x]}, wrt=z.parameters[:1]).tolist())
report = compilations.report()
print("compiled", report.compiled, file=sys.stderr)
"""


@pytest.mark.parametrize("learner", ["adam", "optax"])
def test_a_second_process_compiles_nothing_and_computes_the_same(learner):
    compiles_once([sys.executable, "-c", TRAINING, learner])


USER_FUNCTIONS = """
import sys
import numpy as np
import cntkjax as C
from cntkjax.engine.run import compilations

class Scaled(C.ops.functions.UserFunction):
    def __init__(self, x, scale):
        super().__init__([x])
        self.scale = scale

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(self, x, device=None, outputs_to_retain=None):
        return None, self.scale * x

    def backward(self, state, gradients):
        return self.scale * gradients

C.cntk_py.reset_random_seed()
x, y = C.input_variable(4, needs_gradient=True), C.input_variable(2)
z = C.user_function(Scaled(C.layers.Dense(2)(C.user_function(Scaled(x, 2))), 3))
loss = C.cross_entropy_with_softmax(z, y)
trainer = C.Trainer(z, (loss, C.classification_error(z, y)), [C.adam(z.parameters, 0.1, 0.9)])
data = {x: np.random.RandomState(0).rand(2, 4).astype("f"), y: np.eye(2, dtype="f")}
for _ in range(4):
    trainer.train_minibatch(data)
print(repr([p.value.tolist() for p in z.parameters]), trainer.test_minibatch(data), z.eval({x: data[x]}).tolist())
print(z.grad({x: data[x]}).tolist())
print("compiled", compilations.report().compiled, file=sys.stderr)
"""


def test_a_second_process_compiles_nothing_that_calls_user_functions():
    compiles_once([sys.executable, "-c", USER_FUNCTIONS])


def compiles_once(command):
    """Run a command in two processes; the second one compiles nothing, and prints the same."""
    first, second = (subprocess.run(command, capture_output=True, text=True, timeout=300) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert "compiled 0" not in first.stderr and second.stderr.endswith("compiled 0\n"), second.stderr


def test_the_options_of_the_compiler_are_described_once_for_all_programs():
    inputs = [np.zeros(2, np.float32)]
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code is descriptions._describe.__code__

    first = stored_executables.key_of_computation("a program", inputs, quickly=False)
    sys.setprofile(profile)
    try:
        second = stored_executables.key_of_computation("another program", inputs, quickly=False)
    finally:
        sys.setprofile(None)
    assert first != second
    assert 0 < count < 40
