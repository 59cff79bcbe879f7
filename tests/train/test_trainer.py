"""The trainer: averages, learners, outputs, and errors. Expected values follow CNTK 2.7's rules or recordings."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from tests.engine.train.training import network


def regression(width=3):
    x, y = C.input_variable(width, name="x"), C.input_variable(1, name="y")
    W, b = C.parameter(init=np.full((width, 1), 0.5, np.float32), name="W"), C.parameter(1, name="b")
    z = C.plus(C.times(x, W), b, name="z")
    return x, y, W, b, z, C.squared_error(z, y), C.abs(z - y)


def test_one_step_of_gradient_descent():
    x, y, W, b, z, loss, metric = regression()
    trainer = C.Trainer(z, (loss, metric), [C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(0.1))])
    data = np.array([[1, 0, 0], [0, 2, 0]], np.float32)
    target = np.array([[1], [0]], np.float32)
    assert trainer.train_minibatch({x: data, y: target})
    error = data @ np.full((3, 1), 0.5) - target
    np.testing.assert_allclose(W.value, 0.5 - 0.1 * data.T @ (2 * error), rtol=1e-6)
    np.testing.assert_allclose(b.value, -0.1 * 2 * error.sum(0), rtol=1e-6)
    assert trainer.previous_minibatch_loss_average == pytest.approx((error**2).mean())
    assert trainer.previous_minibatch_evaluation_average == pytest.approx(np.abs(error).mean())
    assert (trainer.previous_minibatch_sample_count, trainer.total_number_of_samples_seen) == (2, 2)


def test_samples_of_sequences_are_steps():
    x, y = C.sequence.input_variable(2), C.sequence.input_variable(2)
    loss = C.squared_error(x * C.parameter(2, init=1), y)
    data = {x: [np.ones((2, 2)), np.zeros((3, 2))], y: [np.zeros((2, 2)), np.zeros((3, 2))]}
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.0))
    trainer.train_minibatch(data)
    assert trainer.previous_minibatch_sample_count == 5
    assert trainer.previous_minibatch_loss_average == pytest.approx(2 * 2 / 5)


def test_a_scalar_criterion_counts_the_samples_it_was_reduced_from():
    x = C.sequence.input_variable(2)
    loss = C.reduce_sum(C.square(x * C.parameter(2, init=1)), axis=C.Axis.all_axes())
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.0))
    trainer.train_minibatch({x: [np.ones((2, 2)), np.ones((1, 2))]})
    assert trainer.previous_minibatch_sample_count == 3
    assert trainer.previous_minibatch_loss_average == pytest.approx(2)


@pytest.mark.parametrize(("order", "samples"), [([0, 1, 2], 4), ([0, 2, 1], 2)])
def test_a_criterion_that_is_a_block_counts_the_samples_of_its_first_operand(order, samples):
    """As in CNTK 2.7: not those of what is reduced in the block."""
    operands = [C.parameter((), init=1), C.sequence.input_variable(()), C.input_variable(())]

    @C.BlockFunction("criterion", "criterion")
    def criterion(a, b, c):
        sequence = b if order[1] == 1 else c
        single = c if order[1] == 1 else b
        return C.reduce_sum(C.sequence.last(sequence), C.Axis.all_axes()) + a * C.reduce_sum(single, C.Axis.all_axes())

    loss = C.combine([criterion(*(operands[i] for i in order))])
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.0))
    trainer.train_minibatch({operands[1]: [np.float32([1]), np.float32([1, 2, 3])], operands[2]: np.float32([1, 2])})
    assert trainer.previous_minibatch_sample_count == samples


@pytest.mark.parametrize(("operand", "samples"), [
    (lambda x: x, 4), (C.sequence.last, 2), (lambda x: C.reduce_sum(x, C.Axis.all_axes()), 4),
], ids=["sequences", "their last steps", "their sum"])
def test_a_criterion_that_no_data_reach_counts_the_samples_of_its_blocks_operand(operand, samples):
    """As in CNTK 2.7: the output of the block depends on a parameter alone."""
    x, w = C.sequence.input_variable(()), C.parameter((), init=3)
    loss = C.combine([C.BlockFunction("op", "name")(lambda a, b: (a + b, b * 2))(operand(x), w).outputs[1] * 1])
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.5))
    trainer.train_minibatch({x: [np.float32([1]), np.float32([1, 2, 3])]})
    assert trainer.previous_minibatch_sample_count == samples
    assert trainer.previous_minibatch_loss_average == 6 / samples
    assert w.value == 3 - 0.5 * 2 / samples


def test_several_learners_with_disjoint_parameters():
    x, y, W, b, z, loss, _ = regression()
    rate = C.learning_parameter_schedule_per_sample
    learners = [C.sgd([W], rate(0.0)), C.sgd([b], rate(1.0))]
    trainer = C.Trainer(z, (loss, None), learners)
    before = W.value
    trainer.train_minibatch({x: np.ones((1, 3)), y: np.zeros((1, 1))})
    np.testing.assert_array_equal(W.value, before)
    assert b.value == pytest.approx(-3)
    with pytest.raises(ValueError, match="covered by 2 different learners"):
        C.Trainer(z, (loss, None), [learners[0], C.sgd([W, b], 0.1)])
    with pytest.raises(ValueError, match="at least one learner"):
        C.Trainer(z, (loss, None), [])


def test_a_metric_in_the_place_of_the_learners_is_told_where_it_belongs():
    """Where trainers took it before CNTK 2.0."""
    _, _, _, _, z, loss, metric = regression()
    with pytest.raises(TypeError, match=r"(?s)needs a learner .*Trainer\(model, \(loss, metric\), learners\)"):
        C.Trainer(z, loss, metric, [C.sgd(z.parameters, 0.1)])


def test_learners_cover_the_parameters_of_the_model(capsys):
    _, _, W, b, z, loss, metric = regression()
    other = C.parameter((3, 1), name="other")
    with pytest.raises(ValueError, match="1 of the learners' parameters is not part of the model.*'other'"):
        C.Trainer(z, (loss, metric), [C.sgd([W, b, other], 0.1)])
    with pytest.raises(ValueError, match="2 of the learners' parameters are not part of the model"):
        C.Trainer(z, (loss, metric), [C.sgd([W, b, other, C.parameter(2)], 0.1)])
    C.Trainer(z, (loss, metric), [C.sgd([W], 0.1)])
    assert "no learner covers 1 of the model's parameters, which will not be learned: 'b'" in capsys.readouterr().err
    C.Trainer(z, (loss, metric), [C.sgd([W, b], 0.1)])
    C.Trainer(None, (loss * C.Parameter((), init=1), None), [C.sgd([W], 0.1), C.sgd([b], 0.1)])
    assert "1 of the model's parameters, which will not be learned" in capsys.readouterr().err


def test_placeholders_of_the_model_are_replaced_before_the_first_step():
    x, y, p, W = C.input_variable(2), C.input_variable(2), C.placeholder(name="p"), C.parameter((2, 2))
    model = C.times(p, W)
    trainer = C.Trainer(model, (C.squared_error(C.times(x, W), y), None), [C.sgd(model.parameters, 0.1)])
    data = {x: np.ones((1, 2), np.float32), y: np.ones((1, 2), np.float32)}
    with pytest.raises(ValueError, match="placeholder 'p' has not been replaced"):
        trainer.train_minibatch(data)
    model.replace_placeholder(x)
    assert trainer.train_minibatch(data)


def test_outputs_are_keyed_by_the_requested_objects():
    x, y, _, _, z, loss, _ = regression()
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, 0.1)])
    minibatch = {x: np.ones((2, 3)), y: np.zeros((2, 1))}
    assert list(trainer.train_minibatch(minibatch, outputs=[z])[1]) == [z]
    assert list(trainer.train_minibatch(minibatch, outputs=[z.output])[1]) == [z.output]
    assert trainer.train_minibatch(minibatch, outputs=[]) is True


def test_a_trainer_returns_its_functions():
    _, _, _, _, z, loss, metric = regression()
    trainer = C.Trainer(z, (loss, metric), [C.sgd(z.parameters, 0.1)])
    assert (trainer.loss_function, trainer.evaluation_function, trainer.model) == (loss, metric, z)
    both = C.Trainer(z, C.combine([loss, z]), [C.sgd(z.parameters, 0.1)])
    assert (both.loss_function.root_function, both.evaluation_function.name) == (loss.root_function, "z")


@pytest.mark.parametrize("criterion", [None, (None, None)])
def test_a_trainer_needs_a_loss(criterion):
    z = regression()[4]
    with pytest.raises(TypeError, match="there is no loss"):
        C.Trainer(z, criterion, [C.sgd(z.parameters, 0.1)])


def test_an_empty_minibatch_is_skipped():
    _, _, _, _, z, loss, _ = regression()
    assert C.Trainer(z, (loss, None), [C.sgd(z.parameters, 0.1)]).train_minibatch({}) is False


def test_a_loss_that_no_data_reach_is_refused_and_one_of_constant_inputs_counts_one_sample():
    p, x = C.parameter((), init=2), C.input_variable(2, dynamic_axes=[])
    learner = C.sgd([p], C.learning_parameter_schedule_per_sample(0.5))
    with pytest.raises(ValueError, match="no variable tells the number of samples"):
        C.Trainer(None, C.tanh(p), learner)
    trainer = C.Trainer(None, C.reduce_sum(x * p), learner)
    trainer.train_minibatch({x: [1, 2]})
    assert (trainer.previous_minibatch_sample_count, p.value) == (1, 0.5)


def test_loss_and_metric_of_a_criterion():
    x = C.input_variable(2)
    loss, metric = x + 1, x * 2
    assert C.Trainer._get_loss_metric((loss, metric)) == (loss, metric)
    assert C.Trainer._get_loss_metric((loss, None)) == (loss, None)
    assert [f.output for f in C.Trainer._get_loss_metric(C.combine([loss, metric]))] == [loss.output, metric.output]
    assert C.Trainer._get_loss_metric(loss)[1] is None


def test_criterion_may_be_a_function_with_two_outputs():
    x, y, _, _, z, loss, metric = regression()
    trainer = C.Trainer(z, C.combine([loss, metric]), C.sgd(z.parameters, 0.0))
    trainer.train_minibatch({x: np.ones((1, 3)), y: np.zeros((1, 1))})
    assert trainer.previous_minibatch_loss_average == pytest.approx(2.25)
    assert trainer.previous_minibatch_evaluation_average == pytest.approx(1.5)
    assert trainer.test_minibatch({x: np.ones((1, 3)), y: np.zeros((1, 1))}) == pytest.approx(1.5)


def test_missing_averages_are_errors():
    x, y, _, _, z, loss, _ = regression()
    trainer = C.Trainer(z, (loss, None), C.sgd(z.parameters, 0.1))
    with pytest.raises(RuntimeError, match="no preceding call to train_minibatch"):
        _ = trainer.previous_minibatch_loss_average
    with pytest.raises(ValueError, match="no evaluation"):
        _ = trainer.previous_minibatch_evaluation_average
    with pytest.raises(ValueError, match="no evaluation function"):
        trainer.test_minibatch({x: np.ones((1, 3)), y: np.zeros((1, 1))})


@pytest.mark.parametrize("fed, message", [
    (lambda x, y: {x: np.ones((2, 3))}, "argument 'y' have not been provided"),
    (lambda x, y: {C.io.StreamInformation("x", 0, "dense", np.float32, (3,)): np.ones((2, 3))},
     "not for a StreamInformation"),
    (lambda x, y: {x: np.ones((2, 4)), y: np.ones((2, 1))},
     r"data of shape \[2 x 4\] do not match the variable Input\('x'"),
    (lambda x, y: {x: np.ones((2, 3)), y: np.ones((3, 1))}, "different numbers of sequences or samples"),
    (lambda x, y: {x: [["a", "b", "c"]], y: np.ones((1, 1))}, "not numbers"),
    (lambda x, y: {x: np.ones((2, 3)), y: np.ones((2, 1)), "Y": np.ones((2, 1))}, "no argument is called 'Y'"),
    (lambda x, y: {x: np.ones((2, 3)), y: np.ones((2, 1)), None: np.ones((2, 1))}, "not for a NoneType"),
])
def test_bad_input_is_an_error_and_changes_nothing(fed, message):
    x, y, W, b, z, loss, _ = regression()
    trainer = C.Trainer(z, (loss, None), [C.momentum_sgd(z.parameters, 0.1, 0.9)])
    good = {x: np.ones((2, 3)), y: np.ones((2, 1))}
    trainer.train_minibatch(good)
    before = W.value, b.value, trainer.total_number_of_samples_seen
    with pytest.raises(ValueError, match=message):
        trainer.train_minibatch(fed(x, y))
    np.testing.assert_array_equal(W.value, before[0])
    np.testing.assert_array_equal(b.value, before[1])
    assert trainer.total_number_of_samples_seen == before[2]
    assert trainer.train_minibatch(good)


def test_the_first_nan_loss_warns_when_it_is_read():
    x, w = C.input_variable(1), C.parameter(init=np.ones(1, np.float32))
    loss = C.square(x * w)
    printer = C.logging.ProgressPrinter(freq=10)
    trainer = C.Trainer(None, (loss, None), C.sgd([w], 0.1), printer)
    for value in (1.0, 0.5, np.nan, 1.0):
        trainer.train_minibatch({x: [[value]]})
    with pytest.warns(RuntimeWarning, match="the loss of minibatch 3 is NaN. To stop.*set_checked_mode"):
        trainer.summarize_training_progress()
    assert np.isnan(trainer.previous_minibatch_loss_average)  # and no second warning


@pytest.mark.parametrize("empty", [{"x": np.zeros((0, 3)), "y": np.zeros((0, 1))}, {}])
def test_a_minibatch_without_samples(empty):
    x, y, _, _, z, loss, _ = regression()
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, 0.1)])
    fed = {v: empty[v.name] for v in (x, y) if empty}
    if empty:
        with pytest.raises(ValueError):
            trainer.train_minibatch(fed)
    else:
        assert trainer.train_minibatch(fed) is False
    assert trainer.total_number_of_samples_seen == 0


def test_label_out_of_range_is_an_error():
    x, y = C.input_variable(4), C.input_variable(4, is_sparse=True, name="label")
    z = C.times(x, C.parameter((4, 4)))
    trainer = C.Trainer(z, (C.cross_entropy_with_softmax(z, y), None), [C.sgd(z.parameters, 0.1)])
    with pytest.raises(ValueError, match=r"data of shape \[1 x 7\] do not match.*a column for each element"):
        trainer.train_minibatch({x: np.ones((1, 4)), y: csr_matrix(([1.0], ([0], [6])), shape=(1, 7))})
    with pytest.raises(ValueError, match="not all in"):
        C.Value.one_hot([6], 4)


def test_sparse_and_dense_labels_are_equivalent():
    rng = np.random.default_rng(0)
    data, labels = rng.random((5, 3), np.float32), np.eye(4, dtype=np.float32)[rng.integers(0, 4, 5)]
    trained = []
    for sparse in (False, True):
        x, y = C.input_variable(3), C.input_variable(4, is_sparse=sparse)
        W = C.parameter(init=np.ones((3, 4), np.float32))
        z = C.times(x, W)
        trainer = C.Trainer(z, (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)), [C.sgd([W], 0.5)])
        for _ in range(3):
            trainer.train_minibatch({x: data, y: csr_matrix(labels) if sparse else labels})
        averages = trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average
        trained.append((W.value, *averages))
    np.testing.assert_allclose(trained[0][0], trained[1][0], rtol=1e-5)
    assert trained[0][1:] == pytest.approx(trained[1][1:])


def test_units_seen_and_progress_writers():
    x, w = C.input_variable(1), C.parameter((1,))
    printer = C.logging.ProgressPrinter()
    loss = C.reduce_sum(x * w)
    trainer = C.Trainer(None, (loss, loss), C.sgd([w], 0.1), printer)
    trainer.train_minibatch({x: [[1], [2]]})
    trainer.train_minibatch({x: [[1]]}, is_sweep_end=True)
    units = [trainer.total_number_of_units_seen(unit) for unit in C.train.DataUnit]
    assert str(C.train.DataUnit.sweep) == "DataUnit.sweep"
    assert dict(zip(C.train.DataUnit, units, strict=True)) == {
        C.train.DataUnit.sample: 3, C.train.DataUnit.minibatch: 2, C.train.DataUnit.sweep: 1,
    }
    assert trainer.total_number_of_units_seen() == 3
    assert trainer.progress_writers() == [printer] and C.Evaluator(loss).progress_writers() == []
    with pytest.raises(RuntimeError, match="no unit of data 7"):
        trainer.total_number_of_units_seen(7)


def test_data_that_are_not_one_dict_are_an_error_that_shows_it():
    *_, z, loss, metric = regression()
    trainer = C.Trainer(z, (loss, metric), C.sgd(z.parameters, 0.1))
    data, target = np.ones((2, 3), np.float32), np.ones((2, 1), np.float32)
    for second in target, [[1], [2]], "z", [loss, target]:
        with pytest.raises(ValueError, match=r"outputs are functions(.*\n)*.*one dict: .*\{x: array, y: array\}"):
            trainer.train_minibatch(data, second)
    for train in trainer.train_minibatch, trainer.test_minibatch:
        for wrong in data, [data], [], [data, target, target]:
            with pytest.raises(ValueError, match=r"2 argument\(s\)(.*\n)*.*one dict .*: \{x: array, y: array\}"):
                train(wrong)
        train([data, target])  # in the order of the arguments


def test_a_list_is_the_data_of_a_single_argument():
    """As in CNTK 2.7."""
    x = C.input_variable(3)
    loss = C.reduce_sum(x * C.parameter(3))
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.1))
    for data in [[1, 2, 3], [4, 5, 6]], list(np.ones((2, 3), np.float32)):
        trainer.train_minibatch(data)
        assert trainer.previous_minibatch_sample_count == 2


@pytest.mark.parametrize(("options", "says"), [
    ({"accumulate": 0}, "at least 1, not 0"),
    ({"accumulate": 2.0}, "at least 1, not 2.0"),
    ({"precision": "float8"}, "not 'float8'"),
])
def test_wrong_options_are_errors(options, says):
    with pytest.raises(ValueError, match=says):
        network(**options)


def test_options_that_conflict_with_a_model_are_errors():
    x = C.input_variable(2, dtype=np.float64)
    loss = C.square(x * C.parameter(2, dtype=np.float64))
    trainer = C.Trainer(None, (loss, None), C.sgd(loss.parameters, 0.1), precision="bfloat16")
    with pytest.raises(ValueError, match="double precision"):
        trainer.train_minibatch({x: [[1.0, 2.0]]})

    class Mine(C.learners.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            return True

    with pytest.raises(ValueError, match="UserLearner takes every step"):
        network(lambda p: Mine(p, 0.1), precision="float16")


def test_learners_count_what_they_learned_in_other_trainers():
    x, y, _, _, z, loss, _ = regression()
    learner = C.sgd(z.parameters, 0.1)
    data = {x: np.ones((4, 3), np.float32), y: np.ones((4, 1), np.float32)}
    first, second = (C.Trainer(z, (loss, None), learner) for _ in range(2))
    first.train_minibatch(data)
    assert second.total_number_of_samples_seen == 4
    second.train_minibatch(data)
    assert first.total_number_of_samples_seen == second.total_number_of_samples_seen == 8
    assert second.total_number_of_units_seen(C.train.DataUnit.minibatch) == 2
    arrays = tuple(data.values())
    again = loss.train(arrays, minibatch_size=2, epoch_size=4, max_epochs=3, parameter_learners=[learner])
    assert [e["samples"] for e in again.epoch_summaries] == [2, 2]  # 12 in total; the first reports at once
    assert loss.train(arrays, minibatch_size=2, max_epochs=1, parameter_learners=[learner]).updates == []


@pytest.mark.parametrize(("place", "steps", "counts"), [
    (0, 1, (4, 8)), (0, 7, (28, 32)), (1, 1, (12, 16)), (1, 7, (12, 16)),
])
def test_a_trainer_has_seen_what_its_first_learner_has_also_if_that_is_restored_alone(place, steps, counts):
    """Counts of CNTK 2.7."""
    x = C.input_variable(2)

    def trained(times):
        weights = [C.parameter(2, init=1), C.parameter(2, init=1)]
        loss = C.reduce_sum(C.square(x * weights[0] + x * weights[1]))
        schedule = C.learning_parameter_schedule([0.1, 0.05, 0.025], minibatch_size=1, epoch_size=10)
        trainer = C.Trainer(loss, (loss, None), [C.sgd([w], schedule) for w in weights])
        for _ in range(times):
            trainer.train_minibatch({x: np.full((4, 2), 0.1, np.float32)})
        return trainer

    trainer, state = trained(3), trained(steps).parameter_learners[0].create_checkpoint()
    trainer.parameter_learners[place].restore_from_checkpoint(state)
    before = trainer.total_number_of_samples_seen
    trainer.train_minibatch({x: np.full((4, 2), 0.1, np.float32)})
    assert (before, trainer.total_number_of_samples_seen) == counts


@pytest.mark.parametrize(("learner", "expected", "losses"), [
    (lambda p: C.sgd(p, C.learning_parameter_schedule_per_sample(0.1)), [0.9, 1.9], [14.0, 5.8]),
    (lambda p: C.adam(p, C.learning_parameter_schedule_per_sample(0.1), C.momentum_schedule(0.8), unit_gain=False),
     [0.4967346, 1.4967346], [14.0, 4.9934721]),
])
def test_a_parameter_that_the_loss_assigns_is_updated_from_there(learner, expected, losses):
    """The numbers are CNTK's."""
    x, w = C.input_variable(2), C.parameter(init=np.float32([5, 6]))
    assigned = C.assign(w, C.constant(np.float32([1, 2])))
    trainer = C.Trainer(None, C.reduce_sum(assigned) + C.reduce_sum(x * w), learner([w]))
    results = []
    for _ in range(2):
        trainer.train_minibatch({x: [[1, 1]]})
        results.append(trainer.previous_minibatch_loss_average)
    np.testing.assert_allclose(w.value, expected, rtol=1e-6)
    assert results == pytest.approx(losses, rel=1e-6)
