"""With one worker, distributed learners learn exactly as the learners they wrap."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.proxy import unwrap
from cntkjax.train._description import describe

X = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
Y = np.ones((4, 1), np.float32)


def trajectory(wrap):
    x, y = C.input_variable(2), C.input_variable(1)
    w = C.parameter((2, 1))
    loss = C.squared_error(C.times(x, w), y)
    rate = C.learning_parameter_schedule_per_sample(0.01)
    trainer = C.Trainer(None, loss, wrap(C.momentum_sgd([w], rate, C.momentum_schedule(0.9))))
    values = []
    for _ in range(6):
        trainer.train_minibatch({x: X, y: Y})
        values.append(float(w.value[0, 0]))
    return values


def test_a_data_parallel_learner_updates_as_its_learner():
    values = trajectory(lambda learner: C.distributed.data_parallel_distributed_learner(learner, distributed_after=8))
    assert values == trajectory(lambda learner: learner)
    np.testing.assert_allclose(values, [0.003, 0.008686, 0.016764, 0.026957, 0.039008, 0.052674], atol=1e-6)  # CNTK 2.7


def test_learner_and_distributed_learner_share_state():
    w = C.parameter((2,), init=1)
    learner = C.sgd([w], 0.1)
    distributed = C.distributed.data_parallel_distributed_learner(learner)
    assert isinstance(distributed, C.distributed.DistributedLearner)
    assert isinstance(distributed, C.Learner)
    distributed.update({w: np.ones(2, np.float32)}, 4)
    assert (distributed.total_number_of_samples_seen, learner.total_number_of_samples_seen()) == (4, 4)
    learner.reset_learning_rate(C.learning_parameter_schedule(0.5))
    assert distributed.learning_rate() == 0.5


def test_a_single_process_is_the_only_worker():
    communicator = C.distributed.data_parallel_distributed_learner(C.sgd([C.parameter(1)], 0.1)).communicator()
    ranks = [worker.global_rank for worker in communicator.workers()]
    assert communicator.current_worker().global_rank in ranks
    assert (ranks, communicator.is_main(), C.distributed.Communicator.num_workers()) == ([0], True, 1)
    communicator.barrier()
    C.distributed.Communicator.finalize()


def test_unsupported_arguments_are_errors():
    learner = C.sgd([C.parameter(1)], 0.1)
    with pytest.raises(RuntimeError, match="no asynchronous parameter update"):
        C.distributed.data_parallel_distributed_learner(learner, use_async_buffered_parameter_update=True)
    for bits in 3, 0, -1:
        with pytest.raises(ValueError, match=f"num_quantization_bits is 1, 2, 4, 8, 16 or 32, not {bits}"):
            C.distributed.data_parallel_distributed_learner(learner, num_quantization_bits=bits)
    with pytest.raises(ValueError, match="shard_state is for gradients of 32 or 16 bits, not for 8"):
        C.distributed.data_parallel_distributed_learner(learner, num_quantization_bits=8, shard_state=True)
    with pytest.raises(TypeError, match="needs a learner"):
        C.distributed.data_parallel_distributed_learner([learner])


@pytest.mark.parametrize("wrap, expected", [
    (lambda learner: learner, "distributed all, or none of them"),
    (lambda learner: C.data_parallel_distributed_learner(learner, distributed_after=8), "the same distributed_after"),
    (lambda learner: C.block_momentum_distributed_learner(learner, 8, distributed_after=8), "same distributed_after"),
])
@pytest.mark.parametrize("is_first", [True, False])
def test_all_learners_of_a_trainer_are_distributed_from_the_same_sample_on(wrap, expected, is_first):
    w, b = C.parameter(1), C.parameter(1)
    loss = C.square(w * C.input_variable(1) + b)
    learners = [C.data_parallel_distributed_learner(C.sgd([w], 0.1)), wrap(C.sgd([b], 0.1))]
    with pytest.raises(ValueError, match=expected):
        C.Trainer(None, (loss, None), learners[:: 1 if is_first else -1])


def test_a_single_worker_trains_with_learners_of_both_kinds():
    x, w, b = C.input_variable(1), C.parameter(1), C.parameter(1)
    learners = [
        C.block_momentum_distributed_learner(C.sgd([w], 0.1), 2),
        C.data_parallel_distributed_learner(C.sgd([b], 0.1)),
    ]
    trainer = C.Trainer(None, (C.square(w * x + b - 1), None), learners)
    assert trainer.train_minibatch({x: [[1], [1]]})
    assert (w.value.item(), b.value.item()) == (pytest.approx(0.2), pytest.approx(0.2))


def test_the_only_learner_of_a_trainer_aggregates_the_metric():
    w = C.parameter(1)
    learner = C.block_momentum_distributed_learner(C.sgd([w], 0.1), 2)
    assert not learner.is_metric_aggregator()
    C.Trainer(None, (C.square(w * C.input_variable(1)), None), learner)
    assert learner.is_metric_aggregator()


def test_one_of_several_learners_can_aggregate_the_metric():
    first, second = (C.data_parallel_distributed_learner(C.sgd([C.parameter(1)], 0.1)) for _ in range(2))
    first.set_as_metric_aggregator()
    assert first.is_metric_aggregator() and not second.is_metric_aggregator()


def test_parameters_of_distributed_learners_can_be_called():
    w = C.parameter((2, 1))
    learner = C.data_parallel_distributed_learner(C.sgd([w], 0.1), distributed_after=7)
    assert learner.parameters == learner.parameters() == (w,)
    assert (learner.parallelization_after(), learner.minibatch_size_scale_factor()) == (7, 1)
    assert C.block_momentum_distributed_learner(C.sgd([w], 0.1), 8, distributed_after=5).parallelization_after() == 5


def test_workers_can_compare_learners_whose_rate_begins_at_0():
    rates = C.learning_parameter_schedule([0.0, 0.1], epoch_size=4)
    learners = [unwrap(C.momentum_sgd([C.parameter(3)], rate, 0.9)) for rate in (rates, 0.1)]
    waiting, learning = (describe([], [learner]) for learner in learners)
    assert waiting.keys() == learning.keys()
    assert waiting["the learning rate of learner 0"] != learning["the learning rate of learner 0"]
