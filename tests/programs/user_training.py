"""Programs of users with trainers of their own making: several tasks, teachers, searches, wrappers, exports."""

import os
import tempfile

import numpy as np
from cntk.layers import GRU, BatchNormalization, Convolution2D, Dense, Embedding, MaxPooling, Recurrence, Sequential

import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program, words


@program
def two_tasks_over_one_body():
    """A tag for each word and a class for the sentence, with weights of the losses that change as training goes on."""
    x, tags, kind = C.sequence.input_variable(8), C.sequence.input_variable(4), C.input_variable(3)
    states = Sequential([Embedding(4), Recurrence(GRU(5))])(x)
    of_words, of_sentence = Dense(4, name="tags")(states), Dense(3, name="kind")(C.sequence.last(states))
    weight = C.parameter((), init=1.0, name="weight")
    per_word = C.cross_entropy_with_softmax(of_words, tags)
    loss = C.cross_entropy_with_softmax(of_sentence, kind) + C.stop_gradient(weight) * C.sequence.reduce_sum(per_word)
    model = fix(C.combine([of_words, of_sentence]))
    errors = C.classification_error(of_sentence, kind)
    trainer = C.Trainer(model, (loss, errors), [C.adam(
        model.parameters, C.learning_parameter_schedule(0.02), C.momentum_schedule(0.9), unit_gain=False)])
    feed = {x: words([3, 5, 2], 8), tags: words([3, 5, 2], 4, seed=3), kind: one_hot(3, 3)}
    history = losses(trainer, [feed], 3)
    weight.value = np.array(0.25, np.float32)
    history += losses(trainer, [feed], 3)
    tagged = C.combine([model.outputs[0]]).eval({x: feed[x]})
    return {"loss": history, "tagged": tagged, "errors": trainer.test_minibatch(feed)}


@program
def a_student_and_its_teacher():
    """A saved network, frozen, gives soft labels at a temperature to a smaller one."""
    x, y = C.input_variable((1, 6, 6)), C.input_variable(3)
    big = Sequential([Convolution2D((3, 3), 4, activation=C.relu), MaxPooling((2, 2), 2), Dense(8, C.relu), Dense(3)])
    path = os.path.join(tempfile.mkdtemp(), "teacher.model")
    fix(big(x), 0.5).save(path)
    loaded = C.load_model(path)
    teacher = loaded.clone(C.CloneMethod.freeze, {loaded.arguments[0]: x})
    student = fix(Sequential([Dense(4, activation=C.tanh), Dense(3)])(x), seed=5)
    temperature = 3.0
    soft = C.softmax(teacher / temperature)
    loss = 0.7 * C.cross_entropy_with_softmax(student / temperature, soft) * temperature**2
    loss = loss + 0.3 * C.cross_entropy_with_softmax(student, y)
    trainer = C.Trainer(student, (loss, C.classification_error(student, y)), [C.nesterov(
        student.parameters, C.learning_parameter_schedule(0.2), C.momentum_as_time_constant_schedule(40))])
    feed = {x: numbers(8, 1, 6, 6), y: one_hot(8, 3)}
    return {
        "loss": losses(trainer, [feed], 5),
        "frozen": float(len(teacher.parameters)),
        "soft": soft.eval({x: feed[x]}),
        "metric": trainer.previous_minibatch_evaluation_average,
    }


class Model(object):
    """A few lines that make CNTK look like Keras: layers that are called, compile, fit, evaluate, predict."""

    def __init__(self, inputs, outputs):
        self.inputs, self.outputs = inputs, outputs

    def compile(self, optimizer, loss, metrics=()):
        self.target = C.input_variable(self.outputs.shape, name="target")
        self.loss = loss(self.outputs, self.target)
        self.metrics = [m(self.outputs, self.target) for m in metrics]
        criterion = tuple([self.loss] + self.metrics[:1])
        self.trainer = C.Trainer(self.outputs, criterion, [optimizer(self.outputs.parameters)])

    def fit(self, x, y, batch_size, epochs, validation_data=None):
        history = {"loss": [], "val_metric": []}
        for _ in range(epochs):
            total = 0.0
            for start in range(0, len(x), batch_size):
                stop = start + batch_size
                self.trainer.train_minibatch({self.inputs: x[start:stop], self.target: y[start:stop]})
                total += self.trainer.previous_minibatch_loss_average * len(x[start:stop])
            history["loss"].append(total / len(x))
            if validation_data is not None:
                history["val_metric"].append(self.evaluate(*validation_data))
        return history

    def evaluate(self, x, y):
        return self.trainer.test_minibatch({self.inputs: x, self.target: y})

    def predict(self, x):
        return self.outputs.eval({self.inputs: x})

    def get_weights(self):
        return [p.value for p in self.outputs.parameters]

    def set_weights(self, values):
        for p, value in zip(self.outputs.parameters, values):
            p.value = value


@program
def layers_in_the_manner_of_keras():
    inputs = C.input_variable(6)
    x = Dense(8, activation=C.relu, name="dense_1")(inputs)
    x = BatchNormalization(normalization_time_constant=20)(x)
    x = C.splice(x, Dense(3, activation=C.tanh, name="dense_2")(inputs))
    model = Model(inputs, fix(Dense(2, activation=C.softmax, name="out")(x)))
    model.compile(
        lambda p: C.rmsprop(p, C.learning_parameter_schedule(0.01), 0.9, 1.1, 0.9, 5.0, 0.1),
        lambda z, t: -C.reduce_sum(t * C.log(C.clip(z, 1e-7, 1 - 1e-7))),
        [C.classification_error],
    )
    X, Y = numbers(20, 6), one_hot(20, 2)
    history = model.fit(X, Y, 6, 3, (X[:8], Y[:8]))
    saved = model.get_weights()
    predicted = model.predict(X[:3])
    model.set_weights([0 * v for v in saved])
    flat = model.predict(X[:3])
    model.set_weights(saved)
    return {"history": history["loss"], "validated": history["val_metric"], "predicted": predicted, "flat": flat,
            "same": bool(np.array_equal(predicted, model.predict(X[:3])))}


@program
def a_search_for_the_learning_rate():
    """Each rate starts from the same copy of the weights; the best one goes on, is halved when it stalls, and stops."""
    x, y = C.input_variable(5), C.input_variable(1)
    z = fix(Sequential([Dense(6, activation=C.softplus), Dense(1)])(x))
    loss = C.squared_error(z, y)
    X = numbers(16, 5)
    Y = (X[:, :1] * X[:, 1:2]).astype(np.float32)
    start = [p.value.copy() for p in z.parameters]
    found = {}
    for rate in (0.003, 0.03, 0.3):
        for p, value in zip(z.parameters, start):
            p.value = value
        trainer = C.Trainer(z, loss, [C.sgd(z.parameters, C.learning_parameter_schedule(rate))])
        found[rate] = losses(trainer, [{x: X, y: Y}], 4)[-1]
    rate = min(found, key=found.get)
    for p, value in zip(z.parameters, start):
        p.value = value
    learner = C.sgd(z.parameters, C.learning_parameter_schedule(rate))
    trainer = C.Trainer(z, loss, [learner])
    best, history, rates, kept = np.inf, [], [], None
    for _ in range(8):
        history.append(losses(trainer, [{x: X, y: Y}], 2)[-1])
        if history[-1] < 0.98 * best:
            best, kept = history[-1], z.clone("clone")
        else:
            rate /= 2
            learner.reset_learning_rate(C.learning_parameter_schedule(rate))
        rates.append(learner.learning_rate())
    return {"found": [found[k] for k in sorted(found)], "history": history, "rates": rates,
            "kept": kept.eval({kept.arguments[0]: X[:3]})}


@program
def a_forecast_that_feeds_itself():
    """A network of past values is trained on true ones, then reads what it wrote, state and all, step by step."""
    x, y = C.sequence.input_variable(1), C.sequence.input_variable(1)
    cell = GRU(5)
    states = Recurrence(cell)(x)
    head = Dense(1)
    z = fix(head(states))
    wave = np.sin(np.arange(24, dtype=np.float32) / 3)[:, None]
    trainer = C.Trainer(z, (C.squared_error(z, y), C.reduce_mean(C.abs(z - y))), [C.adam(
        z.parameters, C.learning_parameter_schedule(0.02), C.momentum_schedule(0.9))])
    one, two = {x: [wave[:-1]], y: [wave[1:]]}, {x: [wave[:11], wave[5:20]], y: [wave[1:12], wave[6:21]]}
    history = losses(trainer, [one, two], 6)
    h, value = C.input_variable(5), C.input_variable(1)
    step = C.combine([cell(h, value), head(cell(h, value))])
    state, now, written = np.zeros((1, 5), np.float32), wave[:1], []
    for _ in range(6):
        out = step.eval({h: state, value: now})
        state, now = [out[v] for v in step.outputs]
        written.append(float(now.ravel()[0]))
    return {"loss": history, "written": written, "true": z.eval({x: [wave[:3]]})}
