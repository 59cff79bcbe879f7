"""Programs of users whose data come from files: sparse text, speech features, ratings; and distributed training."""

import os
import struct
import tempfile

import numpy as np
from cntk.layers import LSTM, Dense, Embedding, Recurrence, Sequential

import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program


@program
def wide_and_deep_from_sparse_text():
    """Crossed features of many columns beside an embedding of few, from one file; learners for each part."""
    path = os.path.join(tempfile.mkdtemp(), "clicks.ctf")
    rng = np.random.RandomState(3)
    with open(path, "w") as f:
        for _ in range(32):
            crossed = sorted(rng.choice(50, 3, replace=False))
            words = sorted(rng.choice(12, 2, replace=False))
            f.write("|wide %s |deep %s |dense %s |label %d\n" % (
                " ".join("%d:1" % i for i in crossed), " ".join("%d:%.2f" % (i, rng.rand()) for i in words),
                " ".join("%.3f" % v for v in rng.rand(3)), crossed[0] < 12))
    streams = C.io.StreamDefs(
        wide=C.io.StreamDef(field="wide", shape=50, is_sparse=True),
        deep=C.io.StreamDef(field="deep", shape=12, is_sparse=True),
        dense=C.io.StreamDef(field="dense", shape=3),
        label=C.io.StreamDef(field="label", shape=1),
    )
    source = C.io.MinibatchSource(C.io.CTFDeserializer(path, streams), randomize=False)
    wide, deep = C.input_variable(50, is_sparse=True), C.input_variable(12, is_sparse=True)
    dense, label = C.input_variable(3), C.input_variable(1)
    W = C.parameter((50, 1), name="wide")
    hidden = Sequential([Dense(8, activation=C.relu), Dense(4, activation=C.relu)])(C.splice(Embedding(5)(deep), dense))
    z = fix(C.sigmoid(C.times(wide, W) + Dense(1)(hidden)))
    others = [p for p in z.parameters if p.uid != W.uid]
    learners = [
        C.momentum_sgd([W], C.learning_parameter_schedule(0.5), C.momentum_schedule(0.9)),
        C.adagrad(others, C.learning_parameter_schedule([0.05] * 2 + [0.01], epoch_size=16)),
    ]
    loss = C.binary_cross_entropy(z, label)
    wrong = C.not_equal(C.greater(z, 0.5), label)
    trainer = C.Trainer(z, (loss, wrong), learners)
    input_map = {wide: source.streams.wide, deep: source.streams.deep, dense: source.streams.dense,
                 label: source.streams.label}
    history = []
    for _ in range(8):
        trainer.train_minibatch(source.next_minibatch(8, input_map=input_map))
        history.append([trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average])
    return {"loss": history, "W": W.value, "rates": [l.learning_rate() for l in learners]}


def write_htk(path, frames):
    """A file of HTK: number of frames, period, bytes of a frame, kind; big-endian floats."""
    with open(path, "wb") as f:
        f.write(struct.pack(">iihh", len(frames), 100000, 4 * frames.shape[1], 9))
        f.write(frames.astype(">f4").tobytes())


@program
def truncated_speech():
    """Utterances of several lengths with a label for each frame, in pieces of five frames that carry their state on."""
    folder, dim, states = tempfile.mkdtemp(), 4, 3
    lengths = [7, 12, 5, 9]
    rng = np.random.RandomState(6)
    with open(os.path.join(folder, "train.scp"), "w") as scp, open(os.path.join(folder, "train.mlf"), "w") as mlf:
        mlf.write("#!MLF!#\n")
        for i, n in enumerate(lengths):
            file = os.path.join(folder, "u%d.mfc" % i)
            write_htk(file, numbers(n, dim, seed=i))
            scp.write("u%d.mfc=%s[0,%d]\n" % (i, file, n - 1))
            cut = n // 2
            mlf.write('"u%d.lab"\n' % i)
            for begin, end in ((0, cut), (cut, n)):
                mlf.write("%d %d s%d 0\n" % (begin * 100000, end * 100000, rng.randint(states)))
            mlf.write(".\n")
    with open(os.path.join(folder, "states.list"), "w") as f:
        f.write("".join("s%d\n" % i for i in range(states)))
    join = os.path.join
    features = C.io.HTKFeatureDeserializer(C.io.StreamDefs(
        features=C.io.StreamDef(shape=dim, context=(1, 1), scp=join(folder, "train.scp"))))
    of_frames = C.io.StreamDefs(labels=C.io.StreamDef(shape=states, mlf=join(folder, "train.mlf")))
    labels = C.io.HTKMLFDeserializer(join(folder, "states.list"), of_frames)
    source = C.io.MinibatchSource([features, labels], truncation_length=5, randomize=False, max_sweeps=2)
    x, y = C.sequence.input_variable(3 * dim), C.sequence.input_variable(states)
    z = fix(Sequential([Recurrence(LSTM(4)), Recurrence(LSTM(4)), Dense(states)])(x))
    ce, errs = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    trainer = C.Trainer(z, (ce, errs), [C.momentum_sgd(
        z.parameters, C.learning_parameter_schedule_per_sample(0.05), C.momentum_schedule_per_sample(0.9))])
    history, sizes = [], []
    while True:
        minibatch = source.next_minibatch(10, input_map={x: source.streams.features, y: source.streams.labels})
        if not minibatch:
            break
        trainer.train_minibatch(minibatch)
        history.append([trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average])
        sizes.append(trainer.previous_minibatch_sample_count)
    return {"loss": history, "sizes": [float(s) for s in sizes]}


@program
def ratings_by_factors():
    """Users and films as sparse vectors, biases, a penalty in the loss, and a minibatch source in Python."""
    users, films, rank = 6, 8, 3

    class Ratings(C.io.UserMinibatchSource):
        def __init__(self, rows):
            self.rows, self.at = rows, 0
            self.infos = [
                C.io.StreamInformation("user", 0, "sparse", np.float32, (users,)),
                C.io.StreamInformation("film", 1, "sparse", np.float32, (films,)),
                C.io.StreamInformation("stars", 2, "dense", np.float32, (1,)),
            ]
            super(Ratings, self).__init__()

        def stream_infos(self):
            return self.infos

        def next_minibatch(self, num_samples, number_of_workers=1, worker_rank=0, device=None):
            part = self.rows[self.at : self.at + num_samples]
            self.at = (self.at + num_samples) % len(self.rows)
            sweep_end = self.at == 0
            data = [
                C.Value.one_hot([[int(r[0])] for r in part], users),
                C.Value.one_hot([[int(r[1])] for r in part], films),
                C.Value(np.array([[r[2]] for r in part], np.float32)),
            ]
            n = len(part)
            return {info: C.io.MinibatchData(value, n, n, sweep_end) for info, value in zip(self.infos, data)}

    rng = np.random.RandomState(2)
    rows = [(rng.randint(users), rng.randint(films), rng.randint(1, 6)) for _ in range(24)]
    source = Ratings(rows)
    user, film = C.input_variable(users, is_sparse=True), C.input_variable(films, is_sparse=True)
    stars = C.input_variable(1)
    U, V = Embedding(rank, name="users"), Embedding(rank, name="films")
    bu, bv, mean = C.parameter((users, 1)), C.parameter((films, 1)), C.parameter(1)
    z = C.reduce_sum(U(user) * V(film)) + C.times(user, bu) + C.times(film, bv) + mean
    fix(z)
    penalty = 0.02 * (C.reduce_sum(C.square(U(user))) + C.reduce_sum(C.square(V(film))))
    trainer = C.Trainer(z, (C.square(z - stars) + penalty, C.abs(z - stars)), [C.sgd(
        z.parameters, C.learning_parameter_schedule(0.1))])
    history = []
    for _ in range(6):
        data = source.next_minibatch(8)
        by_name = dict((info.name, value) for info, value in data.items())
        trainer.train_minibatch({user: by_name["user"].data, film: by_name["film"].data, stars: by_name["stars"].data})
        history.append(trainer.previous_minibatch_loss_average)
    return {"loss": history, "films": V.E.value, "users": U.E.value}


@program
def distributed_learner_of_one_worker():
    """The script for many workers, run by one: quantized gradients, a session with checkpoints, and a restart."""
    folder = tempfile.mkdtemp()
    x, y = C.input_variable(5, name="x"), C.input_variable(3, name="y")
    z = fix(Sequential([Dense(6, activation=C.tanh), Dense(3)])(x))
    criterion = (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y))

    def train(samples, restore):
        local = C.momentum_sgd(z.parameters, C.learning_parameter_schedule(0.2), C.momentum_schedule(0.8))
        learner = C.data_parallel_distributed_learner(local, num_quantization_bits=32, distributed_after=0)
        trainer = C.Trainer(z, criterion, learner)
        source = C.io.MinibatchSourceFromData({"x": numbers(40, 5), "y": one_hot(40, 3)})
        C.training_session(
            trainer=trainer, mb_source=source, mb_size=8,
            model_inputs_to_streams={x: source.streams["x"], y: source.streams["y"]}, max_samples=samples,
            checkpoint_config=C.CheckpointConfig(os.path.join(folder, "run"), frequency=16, restore=restore),
        ).train()
        return trainer

    first = train(32, False)
    seen = [first.total_number_of_samples_seen]
    again = train(64, True)
    seen.append(again.total_number_of_samples_seen)
    rank = [float(C.Communicator.rank()), float(C.Communicator.num_workers())]
    after = losses(again, [{x: numbers(8, 5), y: one_hot(8, 3)}], 2)
    return {"seen": seen, "rank": rank, "after": after, "files": sorted(os.listdir(folder))}
