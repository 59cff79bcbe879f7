"""Programs after the manuals: ways to train, to feed, to watch, to save and to go on."""

import os
import tempfile

import numpy as np
import scipy.sparse
from cntk.layers import Dense, Embedding, Recurrence, Sequential
from cntk.layers.typing import Sequence, SparseTensor, Tensor

import cntk as C
from cntk import Function
from tests.programs.common import fix, losses, numbers, one_hot, program, sequences, words


def data(count=40, seed=0):
    labels = one_hot(count, 3, seed)
    return (numbers(count, 4, seed=seed) + labels.argmax(1)[:, None]).astype(np.float32), labels


def network():
    with C.layers.default_options(activation=C.sigmoid):
        return Sequential([Dense(6), Dense(3, activation=None)])


@program
def declaratively_from_arrays():
    model = network()

    @Function.with_signature(Tensor[4], Tensor[3])
    def criterion(x, y):
        z = model(x)
        return C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)

    fix(criterion)
    X, Y = data()
    X_test, Y_test = data(20, 5)
    progress_writer = C.logging.ProgressPrinter(0, log_to_file=os.devnull)
    learner = C.sgd(model.parameters, C.learning_parameter_schedule([0.5] * 2 + [0.1], epoch_size=20))
    progress = criterion.train(
        (X, Y), parameter_learners=[learner], callbacks=[progress_writer], minibatch_size=8, max_epochs=2
    )
    test = criterion.test((X_test, Y_test), minibatch_size=8, callbacks=[progress_writer])
    last = progress.epoch_summaries[-1]
    return {
        "loss": [e.loss for e in progress.epoch_summaries],
        "metric": last.metric,
        "samples": last.samples,
        "tested": test.metric,
        "W": learner.parameters[0].value,
    }


@program
def declaratively_from_a_reader():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "train.ctf")
    X, Y = data()
    with open(path, "w") as f:
        for x, y in zip(X, Y):
            f.write("|x %s |y %d:1\n" % (" ".join("%.4f" % v for v in x), y.argmax()))
    source = C.io.MinibatchSource(
        C.io.CTFDeserializer(
            path,
            C.io.StreamDefs(x=C.io.StreamDef(field="x", shape=4), y=C.io.StreamDef(field="y", shape=3, is_sparse=True)),
        ),
        randomize=False,
    )
    held = C.io.MinibatchSource(
        C.io.CTFDeserializer(
            path,
            C.io.StreamDefs(x=C.io.StreamDef(field="x", shape=4), y=C.io.StreamDef(field="y", shape=3, is_sparse=True)),
        ),
        randomize=False,
        max_sweeps=1,
    )
    x, y = C.input_variable(4), C.input_variable(3, is_sparse=True)
    z = fix(network()(x))
    criterion = C.combine([C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)])
    checkpoint = C.train.CheckpointConfig(os.path.join(folder, "model"), 20)
    validation = C.train.CrossValidationConfig(held, minibatch_size=16, frequency=40)
    test = C.train.TestConfig(held, minibatch_size=16)
    progress = criterion.train(
        source,
        streams=(source.streams.x, source.streams.y),
        minibatch_size=8,
        max_epochs=3,
        epoch_size=40,
        parameter_learners=[C.sgd(z.parameters, C.learning_parameter_schedule(0.5))],
        callbacks=[checkpoint, validation, test],
    )
    return {
        "loss": [e.loss for e in progress.epoch_summaries],
        "test": progress.test_summary.metric,
        "files": sorted(os.listdir(folder)),
    }


@program
def imperatively_with_validation_and_checkpoints():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(network()(x))
    ce, errs = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    learner = C.momentum_sgd(z.parameters, C.learning_parameter_schedule(0.3), C.momentum_schedule(0.9))
    progress_writer = C.logging.ProgressPrinter(num_epochs=2, log_to_file=os.devnull)
    trainer = C.Trainer(z, (ce, errs), [learner], [progress_writer])
    X, Y = data()
    path = os.path.join(tempfile.mkdtemp(), "trainer.ckpt")
    history, rate = [], 0.3
    for epoch in range(3):
        for start in range(0, 40, 8):
            trainer.train_minibatch({x: X[start : start + 8], y: Y[start : start + 8]})
        trainer.summarize_training_progress()
        history.append(trainer.test_minibatch({x: X, y: Y}))
        if epoch == 0:
            trainer.save_checkpoint(path, external_state={"epoch": epoch, "history": history})
        if epoch == 1:
            rate /= 2
            learner.reset_learning_rate(C.learning_parameter_schedule(rate))
    after = losses(trainer, [{x: X, y: Y}], 1)
    state = trainer.restore_from_checkpoint(path)
    again = losses(trainer, [{x: X[:8], y: Y[:8]}], 2)
    evaluator = C.Evaluator(errs)
    return {
        "history": history,
        "after": after,
        "again": again,
        "epoch": state["epoch"],
        "evaluated": evaluator.test_minibatch({x: X, y: Y}),
        "seen": trainer.total_number_of_samples_seen,
    }


@program
def training_session():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(network()(x))
    trainer = C.Trainer(
        z,
        (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)),
        [C.sgd(z.parameters, C.learning_parameter_schedule(0.3))],
    )
    X, Y = data()
    source = C.io.MinibatchSourceFromData(dict(x=X, y=Y), max_samples=120)
    held = C.io.MinibatchSourceFromData(dict(x=X, y=Y), max_samples=40)
    seen = []

    def observe(index, error, samples, minibatches):
        seen.append([index, round(error, 5), samples, minibatches])
        return True

    C.training_session(
        trainer=trainer,
        mb_source=source,
        mb_size=C.minibatch_size_schedule([4, 8], epoch_size=40),
        model_inputs_to_streams={x: source.streams.x, y: source.streams.y},
        max_samples=100,
        progress_frequency=40,
        cv_config=C.CrossValidationConfig(
            held,
            frequency=40,
            minibatch_size=16,
            callback=observe,
            model_inputs_to_streams={x: held.streams.x, y: held.streams.y},
        ),
    ).train()
    return {"seen": trainer.total_number_of_samples_seen, "validated": [list(map(float, s)) for s in seen]}


class Watch(C.cntk_py.ProgressWriter):
    def __init__(self):
        super(Watch, self).__init__(2, 0, 1, 0, 0, 0)
        self.__disown__()
        self.updates, self.summaries = [], []

    def on_write_training_update(self, samples, updates, aggregate_loss, aggregate_metric):
        self.updates.append([samples[1] - samples[0], updates[1] - updates[0], aggregate_loss[1] - aggregate_loss[0]])

    def on_write_training_summary(
        self, samples, updates, summaries, aggregate_loss, aggregate_metric, elapsed_milliseconds
    ):
        self.summaries.append([samples, updates, summaries, aggregate_loss, aggregate_metric])

    def on_write_test_update(self, *arguments):
        pass

    def on_write_test_summary(self, samples, updates, summaries, aggregate_metric, elapsed_milliseconds):
        self.summaries.append([samples, updates, summaries, aggregate_metric])


@program
def own_progress_writer():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(network()(x))
    watch = Watch()
    trainer = C.Trainer(
        z,
        (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)),
        [C.sgd(z.parameters, C.learning_parameter_schedule(0.3))],
        [watch],
    )
    X, Y = data()
    losses(trainer, [{x: X[:10], y: Y[:10]}, {x: X[10:], y: Y[10:]}], 4)
    trainer.summarize_training_progress()
    trainer.test_minibatch({x: X, y: Y})
    trainer.summarize_test_progress()
    return {
        "updates": [[float(v) for v in u] for u in watch.updates],
        "summaries": [[float(v) for v in s] for s in watch.summaries],
    }


@program
def feeding_in_every_form():
    """The same words as dense arrays, lists, CSR matrices, one Value, a batch of equal lengths; all give one result."""
    x = C.sequence.input_variable(7, is_sparse=True)
    d = C.sequence.input_variable(7)
    embed, recur = Embedding(3), Recurrence(C.layers.LSTM(2))
    z, w = recur(embed(x)), recur(embed(d))
    fix(z)
    ids = [[1, 2, 6], [0]]
    dense = [np.eye(7, dtype=np.float32)[i] for i in ids]
    csr = [scipy.sparse.csr_matrix(a) for a in dense]
    forms = {
        "csr": z.eval({x: csr}),
        "one hot": z.eval({x: C.Value.one_hot(ids, 7)}),
        "dense": w.eval({d: dense}),
        "value": z.eval({x: C.Value.create(x, csr)}),
        "one array": w.eval(np.stack([dense[0], dense[0]])),
        "alone": w.eval({d: dense[0]}),
    }
    batch = C.input_variable(4)
    s = C.reduce_sum(batch * batch)
    forms["rows"] = s.eval(numbers(3, 4))
    forms["list of rows"] = s.eval({batch: list(numbers(3, 4))})
    forms["numbers"] = s.eval({batch: [[1, 2, 3, 4], [5, 6, 7, 8]]})
    forms["single"] = s.eval(np.arange(4, dtype=np.float32))
    return forms


@program
def sparse_tensors_and_types():
    layers = Sequential([Embedding(3), Recurrence(C.layers.GRU(4)), C.sequence.last, Dense(2)])

    @Function
    @C.layers.Signature(Sequence[SparseTensor[9]])
    def model(x):
        return layers(x)

    fix(model)
    return {"shape": list(model.shape), "out": model([scipy.sparse.csr_matrix(w) for w in words([3, 1], 9)])}


class Printed(C.ops.functions.UserFunction):
    """Remembers what passes, in both directions."""

    def __init__(self, arg, log, name="Printed"):
        super(Printed, self).__init__([arg], name=name)
        self.log = log

    def forward(self, argument, device=None, outputs_to_retain=None):
        self.log.append(["forward", len(argument)])
        return None, argument

    def backward(self, state, root_gradients):
        self.log.append(["backward", len(root_gradients)])
        return root_gradients

    def infer_outputs(self):
        return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    def clone(self, cloned_inputs):
        return Printed(cloned_inputs[0], self.log, self.name)


@program
def debugging_with_user_functions():
    x, y = C.sequence.input_variable(4), C.sequence.input_variable(3)
    log = []
    z = fix(Sequential([Dense(5), lambda h: C.user_function(Printed(h, log)), Dense(3)])(x))
    trainer = C.Trainer(
        z, C.cross_entropy_with_softmax(z, y), [C.sgd(z.parameters, C.learning_parameter_schedule(0.1))]
    )
    result = {"loss": losses(trainer, [{x: sequences([3, 2], 4), y: words([3, 2], 3)}], 2)}
    result["calls"] = [kind for kind, _ in log]
    return result


@program
def learners_for_parts_of_a_network():
    x, y = C.input_variable(4), C.input_variable(3)
    z = fix(network()(x))
    fast = C.sgd(z.parameters[:2], C.learning_parameter_schedule([0.5, 0.1], epoch_size=16))
    slow = C.adam(z.parameters[2:], C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9))
    trainer = C.Trainer(z, C.cross_entropy_with_softmax(z, y), [fast, slow])
    X, Y = data()
    result = {"loss": losses(trainer, [{x: X[:8], y: Y[:8]}], 5), "rates": [fast.learning_rate(), slow.learning_rate()]}
    result["gradient"] = [trainer.model.parameters[1].value]
    return result


@program
def transfer_learning():
    """A saved network without its last layer, frozen, under a new head; then the same with weights that learn."""
    path = os.path.join(tempfile.mkdtemp(), "base.model")
    x = C.input_variable((2, 6, 6), name="features")
    fix(
        Sequential(
            [
                C.layers.Convolution2D((3, 3), 3, activation=C.relu, name="conv"),
                Dense(5, activation=C.relu, name="hidden"),
                Dense(2, name="old"),
            ]
        )(x)
    ).save(path)
    result = {}
    images, labels = numbers(6, 2, 6, 6, seed=4), one_hot(6, 3)
    for freeze in (True, False):
        base = C.load_model(path)
        feature_node = C.logging.find_by_name(base, "features")
        last_node = C.logging.find_by_name(base, "hidden")
        cloned = C.combine([last_node]).clone(
            C.CloneMethod.freeze if freeze else C.CloneMethod.clone, {feature_node: C.placeholder(name="features")}
        )
        inp, y = C.input_variable((2, 6, 6)), C.input_variable(3)
        z = Dense(3, activation=None, name="new", init=C.normal(0.01))(cloned(inp - C.Constant(0.1)))
        z.new.W.value = numbers(*z.new.W.shape)
        trainer = C.Trainer(
            z, C.cross_entropy_with_softmax(z, y), [C.sgd(z.parameters, C.learning_parameter_schedule(0.05))]
        )
        result["frozen" if freeze else "learning"] = losses(trainer, [{inp: images, y: labels}], 4)
        result["parameters %s" % freeze] = len(z.parameters)
    return result


@program
def looking_into_a_model():
    z = network()(C.input_variable(4, name="in"))
    fix(z)
    seen = []
    C.logging.graph.depth_first_search(z.root_function, lambda node: bool(seen.append(type(node).__name__)))
    found = C.logging.graph.find_all_with_name(z, "")
    description = C.logging.graph.plot(z)
    return {
        "visited": len(seen),
        "unnamed": len(found),
        "plot": description.count("\n"),
        "outputs": C.logging.graph.get_node_outputs(z) and True,
        "type": z.root_function.op_name,
    }


@program
def gradients_and_results_by_hand():
    x, y = C.input_variable(3, needs_gradient=True), C.input_variable(2)
    z = fix(Dense(2)(x))
    loss = C.cross_entropy_with_softmax(z, y)
    feed = {x: numbers(4, 3), y: one_hot(4, 2)}
    state, outputs = loss.forward(feed, [loss.output], set([loss.output]))
    gradients = loss.backward(state, {loss.output: np.ones_like(outputs[loss.output])}, set(loss.parameters))
    at, value = loss.grad(feed, wrt=[x], outputs=[loss.output])
    return {
        "value": outputs[loss.output],
        "W": gradients[loss.parameters[0]],
        "b": gradients[loss.parameters[1]],
        "x": at,
        "again": value,
    }
