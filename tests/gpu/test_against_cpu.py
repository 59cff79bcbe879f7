"""A GPU computes what the CPU computes: operations, layers, losses and learners, by the tables of their own tests."""

import functools
import warnings

import jax
import numpy as np
import pytest

import cntkjax as C
from benchmarks import ops as op_benchmarks
from tests.gpu.devices import check_alike, part
from tests.layers import cases as layer_cases
from tests.learners import cases as learner_cases
from tests.ops import test_every_op as sample_ops
from tests.ops import test_every_sequence_op as sequence_ops


def values_and_gradients(f, feeds, differentiable):
    """The value of a function, and the gradients of its sum for all that is fed."""
    f = C.combine([f])
    values = f.eval(feeds)
    results = values if isinstance(values, list) else [values]
    wrt = [v for v in feeds if v in f.arguments] if differentiable else []
    if wrt:
        gradients = f.grad(feeds, wrt=wrt)
        for gradient in gradients.values() if isinstance(gradients, dict) else [gradients]:
            results = [*results, *(gradient if isinstance(gradient, list) else [gradient])]
    return results


@pytest.mark.parametrize("case", part(sample_ops.CASES), ids=lambda case: case.name)
def test_operations_on_samples(case):
    def numbers():
        data = sample_ops.samples(case, 6, np.float32)
        variables = [C.input_variable(shape, needs_gradient=True) for shape in case.shapes]
        return values_and_gradients(case.op(*variables), dict(zip(variables, data, strict=True)), case.differentiable)

    check_alike(numbers)


@pytest.mark.parametrize("case", part(sequence_ops.CASES), ids=str)
def test_operations_on_sequences(case):
    def numbers():
        variables = sequence_ops.inputs(case, np.float32)
        range_of_all = range(len(sequence_ops.LENGTHS))
        feeds = dict(zip(variables, sequence_ops.sequences(case, np.float32, range_of_all), strict=True))
        f = case.op(*variables)
        return values_and_gradients(f, {v: feeds[v] for v in f.arguments}, case.smooth and "flags" not in case.data)

    check_alike(numbers)


@pytest.mark.parametrize("case", part([c for c in op_benchmarks.CASES if not c.random]), ids=lambda case: case.name)
def test_operations_of_the_benchmarks(case):
    """Large arrays, forward and with gradients."""
    def numbers():
        f, data, options = op_benchmarks.cntkjax_side(case)
        passes = op_benchmarks.compiled_passes(f, data, options, case.wrt)
        return [np.asarray(a) for run, arguments in passes for a in jax.tree.leaves(run(*arguments))]

    check_alike(numbers)


@pytest.mark.parametrize("call", part(layer_cases.CASES))
def test_layers(call):
    check_alike(functools.partial(layer_cases.numbers, C, call))


@pytest.mark.parametrize("call", part(learner_cases.CALLS))
def test_learners(call):
    """Four steps: parameters and losses."""
    def numbers():
        random = np.random.default_rng(1)
        x, y = C.input_variable(5), C.input_variable(3)
        z = C.layers.Sequential([C.layers.Dense(4, C.tanh), C.layers.Dense(3)])(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some calls are deprecated in CNTK
            learner = eval(call, {"C": C, "params": z.parameters})
        trainer, losses = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [learner]), []
        for size in (4, 4, 2, 4):
            labels = np.eye(3, dtype=np.float32)[random.integers(3, size=size)]
            trainer.train_minibatch({x: random.standard_normal((size, 5)).astype(np.float32), y: labels})
            losses.append(np.float32(trainer.previous_minibatch_loss_average))
        return [*losses, *(p.value for p in z.parameters)]

    check_alike(numbers)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision):
    """The first losses agree to the precision of the products."""
    def loss():
        x, y = C.input_variable(64), C.input_variable(8)
        z = C.layers.Sequential([C.layers.Dense(32, C.relu), C.layers.Dense(8)])(x)
        learner = C.sgd(z.parameters, 0.05)
        trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [learner], precision=precision)
        random = np.random.default_rng(2)
        for _ in range(3):
            labels = np.eye(8, dtype=np.float32)[random.integers(8, size=16)]
            trainer.train_minibatch({x: random.standard_normal((16, 64)).astype(np.float32), y: labels})
        return [np.float16(trainer.previous_minibatch_loss_average)]  # its tolerance is that of 16 bits

    check_alike(loss)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_short_loop_whose_operand_is_read_behind_it(dtype):
    """A random program: all steps are one kernel, whose result was written over the operand."""
    def numbers():
        x, h = C.sequence.input_variable((1, 2), dtype=dtype), C.placeholder()
        step = C.tanh(C.sequence.past_value(h) * 0.5 + x)
        difference = step.replace_placeholders({h: step.output}) - x
        random = np.random.default_rng(3)
        return difference.eval({x: [random.random((n, 1, 2)).astype(dtype) for n in (8, 3, 8)]})

    check_alike(numbers)
