"""What every random program begins with, on CNTK 2.7 (Python 3.6) as on this package."""

import os
import re
import shutil
import tempfile

import numpy as np

import cntk as C

T = np.float32


class Square(C.ops.functions.UserFunction):
    """A user function; its values arrive as an array, or a list of sequences."""

    def __init__(self, x, name="square"):
        super(Square, self).__init__([x], as_numpy=True, name=name)

    def forward(self, x, device=None, outputs_to_retain=None):
        return x, each(np.square, x)

    def backward(self, x, gradient):
        return each(lambda v, g: 2 * v * g, x, gradient)

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    @staticmethod
    def deserialize(inputs, name, state):
        return Square(inputs[0], name)


class Pair(C.ops.functions.UserFunction):
    """A user function of two operands, with two results."""

    def __init__(self, x, y, name="pair"):
        super(Pair, self).__init__([x, y], as_numpy=True, name=name)

    def forward(self, arguments, outputs, device=None, outputs_to_retain=None):
        x, y = arguments
        outputs[self.outputs[0]] = each(lambda v, w: v * w, x, y)
        outputs[self.outputs[1]] = each(lambda v, w: v - w, x, y)
        return x, y

    def backward(self, state, root_gradients, variables):
        x, y = state
        g, h = (root_gradients[o] for o in self.outputs)
        parts = each(lambda a, b, c: a * b + c, g, y, h), each(lambda a, b, c: a * b - c, g, x, h)
        variables.update({v: part for v, part in zip(self.inputs, parts) if v in variables})  # noqa: B905 - Python 3.6

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes) for _ in range(2)]

    @staticmethod
    def deserialize(inputs, name, state):
        return Pair(inputs[0], inputs[1], name)


def each(f, *values):
    return list(map(f, *values)) if isinstance(values[0], list) else f(*values)


def data(seed, *shape):
    """Multiples of 1/16 from -1 to 1, the same with every version of NumPy; equal ones occur."""
    return (np.random.RandomState(seed).randint(-16, 17, shape) / 16).astype(T)


def sparse(seed, *shape):
    """Mostly zeros; some rows contain nothing else. CNTK does not accept a sequence of nothing else."""
    import scipy.sparse

    random = np.random.RandomState(seed)
    values = random.randint(-16, 17, shape) / 16 * (random.rand(*shape) < 0.4)
    values[0, 0] = 0.5
    return scipy.sparse.csr_matrix(values.astype(T))


def one_hot(seed, *shape):
    """A single 1 in each row."""
    import scipy.sparse

    rows, columns = shape
    indices = np.random.RandomState(seed).randint(0, columns, rows)
    return scipy.sparse.csr_matrix((np.ones(rows, T), indices, np.arange(rows + 1)), shape)


def feed(f, minibatch):
    """What the inputs of `f` are fed, nothing of an empty minibatch; of a function that was loaded, by their names."""
    return {a: minibatch[a.name] for a in f.arguments} if minibatch else {}


def as_on_a_gpu(compute):
    """What `compute` returns, compiled as for a GPU; CNTK has kernels for the device that it runs on only."""
    try:
        from cntkjax.engine.xla.platform import lowering_for
    except ImportError:
        return compute()
    with lowering_for("gpu"):
        return compute()


def evaluate(outputs, minibatch):
    """The values of several outputs, computed together."""
    f = C.combine(outputs)
    values = f.eval(feed(f, minibatch))
    return [values[o] for o in f.outputs] if isinstance(values, dict) else [values]


# How the value of an argument may be fed as well: sparse ones in the first forms only.
FORMS = [
    lambda a, value: value,
    lambda a, value: C.Value.create(
        a, value if isinstance(value, list) else [value[i : i + 1] for i in range(value.shape[0])]
    ),
    lambda a, value: C.combine([C.alias(a)]).eval({a: value}, as_numpy=False),
    lambda a, value: (value, [True] * len(value)) if isinstance(value, list) else value,
    lambda a, value: each(np.ndarray.tolist, value),
    lambda a, value: each(lambda v: v.astype(np.float32 if v.dtype == np.float64 else np.float64), value),
    lambda a, value: each(np.asfortranarray, value),
    lambda a, value: each(lambda v: np.repeat(v, 2, 0)[::2], value),
    lambda a, value: value if isinstance(value, list) else C.Value(value),
    lambda a, value: np.stack(value) if isinstance(value, list) and len(set(map(len, value))) == 1 else value,
]


def dense(x):
    return x.toarray() if hasattr(x, "toarray") else x


def matrix(x, **options):
    """A sparse matrix of the samples of an array, or of entries, indices and where rows begin."""
    import scipy.sparse

    return scipy.sparse.csr_matrix(x.reshape(len(x), -1) if isinstance(x, np.ndarray) else x, **options)


def read(a, value, flat=False):
    """A minibatch of a reader; `flat`: its samples are vectors."""
    kinds = C.layers.typing
    kind = (kinds.SparseTensor if a.is_sparse else kinds.Tensor)[a.shape]
    if flat:
        value = each(lambda v: dense(v).reshape(v.shape[0], -1), value)
        kind = kinds.Tensor[value[0].shape[-1]]
    source = C.io.MinibatchSourceFromData({"s": (value, kinds.Sequence[kind]) if isinstance(value, list) else value})
    return source.next_minibatch(1000)[source.streams.s]


def flags(value):
    """Some flags that say whether a sequence begins here."""
    return [i != 1 for i in range(len(value) if isinstance(value, list) else value.shape[0])]


def one(value):
    """The first sequence, or all samples."""
    return dense(value[0] if isinstance(value, list) else value)


def other_type():
    return np.float32 if np.float64 == T else np.float64


# What is fed by mistake, or seldom: sparse variables in the first forms only.
ODD_SPARSE_TOO = [
    lambda a, value: read(a, value),
    lambda a, value: read(a, value, True),
    lambda a, value: each(C.NDArrayView.from_data, value),
    lambda a, value: (value, [*flags(value), True]),
    lambda a, value: (C.Value.create(a, value) if isinstance(value, list) else C.Value(value), flags(value)),
    lambda a, value: a,
    lambda a, value: C.Value(one(value).reshape(len(one(value)), -1)),
    lambda a, value: C.Value.create(C.sequence.input_variable(a.shape, dtype=T), [one(value), one(value)[:1]]),
    lambda a, value: C.Value.create(C.sequence.input_variable(a.shape, dtype=T), [v[None] for v in one(value)]),
    lambda a, value: C.Value(matrix(one(value))),
    lambda a, value: C.Value.one_hot([[0, 1], [1]] if isinstance(value, list) else [0, 1], max(2, value[0].shape[-1])),
    lambda a, value: each(lambda v: dense(v)[None, None], value),
    lambda a, value: each(lambda v: dense(v)[..., : max(1, v.shape[-1] - 1)], value),
    lambda a, value: each(lambda v: np.concatenate([dense(v), dense(v)], -1), value),
    lambda a, value: each(lambda v: dense(v)[..., None], value),
    lambda a, value: each(lambda v: dense(v).astype(object), value),
    lambda a, value: (value, [True]) if isinstance(value, list) else value,
    lambda a, value: each(lambda v: dense(v).astype(str), value),
    lambda a, value: None,
    lambda a, value: each(lambda v: matrix(dense(v)), value),
    lambda a, value: each(lambda v: matrix(dense(v)).astype(np.float64), value),
    lambda a, value: each(lambda v: matrix(np.concatenate([dense(v), dense(v)], -1)), value),
    lambda a, value: each(lambda v: matrix(([1, 2], [1, 0], [0, 2]), shape=(1, v.shape[-1]), dtype=T), value),
    lambda a, value: each(lambda v: matrix(([0, 2], [0, 1], [0, 2]), shape=(1, v.shape[-1]), dtype=T), value),
    lambda a, value: C.alias(a),
    lambda a, value: [],
    lambda a, value: each(lambda v: dense(v)[:0], value),
    lambda a, value: C.Value(one(value)),
    lambda a, value: C.Value(one(value).astype(other_type())),
    lambda a, value: each(lambda v: dense(v)[None], value),
    lambda a, value: each(lambda v: dense(v)[:, None], value),
    lambda a, value: (value, "flags"),
    lambda a, value: list(one(value)),
    lambda a, value: FORMS[2](a, value).data,
    lambda a, value: C.NDArrayView.from_dense(one(value)),
    lambda a, value: one(value).reshape(-1),
]
ODD = [
    *ODD_SPARSE_TOO,
    lambda a, value: each(lambda v: v > 0, value),
    lambda a, value: each(lambda v: (v * 16).astype(np.int64), value),
    lambda a, value: each(lambda v: v.astype(np.float16), value),
    lambda a, value: each(lambda v: v[::-1], value),
    lambda a, value: [value],
    lambda a, value: C.asvalue(a, value),
    lambda a, value: value[0] if np.ndim(value[0]) else value,
    lambda a, value: np.stack([value[0], value[0]]).astype(other_type()),
    lambda a, value: [np.array(v) for v in np.ravel(one(value))],
    lambda a, value: C.Value.one_hot([[0, 1]] * len(value), max(2, a.shape[-1] if a.shape else 2)),
    lambda a, value: each(lambda v: (v * 2**28).astype(np.int64), value),
    lambda a, value: [[1, 2], [3]],
]


def otherwise(outputs, minibatch, seed, forms=None):
    """The values where the data are fed in other forms; in one of `ODD`, where that is given, one variable only."""
    f = C.combine(outputs)
    fed = feed(f, minibatch)
    variables = sorted((a for a in fed if a.dynamic_axes or forms), key=lambda a: a.name)
    for i, a in enumerate(variables if forms is None else variables[:1]):
        some = (FORMS[:3] if a.is_sparse else FORMS) if forms is None else ODD_SPARSE_TOO if a.is_sparse else forms
        fed[a] = some[(seed + 7 * i) % len(some)](a, fed[a])
    plain = list(feed(f, minibatch).values())
    if forms is None and seed % 5 == 0 and plain and all(isinstance(v, list) for v in plain):
        fed = feed(f, minibatch), [True] * len(plain[0])  # flags for all of them
    values = f.eval(fed)
    return [values[o] for o in f.outputs] if isinstance(values, dict) else [values]


def pieces(outputs, minibatch, end):
    """The same where all sequences are cut: the steps before `end` come in one minibatch, the others in the next."""
    f = C.combine(outputs)
    shown = []
    for first in (True, False):
        cut = feed(f, minibatch)
        for a, sequences in cut.items():
            if isinstance(sequences, list):
                parts = [s[:end] if first else s[end:] for s in sequences]
                cut[a] = C.Value.create(a, parts, [first] * len(parts))
        values = f.eval(cut)
        shown += [values[o] for o in f.outputs] if isinstance(values, dict) else [values]
    return shown


def pulled_back(output, wrt, minibatch):
    """The gradients of `wrt` where that of an output is given."""
    f = C.combine([output])
    state, values = f.forward(feed(f, minibatch), f.outputs, set(f.outputs))
    given = {o: each(lambda v: data(1, *v.shape), values[o]) for o in f.outputs}
    found = f.backward(state, given, set(wrt))
    return [found[v] for v in wrt]


def gradients(root, wrt, minibatch):
    """The gradients of the sum of `root`."""
    found = root.grad(feed(root, minibatch), wrt=wrt)
    return [found[v] for v in wrt] if isinstance(found, dict) else [found]


def in_order(leaves):
    """As they were created."""
    return sorted(leaves, key=lambda v: (len(v.uid), v.uid))


def train(loss, learner, minibatches, steps=5):
    """The losses of some steps, and the parameters after them."""
    trainer = C.Trainer(None, (loss, None), [learner(loss.parameters)])
    losses = []
    for step in range(steps):
        trainer.train_minibatch(feed(loss, minibatches[step % len(minibatches)]))
        losses.append(trainer.previous_minibatch_loss_average)
    return losses, [p.value for p in in_order(loss.parameters)]


def tilted(loss):
    """A loss with another gradient for each parameter, which is not 0 but for rounding."""
    for i, p in enumerate(in_order(loss.parameters)):
        slope = p * C.constant(1 + data(i, *p.shape) / 2)
        loss = loss + (C.reduce_sum(slope) if p.shape else slope)
    return loss


def observed_training(loss, output, learner, minibatches, steps=5):
    """What a trainer with two learners and a metric reports, also of an output; and tests; and the parameters."""
    parameters = in_order(loss.parameters)
    learners = [learner(parameters[::2])]
    if len(parameters) > 1:
        learners.append(C.momentum_sgd(parameters[1::2], C.learning_parameter_schedule(0.05), C.momentum_schedule(0.7)))
    trainer = C.Trainer(C.combine([output]), (loss, C.abs(loss) * 2), learners)
    shown = []
    for step in range(steps):
        fed = feed(loss, minibatches[step % len(minibatches)])
        updated, values = trainer.train_minibatch(fed, [output])
        shown.append([
            updated, values[output], trainer.previous_minibatch_loss_average, trainer.previous_minibatch_sample_count,
            trainer.previous_minibatch_evaluation_average, trainer.total_number_of_samples_seen,
        ])
        shown.append([a.learning_rate() for a in learners])
    return shown, trainer.test_minibatch(feed(loss, minibatches[0])), [p.value for p in parameters]


def text_file(path, minibatch):
    """A file for `CTFDeserializer`, with the sequences of a minibatch."""
    with open(path, "w") as out:
        for i in range(max(len(v) if isinstance(v, list) else v.shape[0] for v in minibatch.values())):
            rows = {n: v[i] if isinstance(v, list) else v[i : i + 1] for n, v in minibatch.items()}
            for step in range(max(map(len, rows.values()))):
                fields = {n: " ".join(map(str, r[step].ravel().tolist())) for n, r in rows.items() if step < len(r)}
                out.write("%d %s\n" % (i, " ".join("|%s %s" % field for field in sorted(fields.items()))))


NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?|\b(?:nan|inf)\b)")


def session(loss, learner, minibatch, options):
    """What is printed while a session trains and tests on a file, and the parameters after it.

    `options`: the size of minibatches, how many samples in all, between reports, and between tests.
    """
    size, samples, frequency, tested = options
    folder = tempfile.mkdtemp()
    path, log = os.path.join(folder, "data"), os.path.join(folder, "log")
    text_file(path, minibatch)

    def source(**limits):
        streams = {a.name: C.io.StreamDef(field=a.name, shape=max(1, int(np.prod(a.shape)))) for a in loss.arguments}
        return C.io.MinibatchSource(C.io.CTFDeserializer(path, C.io.StreamDefs(**streams)), randomize=False, **limits)

    printer = C.logging.ProgressPrinter(freq=1, log_to_file=log)
    trainer = C.Trainer(None, (loss, C.abs(loss) * 2), [learner(loss.parameters)], [printer])
    train, test = source(), source(max_sweeps=1)
    C.training_session(
        trainer, train, C.minibatch_size_schedule(size), max_samples=samples, progress_frequency=frequency,
        model_inputs_to_streams={a: train.streams[a.name] for a in loss.arguments},
        cv_config=C.CrossValidationConfig(test, size, tested),
        checkpoint_config=C.CheckpointConfig(os.path.join(folder, "checkpoint"), frequency, True),
    ).train()
    with open(log) as printed:
        lines = [re.sub(r"[\d.]+s \(.*", "", line) for line in printed if log not in line and "CNTKCommand" not in line]
    files = sorted(name for name in os.listdir(folder) if name.startswith("checkpoint"))
    shutil.rmtree(folder)
    texts = [NUMBER.sub("#", line) for line in lines]
    numbers = [list(map(float, NUMBER.findall(line))) for line in lines]
    return texts, numbers, files, [p.value for p in in_order(loss.parameters)]


def as_values(outputs, minibatch):
    """What the `Value` of each output says, and what is computed where that is fed again."""
    shown = []
    for f in (C.combine([o]) for o in outputs):
        value, o = f.eval(feed(f, minibatch), as_numpy=False), f.output
        mask = value.mask if o.dynamic_axes[1:] and hasattr(value, "mask") else None
        shown.append([list(value.shape), mask, value.is_sparse, str(np.dtype(value.dtype)), list(value.data.shape)])
        if o.dynamic_axes:
            shown.append(value.as_sequences(o))
            again = C.input_variable(o.shape, o.dtype, is_sparse=o.is_sparse, dynamic_axes=o.dynamic_axes)
            shown.append(C.combine([C.alias(again)]).eval({again: value}))
    return shown


def interrupted_training(loss, learner, minibatches):
    """Losses where parameters get other values and the rate another schedule between steps, and a clone is tested."""
    parameters = in_order(loss.parameters)
    trainer = C.Trainer(None, (loss, C.abs(loss)), [learner(parameters)])
    losses = []
    for step in range(6):
        fed = feed(loss, minibatches[step % len(minibatches)])
        trainer.train_minibatch(fed)
        losses.append([trainer.previous_minibatch_loss_average, trainer.test_minibatch(fed)])
        p = parameters[step % len(parameters)]
        p.value = np.asarray(p.value * 0.5 if step % 2 else data(step, *p.shape), p.dtype)
        if step == 2:
            trainer.parameter_learners[0].reset_learning_rate(C.learning_parameter_schedule(0.02))
        if step == 3:
            copy = loss.clone("freeze")
            losses.append(copy.eval(feed(copy, minibatches[0])))
    return losses, trainer.parameter_learners[0].learning_rate(), [p.value for p in parameters]


def evaluated(loss, minibatches):
    """What an evaluator says of each minibatch, and what it prints of all of them."""
    folder = tempfile.mkdtemp()
    log = os.path.join(folder, "log")
    evaluator = C.Evaluator(loss, [C.logging.ProgressPrinter(test_freq=1, log_to_file=log)])
    averages = [evaluator.test_minibatch(feed(loss, m)) for m in 2 * minibatches]
    evaluator.summarize_test_progress()
    with open(log) as printed:
        lines = [re.sub(r"[\d.]+s \(.*", "", line) for line in printed if "CNTKCommand" not in line]
    shutil.rmtree(folder)
    lines = [line for line in lines if log not in line]
    return averages, [NUMBER.sub("#", line) for line in lines], [list(map(float, NUMBER.findall(n))) for n in lines]


def structure(outputs):
    """What can be read of functions without computing them."""
    def of_leaf(v):
        return [v.name, list(v.shape), np.dtype(v.dtype).name, len(v.dynamic_axes), v.is_sparse, v.needs_gradient]

    def of_function(f):
        root = f.root_function
        nodes = C.logging.graph.depth_first_search(f, lambda node: isinstance(node, C.Function))
        operations = sorted(n.op_name for n in nodes if n.op_name != "ReconcileDynamicAxis")  # CNTK adds some of these
        return [
            f.name, root.op_name, root.is_block, root.is_primitive, len(f.constants), operations,
            [list(map(of_leaf, vs)) for vs in (f.arguments, f.parameters)], [o.name for o in f.outputs],
        ]

    functions = [C.combine([o]) for o in outputs] + [C.combine(outputs)]
    return [list(map(of_function, (f, f.clone("clone"), f.clone("freeze"), reload(f)))) for f in functions]


def again(outputs, minibatches):
    """The values of each output when it is evaluated time and again; here also by a `Predictor`."""
    shown = []
    for f in map(C.alias, outputs):
        for answer in (f.eval, getattr(C, "Predictor", lambda function: function.eval)(f)):
            shown.append([answer(feed(f, m)) for m in 3 * minibatches][-len(minibatches) :])
    return shown


def revalued(outputs, minibatch):
    """The values before and after all parameters get others."""
    before = evaluate(outputs, minibatch)
    for i, p in enumerate(in_order(C.combine(outputs).parameters)):
        p.value = np.asarray(data(i, *p.shape))
    return before + evaluate(outputs, minibatch)


def resume(loss, learner, minibatches, path, restores):
    """The same, but the first two steps are those of a checkpoint: saved to `path` after them, or restored from it."""
    trainer = C.Trainer(None, (loss, None), [learner(loss.parameters)])
    losses = []
    if restores:
        trainer.restore_from_checkpoint(path)
    for step in range(2 if restores else 0, 5):
        trainer.train_minibatch(feed(loss, minibatches[step % len(minibatches)]))
        losses.append(trainer.previous_minibatch_loss_average)
        if step == 1:
            trainer.save_checkpoint(path)
    values = [p.value for p in in_order(loss.parameters)]
    return losses[-3:], values, trainer.total_number_of_samples_seen


def reload(f):
    """`f` as it is read from a file."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "f")
    try:
        f.save(path)
        return C.Function.load(path)
    finally:
        if os.path.exists(path):
            os.remove(path)
        os.rmdir(folder)


def describe(f):
    """The shape, axes and type of an output; axes that an operation created have no fixed name."""
    v = f.output if isinstance(f, C.Function) else f
    known = ("defaultBatchAxis", "defaultDynamicAxis", "t1", "t2")
    axes = [a.name if a.name in known else "new" for a in v.dynamic_axes]
    return [list(v.shape), axes, np.dtype(v.dtype).name]


def repeated(step, value, times):
    """The results of a step that is written out again and again, each of the one before and its number."""
    values = []
    for i in range(times):
        value = step(value, i)
        values.append(value)
    return values


def loop(step, delay=C.sequence.past_value):
    """A recurrence: `step` of its own delayed value."""
    p = C.placeholder()
    f = step(delay(p))
    return f.replace_placeholders({p: f.output})
