"""The program of each worker in test_workers.py.

    mpiexec -n 2 python workers.py <folder>
"""

import sys
from pathlib import Path

import numpy as np

import cntkjax as C
from cntkjax.graph.proxy import unwrap

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(26, 3)).astype(np.float32), rng.normal(size=(26, 2)).astype(np.float32)
WORDS = rng.integers(0, 40, 24)


def dense(wrap):
    x, y = C.input_variable(3), C.input_variable(2)
    z = C.layers.Dense(2, init=C.glorot_uniform(seed=1))(x)
    loss = C.squared_error(z, y)
    rates = C.learning_parameter_schedule_per_sample([0.01, 0.02], epoch_size=10)
    return x, y, loss, C.Trainer(z, (loss, loss), wrap(C.momentum_sgd(z.parameters, rates, 0.9)))


def embedding(wrap):
    x, y = C.input_variable(40, is_sparse=True), C.input_variable(2)
    E = C.parameter((40, 2), init=1)
    loss = C.squared_error(C.times(x, E), y)
    return x, y, loss, C.Trainer(None, (loss, None), wrap(C.momentum_sgd([E], 0.1, 0.9)))


def rows(x, index):
    return C.Value.one_hot(WORDS[index], 40) if x.is_sparse else X[index]


def by_hand(make, wrap, rank, size, folder=None):
    """Six steps of four samples; each worker takes its share, of the last four worker 0 takes all."""
    x, y, loss, trainer = make(wrap)
    losses = []
    for i in range(6):
        index = np.arange(4 * i, 4 * i + 4)[rank::size]
        if i == 5 and size > 1:
            index = np.arange(20, 24) if rank == 0 else np.arange(0)
        minibatch = {x: rows(x, index), y: Y[index]} if len(index) else {}
        assert trainer.train_minibatch(minibatch)
        if trainer.previous_minibatch_sample_count:
            losses.append(trainer.previous_minibatch_loss_average)
        if i == 3 and folder is not None:
            trainer.save_checkpoint(folder / "by_hand", {"rank": rank})
            for p in loss.parameters:
                p.value = np.zeros(p.shape)
            assert trainer.restore_from_checkpoint(folder / "by_hand") == {"rank": rank}
    assert (trainer.total_number_of_samples_seen, trainer.train_minibatch({})) == (24, False)
    return [p.value for p in loss.parameters], losses


def session(wrap, folder, name):
    """Two sweeps over 26 samples in minibatches of 4, with checkpoints."""
    x, y, loss, trainer = dense(wrap)
    source = C.io.MinibatchSourceFromData({"x": X, "y": Y}, max_samples=52)
    C.training_session(
        trainer, source, 4, {x: source.streams.x, y: source.streams.y},
        checkpoint_config=C.CheckpointConfig(folder / name, frequency=12),
    ).train()
    return [p.value for p in loss.parameters], trainer.total_number_of_samples_seen


def later_blocks(rank):
    """A parameter whose gradients are those of CNTK's run: blocks of 16 samples after the first 16."""
    x, w = C.input_variable(1), C.parameter((1,))
    loss = C.reduce_sum(x * w)
    sgd = C.sgd([w], C.learning_parameter_schedule_per_sample(0.01))
    learner = C.block_momentum_distributed_learner(sgd, 16, distributed_after=16)
    trainer, values = C.Trainer(None, (loss, None), learner), []
    for i in range(8):
        assert trainer.train_minibatch({x: np.full((4, 1), (1 + rank) * (1 + i % 3))})
        values.append(w.value.item())
    assert learner.total_number_of_samples_seen == trainer.total_number_of_samples_seen
    return values


def summary_of_blocks(rank, sizes):
    """Loss and metric per sample after three minibatches, of these sizes on the workers."""
    x, w, seen = C.input_variable(1), C.parameter((1, 1), init=1), []
    loss, metric = C.reduce_sum(C.times(x, w)), C.reduce_sum(x * 1)
    learner = C.sgd([w], C.learning_parameter_schedule_per_sample(0.01))
    writer = C.logging.TrainingSummaryProgressCallback(0, lambda *epoch: seen.append(epoch))
    trainer = C.Trainer(loss, (loss, metric), C.block_momentum_distributed_learner(learner, 8, 10), [writer])
    for i in range(3):
        trainer.train_minibatch({x: np.full((sizes[rank], 1), (i + 1) * (1 + rank))})
    trainer.summarize_training_progress()
    ((_, loss_sum, metric_sum, samples),) = seen
    assert samples == 3 * sizes[rank]
    return loss_sum / samples, metric_sum / samples


def reported_exchanges(wrap, checkpoint=None):
    """Samples and number of exchanges that a progress writer is told of, for each two of them, in six steps.

    `checkpoint`: where training goes on from after three steps, with a new trainer.
    """
    x, w, seen = C.input_variable(1), C.parameter((1, 1), init=1), []
    loss = C.reduce_sum(C.times(x, w))

    class Writer(C.cntk_py.ProgressWriter):
        def __init__(self):
            super().__init__(1, 0, 1, 0, 2, 0)

        def on_write_distributed_sync_update(self, samples, updates, aggregate_metric):
            seen.append((*samples, *updates))

        def write(self, key, value):
            raise AssertionError(f"distributed learners report no {key}")

    learner = wrap(C.sgd([w], C.learning_parameter_schedule_per_sample(0.01)))
    trainer = C.Trainer(loss, (loss, None), learner, [Writer()])
    for i in range(6):
        if checkpoint is not None and i == 3:
            trainer.save_checkpoint(checkpoint)
            trainer = C.Trainer(loss, (loss, None), wrap(C.sgd([w], 0.01)), [Writer()])
            trainer.restore_from_checkpoint(checkpoint)
        trainer.train_minibatch({x: np.ones((5, 1))})
    return seen


def blocks_of_two_sizes(rank):
    """The parameters of two learners whose blocks end at different times, after each step."""
    x, w, v = C.input_variable(1), C.parameter((1, 1), init=1), C.parameter((1, 1), init=1)
    loss, rate = C.reduce_sum(C.times(x, w) + 3 * C.times(x, v)), C.learning_parameter_schedule_per_sample(0.5)
    learners = [
        C.block_momentum_distributed_learner(C.sgd([p], rate), size, 10, use_nestrov_momentum=False)
        for p, size in ((w, 8), (v, 12))
    ]
    trainer, values = C.Trainer(loss, (loss, None), learners), []
    for i in range(6):
        trainer.train_minibatch({x: np.full((2, 1), (i + 1) * (1 + rank))})
        values.append((w.value.item(), v.value.item()))
    return values


def rate_becomes_0(wrap):
    """After four samples; what each step returns, the parameter and the samples seen."""
    x, w = C.input_variable(1), C.parameter((1, 1), init=1)
    loss = C.reduce_sum(C.times(x, w))
    learner = wrap(C.sgd([w], C.learning_parameter_schedule_per_sample([0.1, 0, 0.1], epoch_size=4)))
    trainer, results = C.Trainer(loss, (loss, None), learner), []
    for i in range(6):
        trained = trainer.train_minibatch({x: np.full((2, 1), i + 1)})
        results.append((trained, w.value.item(), trainer.total_number_of_samples_seen))
    assert learner.total_number_of_samples_seen == trainer.total_number_of_samples_seen
    return results


def main(folder):
    communicator = C.distributed.mpi_communicator()
    rank, size = communicator.rank(), communicator.num_workers()
    results = {}
    strategies = {
        "summed": C.data_parallel_distributed_learner,
        "later": lambda learner: C.data_parallel_distributed_learner(learner, distributed_after=8),
        "blocks": lambda learner: C.block_momentum_distributed_learner(learner, 8, 20),
    }
    for name, make in ("dense", dense), ("embedding", embedding):
        for strategy, wrap in strategies.items():
            if strategy != "later":
                values, losses = by_hand(make, wrap, rank, size, folder)
                results |= {f"{name}_{strategy}_{i}": value for i, value in enumerate(values)}
                results[f"{name}_{strategy}_losses"] = losses
    for strategy, wrap in strategies.items():
        values, results[f"session_{strategy}_samples"] = session(wrap, folder, strategy)
        results |= {f"session_{strategy}_{i}": value for i, value in enumerate(values)}
    values, _ = by_hand(dense, lambda learner: C.block_momentum_distributed_learner(learner, 16), rank, size)
    results |= {f"unfinished_block_{i}": value for i, value in enumerate(values)}
    results["later_blocks_losses"] = later_blocks(rank)
    if size > 1:
        results["summary_losses"] = [summary_of_blocks(rank, sizes) for sizes in [(2, 2), (2, 3)]]
        results["two_sizes_losses"] = blocks_of_two_sizes(rank)
        summed, blocks = C.data_parallel_distributed_learner, C.block_momentum_distributed_learner
        results["reported_summed"] = reported_exchanges(summed)
        results["reported_restored"] = reported_exchanges(summed, folder / "exchanges")
        results["reported_later"] = reported_exchanges(lambda learner: summed(learner, distributed_after=10))
        results["reported_blocks"] = reported_exchanges(lambda learner: blocks(learner, 20))
    results["rate_0_summed"] = rate_becomes_0(C.data_parallel_distributed_learner)
    blocks = rate_becomes_0(lambda learner: C.block_momentum_distributed_learner(learner, 8, 10))
    results["rate_0_blocks"] = blocks
    seen = []
    x, y, _, trainer = dense(lambda learner: C.block_momentum_distributed_learner(learner, 8))
    inside = unwrap(trainer)
    inside.train_minibatch = lambda minibatch, train=inside.train_minibatch: (
        seen.append(sum(data.num_samples for data in minibatch.values()) // 2), train(minibatch),
    )[1]
    source = C.io.MinibatchSourceFromData({"x": X, "y": Y}, max_samples=26)
    C.training_session(trainer, source, 4, {x: source.streams.x, y: source.streams.y}).train()
    results["sizes_with_blocks"] = seen
    evaluator = C.Evaluator(C.squared_error(x, np.zeros(3)))
    data = {x: np.full((1 + rank, 3), 1 + rank)}
    results["tested_losses"] = [evaluator.test_minibatch(data), evaluator.test_minibatch(data, distributed=True)]
    sums = [C.NDArrayView.from_dense(np.full(shape, rank + 1, np.float32)) for shape in (2, (2, 3))]
    communicator.aggregate_in_place(sums, communicator.workers())
    results |= {f"aggregated_{i}": view.asarray() for i, view in enumerate(sums)}
    assert communicator.current_worker().is_main() == (rank == 0)
    ranks = [worker.global_rank for worker in communicator.workers()]
    assert ranks == list(range(size))
    np.savez(folder / f"{size}_{rank}.npz", **results)
    C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
