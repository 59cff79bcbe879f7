"""Shapes of programs while they run: what is compiled when, beside the work, and that results do not depend on it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import cntkjax as C
from cntkjax._best_effort import failures
from cntkjax.engine.data.packing import GridShape, pack_with_more_rows
from cntkjax.engine.data.ragged import Ragged
from cntkjax.engine.data.shapes import AxisTraits, MinibatchShape, MinibatchSpace
from cntkjax.engine.run.evaluation import evaluate_in_one_program
from cntkjax.engine.run.prices import FREE
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.run.shape_choice import Agreed, Packing, ShapeChoice, Sizes
from cntkjax.engine.train import step as steps
from cntkjax.graph.settings import Settings

LENGTHS = [5, 2, 3, 4, 1]
SHAPES = {  # batch, time, rows, one sequence a row
    "tight": (5, 5, 5, True), "padded": (9, 8, 9, True), "two rows": (6, 12, 2, False), "one row": (5, 16, 1, False),
}
x = C.sequence.input_variable(3)


def dropout_in_a_loop():
    state = C.placeholder()
    step = C.dropout(C.tanh(C.sequence.past_value(state) + x), 0.5, seed=1)
    return step.replace_placeholders({state: step})


def drawn(duplicates):
    return C.times(C.random_sample(C.softmax(x), 2, duplicates, seed=1), np.eye(3, dtype=np.float32))


RANDOM = {
    "dropout": lambda: C.dropout(x, 0.5, seed=1),
    "dropout of the last steps": lambda: C.dropout(C.sequence.last(x), 0.5, seed=1),
    "dropout in a loop": dropout_in_a_loop,
    "uniform numbers": lambda: C.random.uniform_like(x, seed=1),
    "gumbel noise for each sequence": lambda: C.random.gumbel_like(C.sequence.last(x), seed=1),
    "samples with duplicates": lambda: drawn(True),
    "different samples": lambda: drawn(False),
}


def queries(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, 3)).astype(np.float32) for n in lengths]


def in_shape(monkeypatch, batch, time, rows, simple):
    def choose(self, sizes, variables, agreed):
        (sizes,) = sizes  # of the only share
        grid = GridShape(time, rows, simple)
        grids = [pack_with_more_rows(lengths, batch, grid) for lengths in sizes.lengths.values()]
        return [Packing(MinibatchShape(batch, False, tuple(g.shape for g in grids), sizes.widths), grids)]

    monkeypatch.setattr(ShapeChoice, "choose", choose)


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_do_not_depend_on_shapes(monkeypatch, name):
    sequences, values = Ragged.from_sequences(queries(LENGTHS)), []
    for shape in SHAPES.values():
        in_shape(monkeypatch, *shape)
        (result,) = evaluate_in_one_program([RANDOM[name]().output], {x: sequences}, training=True)  # a new node
        values.append(result.ragged().data)
    assert np.std(values[0]) > 0
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-5, atol=1e-6)


class Prices:
    """What is worth a compilation at once, if a run was timed."""

    compilation_seconds, seconds_per_work = 1e-3, 1e-4


def policies_of(program):
    return list(program.packer.shapes._policies.values())


def sequence_program(dtype=np.float32):
    """A function of sequences, its argument, and its program, which buys better shapes soon."""
    programs.clear()
    v = C.sequence.input_variable(3, dtype)
    f = C.sequence.reduce_sum(C.tanh(C.times(v, C.constant(np.eye(3, dtype=dtype)))))
    f.eval({v: queries([60, 3])})
    (program,) = programs
    program.packer.shapes.prices = Prices
    for policy in policies_of(program):
        policy.prices = Prices
    return f, v, program


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_better_program_is_compiled_beside_the_work_and_taken_when_it_is_ready(dtype):
    f, v, program = sequence_program(dtype)
    short = queries([4, 3])
    expected = [np.tanh(q).sum(0) for q in short]
    (policy,) = policies_of(program)
    while len(policy.ready) < 2:
        np.testing.assert_allclose(f.eval({v: short}), expected, rtol=1e-5)
        for _, _, future in program._compiling:
            future.result()
    np.testing.assert_allclose(f.eval({v: short}), expected, rtol=1e-5)
    assert len(program.executables) <= len(policy.ready) + len(policy.pending)
    assert policy.fitting(policy.seen[-1])[0].grids[0].time < 10 < 60 <= policy.ready[0].grids[0].time


def test_a_compilation_that_fails_in_the_background_is_noted_and_costs_nothing_else(monkeypatch):
    f, v, program = sequence_program()
    short = queries([4, 3])

    def fail(*arguments, **options):
        raise RuntimeError("no memory for the compiler")

    monkeypatch.setattr(program.executables.compiler, "prepare", fail)
    for _ in range(20):
        f.eval({v: short})
        for _, _, future in program._compiling:
            assert future.result() is None
    assert failures[-1].error == "RuntimeError: no memory for the compiler"
    assert len(program.executables) == 1
    np.testing.assert_allclose(f.eval({v: short}), [np.tanh(q).sum(0) for q in short], rtol=1e-5)


def test_deterministic_runs_decide_without_clocks_and_threads(monkeypatch):
    monkeypatch.setattr(Settings, "deterministic", True)

    def shapes_used():
        programs.clear()
        f = C.sequence.reduce_sum(C.times(x, np.eye(3, dtype=np.float32)))
        f.eval({x: queries([500, 3])})
        for _ in range(30):
            f.eval({x: queries([4, 3] * 400)})
        (program,) = programs
        assert not program._compiling
        return [policy.ready for policy in policies_of(program)]

    assert shapes_used() == shapes_used()


def trainer_of():
    y = C.sequence.input_variable(2)
    z = C.layers.Dense(2)(C.layers.Recurrence(C.layers.LSTM(4))(x))
    criterion = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    return y, C.Trainer(z, criterion, [C.sgd(z.parameters, 0.01)])


def minibatch(y, lengths, seed=0):
    labels = [np.eye(2, dtype=np.float32)[np.arange(n) % 2] for n in lengths]
    return {x: queries(lengths, seed), y: labels}


def test_a_training_pass_and_a_test_pass_compile_few_programs(monkeypatch):
    monkeypatch.setattr(Settings, "deterministic", True)  # a busy machine buys more
    y, trainer = trainer_of()
    rng = np.random.default_rng(0)
    batches = [minibatch(y, rng.integers(1, 20, 20).tolist(), seed) for seed in range(30)]
    for batch in batches:
        trainer.train_minibatch(batch)
    for batch in batches:
        trainer.test_minibatch(batch)
    assert sum(len(policy.ready) for policy in policies_of(trainer._step([]).program)) <= 3
    assert sum(len(policy.ready) for policy in policies_of(trainer.test_step.program)) == 1


@pytest.mark.parametrize("sequences", [False, True], ids=["samples", "sequences"])
def test_the_program_of_a_test_of_samples_is_compiled_while_training_runs(monkeypatch, sequences):
    monkeypatch.setattr(steps, "_NOTICED", 0.0)
    variable = C.sequence.input_variable if sequences else C.input_variable
    features, labels = variable(2), variable(2)
    z = C.layers.Dense(2)(features)
    trainer = C.Trainer(z, (C.squared_error(z, labels), C.squared_error(z, labels)), [C.sgd(z.parameters, 0.01)])
    data = np.ones((6, 5, 2)[not sequences :], np.float32)
    for _ in range(25):
        trainer.train_minibatch({features: data, labels: data})
    for _, _, future in trainer.test_step.program._compiling:
        future.result()
    assert len(trainer.test_step.program.executables) == (0 if sequences else 1)
    trainer.test_minibatch({features: data, labels: data})
    assert len(trainer.test_step.program.executables) == 1


SCRIPT = """
import numpy as np, cntk as C
x = C.input_variable(3)
f = C.layers.Sequential([C.layers.Dense(50) for _ in range(20)])(x)
f.eval({x: np.ones((64, 3), np.float32)})
from cntkjax.engine.run.program_cache import programs
(program,) = programs
from cntkjax.engine.run.executables import Executables
inputs = []
original = Executables.get
Executables.get = lambda self, signature, given, step: (inputs.append(given), original(self, signature, given, step))[1]
f.eval({x: np.ones((40, 3), np.float32)})
program.executables.compile_in_background("other", inputs[0])
print("end")
"""


def test_a_process_ends_while_a_compilation_is_under_way(tmp_path):
    environment = os.environ | {"CNTKJAX_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


def test_user_functions_get_samples_in_programs_of_any_shape():
    class Double(C.ops.functions.UserFunction):
        def infer_outputs(self):
            return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, 2 * argument

        def backward(self, state, root_gradients):
            return 2 * root_gradients

    v = C.input_variable(2)
    f = C.user_function(Double([v])) + 1
    for n in (64, 10, 64, 1, 33):
        np.testing.assert_array_equal(f.eval({v: np.full((n, 2), 3)}), np.full((n, 2), 7))


@pytest.mark.parametrize("axes", [(), (AxisTraits(True),), (AxisTraits(False),), (AxisTraits(True, one_per_row=True),)])
def test_workers_that_agree_choose_the_same_shapes(axes):
    """Whatever each of them has been fed, and whatever its own runs have cost."""
    rng, workers = np.random.default_rng(0), [ShapeChoice(MinibatchSpace(axes), FREE) for _ in range(3)]
    shapes = set()
    for _ in range(60):
        sizes = [drawn_sizes(rng, int(rng.integers(6, 12)), axes) for _ in workers]
        agreed = Agreed(sizes, 1e-3, 0.02)
        for worker, s in zip(workers, sizes, strict=True):
            if wanted := worker.improve([s], agreed):
                worker.policy("").add(wanted[0].shape)
        packings = [worker.choose([s], [], agreed)[0] for worker, s in zip(workers, sizes, strict=True)]
        kinds = {(p.shape, tuple(g.full for g in p.grids)) for p in packings}
        assert len(kinds) == 1
        shapes |= kinds
    assert len(shapes) > 1


def test_shares_of_different_sizes_are_masked_in_all():
    for numbers in ((6, 7), (7, 6)):
        packings = ShapeChoice(MinibatchSpace(), FREE).choose([Sizes(n, {}, (), "") for n in numbers], [])
        assert [(p.shape.batch, p.shape.full) for p in packings] == [(7, False)] * 2


def drawn_sizes(rng, number, axes):
    lengths = {C.Axis(str(i)): rng.integers(1, 20, number).astype(np.int32) for i in range(len(axes))}
    return Sizes(number, lengths, (), "")
