"""A worker of test_mixed.py: block momentum and summed gradients in one trainer.

    python mixed.py <folder> [all]

With "all" each worker uses all of its devices.

Prints what it has learned. The gradients do not depend on the parameters, so each learner learns what it would alone.
"""

import json
import sys
from pathlib import Path

import numpy as np

import cntk as C
from cntkjax.engine.run.compilations import report

RANK = C.Communicator.rank()
EVEN, UNEVEN = [(2, 2)] * 6, [(2, 3), (4, 1), (1, 3), (2, 2), (2, 2), (4, 4)]
EMPTY = [(2, 2), (4, 0), (0, 3), (2, 2), (3, 0), (2, 2), (0, 0)]


def per_sample(values, **options):
    return C.learning_parameter_schedule_per_sample(values, **options)


def blocks(learner, size=8, **options):
    return C.block_momentum_distributed_learner(learner, size, 10, use_nestrov_momentum=False, **options)


summed = C.data_parallel_distributed_learner


def network():
    x, w, v = C.input_variable(1), C.parameter((1, 1), init=1), C.parameter((1, 1), init=1)
    loss = C.reduce_sum(C.times(x, w) + 3 * C.times(x, v))
    return x, w, v, loss, C.reduce_sum(x * 1)


def trainer_of(make, aggregator=None, writers=()):
    """`make`: returns the learners of two parameters."""
    x, w, v, loss, metric = network()
    learners = make(w, v)
    if aggregator is not None:
        learners[aggregator].set_as_metric_aggregator()
    return x, w, v, C.Trainer(loss, (loss, metric), learners, list(writers))


def minibatch(x, i, size):
    return {x: np.full((size, 1), (i + 1) * (1 + RANK), np.float32)} if size else {}


def steps(trained, sizes, first=0):
    """After each step both parameters, loss, metric and samples."""
    x, w, v, trainer = trained
    rows = []
    for i, of_workers in enumerate(sizes, first):
        trainer.train_minibatch(minibatch(x, i, of_workers[RANK]))
        averages = trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average
        rows.append([w.value.item(), v.value.item(), *averages, trainer.previous_minibatch_sample_count])
    assert trainer.total_number_of_samples_seen == sum(map(sum, sizes)) + 4 * first
    return rows


def sgd(p):
    return C.sgd([p], per_sample(0.5))


ORDERS = {
    "blocks first": lambda w, v: [blocks(sgd(w)), summed(sgd(v))],
    "blocks last": lambda w, v: [summed(sgd(w)), blocks(sgd(v))],
}


def momentum(p, rates=(0.5, 0.25)):
    return C.momentum_sgd([p], per_sample(list(rates), epoch_size=10), C.momentum_schedule_per_sample(0.9))


class Descent(C.UserLearner):
    def update(self, gradient_values, training_sample_count, sweep_end):
        assert training_sample_count > 0
        for p, g in gradient_values.items():
            p.value = p.value - self.learning_rate() * g
        return True


def wrapped(learner):
    """Learners of both kinds of the same kind of learner."""
    return lambda w: blocks(learner(w)), lambda v: summed(learner(v))


PAIRS = {
    "momentum": wrapped(momentum),
    "no rate on one": wrapped(lambda p: momentum(p, (0.5, 0, 0.5))),
    "adam": wrapped(lambda p: C.adam([p], per_sample(0.1), C.momentum_schedule_per_sample(0.9))),
    "of users": wrapped(lambda p: Descent([p], per_sample(0.5))),
    "later": (
        lambda w: blocks(momentum(w), distributed_after=2), lambda v: summed(momentum(v), distributed_after=2)
    ),
}


def together_and_alone(name, sizes):
    """Both parameters from one trainer, and from one for each, of the same data."""
    block, other = PAIRS[name]
    together = trainer_of(lambda w, v: [block(w), other(v)])
    first, second = trainer_of(lambda w, v: [block(w)]), trainer_of(lambda w, v: [other(v)])
    for i, of_workers in enumerate(sizes):
        size = of_workers[0] if name == "later" and i == 0 else of_workers[RANK]
        for x, _, _, trainer in (together, first, second):
            data = minibatch(x, i, size)
            if name == "later" and i == 0:
                data = {x: np.ones((size, 1))}  # all workers have the same
            trainer.train_minibatch(data)
    return [[together[1].value.item(), together[2].value.item()], [first[1].value.item(), second[2].value.item()]]


def embeddings():
    """Two embeddings that learn together, and each alone; a worker has no data in one step."""
    words, values = np.random.default_rng(0).integers(0, 30, (5, 2, 4)), []
    for kept in (0, 1), (0,), (1,):
        x, tables = C.input_variable(30, is_sparse=True), [C.parameter((30, 2), init=1) for _ in range(2)]
        loss = C.reduce_sum(C.times(x, tables[0])) + C.reduce_sum(C.times(x, 2 * tables[1]))
        learners = [blocks(momentum(tables[0])), summed(momentum(tables[1]))]
        trainer = C.Trainer(None, (loss, None), [learners[i] for i in kept])
        for i, index in enumerate(words[:, RANK]):
            trainer.train_minibatch({} if (i, RANK) == (2, 1) else {x: C.Value.one_hot(index.tolist(), 30)})
        values.append([tables[i].value.ravel().tolist() for i in kept])
    together, first, second = values
    return [together, first + second]


def in_bits(bits):
    """A matrix that learns with block momentum, and one whose gradients travel in so many bits; some values of each."""
    x, w, v = C.input_variable(70), C.parameter((70, 70), init=0.1), C.parameter((70, 70), init=0.1)
    learners = [blocks(C.sgd([w], per_sample(0.1))), summed(C.sgd([v], per_sample(0.1)), num_quantization_bits=bits)]
    loss = C.reduce_sum((C.times(x, w) + C.times(x, v)) * np.arange(70, dtype=np.float32))
    trainer, rng = C.Trainer(None, (loss, None), learners), np.random.default_rng(RANK)
    for _ in range(4):
        trainer.train_minibatch({x: rng.normal(size=(2, 70))})
    return [p.value[:3, :3].tolist() for p in (w, v)]


def restored(folder):
    """Five steps, a checkpoint in the middle of a block, and three more steps of another trainer."""
    def make(w, v):
        rate, decay = per_sample([0.5, 0.25], epoch_size=20), C.momentum_schedule_per_sample(0.9)
        return [
            blocks(C.momentum_sgd([w], rate, decay), reset_sgd_momentum_after_aggregation=False),
            summed(C.momentum_sgd([v], rate, decay)),
        ]

    before = trainer_of(make, 1)
    rows = steps(before, EVEN[:5])
    before[3].save_checkpoint(folder / "mixed", {"rank": RANK})
    after = trainer_of(make, 1)
    assert after[3].restore_from_checkpoint(folder / "mixed") == {"rank": RANK}
    rows.append([after[1].value.item(), after[2].value.item(), 0, 0, 0])
    return rows + steps(after, EVEN[:3], 5)


def summaries(order, aggregator):
    """Loss, metric and samples of five minibatches, as a progress writer gets them."""
    seen = []
    writer = C.logging.TrainingSummaryProgressCallback(0, lambda *epoch: seen.append(epoch[1:]))
    trained = trainer_of(ORDERS[order], aggregator, [writer])
    steps(trained, EVEN[:5])
    trained[3].summarize_training_progress()
    return seen


def sizes_in_a_session(order):
    """The samples of this worker's first minibatch."""
    x, _, _, trainer = trainer_of(ORDERS[order], 0)
    source = C.io.MinibatchSourceFromData({"x": np.ones((8, 1), np.float32)}, max_samples=8)
    C.training_session(trainer, source, 4, {x: source.streams.x}).train()
    return trainer.total_number_of_units_seen(C.train.DataUnit.minibatch)


def main(folder, devices="one"):
    if devices == "all":
        C.device.use_all_devices()
    before = len(report().programs)
    results = {order: [steps(trainer_of(ORDERS[order], i), EVEN) for i in (0, 1)] for order in ORDERS}
    results["programs"] = [program.text for program in report().programs[before:]]
    results["uneven"] = steps(trainer_of(lambda w, v: [blocks(sgd(w), 16), summed(sgd(v))], 0), UNEVEN)
    results["empty"] = {name: together_and_alone(name, EMPTY) for name in PAIRS}
    results["embeddings"], results["restored"] = embeddings(), restored(folder)
    results["bits"] = [in_bits(bits) for bits in (32, 1)]
    results["summaries"] = [summaries("blocks first", i) for i in (0, 1)]
    results["sessions"] = [sizes_in_a_session(order) for order in ORDERS]
    print(json.dumps(results))
    C.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
