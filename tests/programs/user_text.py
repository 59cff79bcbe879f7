"""Programs of users who model text: characters, words, pairs of sentences."""

import os
import tempfile

import numpy as np
import scipy.sparse
from cntk.layers import LSTM, Dense, Embedding, For, Recurrence, Sequential, Stabilizer

import cntk as C
from tests.programs.common import fix, losses, one_hot, program, words

TEXT = "the cat sat on the mat and the dog sat on the log while the fog sat on the bog "


def characters(text):
    known = sorted(set(text))
    return [known.index(c) for c in text], len(known)


@program
def truncated_character_rnn():
    """A text in pieces of ten characters, each going on where the one before ended; then a test, then samples."""
    ids, vocabulary = characters(TEXT * 4)
    streams, length = 3, 10
    x, y = C.sequence.input_variable(vocabulary), C.sequence.input_variable(vocabulary)
    layers = For(range(2), lambda: Sequential([Stabilizer(), Recurrence(LSTM(6), go_backwards=False)]))
    z = fix(Sequential([layers, Dense(vocabulary)])(x))
    ce, errs = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    learner = C.momentum_sgd(
        z.parameters,
        C.learning_parameter_schedule_per_sample(0.2),
        C.momentum_schedule(0.9, minibatch_size=streams * length),
        gradient_clipping_threshold_per_sample=5.0,
        gradient_clipping_with_truncation=True,
    )
    trainer = C.Trainer(z, (ce, errs), [learner], [C.logging.ProgressPrinter(freq=10, log_to_file=os.devnull)])
    each = len(ids) // streams
    history = []
    for step in range(25):
        rows = [ids[s * each + step * length % (each - length - 1) :][: length + 1] for s in range(streams)]
        features = [np.eye(vocabulary, dtype=np.float32)[row[:-1]] for row in rows]
        labels = [np.eye(vocabulary, dtype=np.float32)[row[1:]] for row in rows]
        trainer.train_minibatch(({x: features, y: labels}, [step == 0] * streams))
        history.append(trainer.previous_minibatch_loss_average)
    metric = trainer.previous_minibatch_evaluation_average
    tested = trainer.test_minibatch({x: features, y: labels})
    written = [ids[0]]
    for _ in range(7):
        out = z.eval({x: [np.eye(vocabulary, dtype=np.float32)[written]]})
        written.append(int(out[0][-1].argmax()))
    return {"loss": history, "metric": metric, "tested": tested, "written": [float(i) for i in written]}


@program
def words_with_sampled_softmax():
    """Sparse words, a loss over sampled words, weights shared by the embedding and the output."""
    vocabulary, hidden, samples = 20, 6, 5
    x = C.sequence.input_variable(vocabulary, is_sparse=True)
    y = C.sequence.input_variable(vocabulary, is_sparse=True)
    E = C.parameter((vocabulary, hidden))
    bias = C.parameter((vocabulary, 1))
    states = Recurrence(LSTM(hidden))(C.times(x, E))
    fix(C.combine([states, C.plus(bias, 0)]))
    E.value = one_hot(vocabulary, hidden) * 0.5
    weights = np.asarray([1.0 / (i + 1) for i in range(vocabulary)], np.float32)

    sampled = C.random_sample(weights, samples, True, seed=3)
    frequency = C.random_sample_inclusion_frequency(weights, samples, True, seed=4)
    log_prior = C.constant(np.log(frequency.eval()).reshape(vocabulary, 1))
    of_samples = C.times_transpose(C.times(sampled, E), states) + C.times(sampled, bias) - C.times(sampled, log_prior)
    target = C.times_transpose(C.reshape(C.times(y, E), (1, hidden)), states)
    target = target + C.times(y, bias) - C.times(y, log_prior)
    loss = C.reduce_log_sum_exp(C.splice(C.reshape(of_samples, samples), C.reshape(target, 1))) - target
    full = C.reshape(C.times_transpose(E, states) + bias, vocabulary)
    ce = C.cross_entropy_with_softmax(full, y)
    trainer = C.Trainer(full, (loss, ce), [C.sgd(full.parameters, C.learning_parameter_schedule(0.5))])
    rng = np.random.RandomState(1)
    texts = [rng.randint(vocabulary, size=n) for n in (6, 3, 5)]
    feed = {
        x: C.Value.one_hot([t[:-1].tolist() for t in texts], vocabulary),
        y: C.Value.one_hot([t[1:].tolist() for t in texts], vocabulary),
    }
    before = trainer.test_minibatch(feed)
    return {
        "before": before,
        "loss": losses(trainer, [feed], 12),
        "after": trainer.test_minibatch(feed),
        "priors": log_prior.value,
    }


@program
def light_rnn():
    """Each word is a cell of a table: its row and its column have embeddings, and are predicted one after the other."""
    side, emb, hidden = 4, 5, 6
    row, column = C.sequence.input_variable(side, name="row"), C.sequence.input_variable(side, name="column")
    next_row, next_column = C.sequence.input_variable(side), C.sequence.input_variable(side)
    E_row, E_column = C.parameter((side, emb), name="E_row"), C.parameter((side, emb), name="E_column")
    W, R, b = C.parameter((emb, hidden)), C.parameter((hidden, hidden)), C.parameter(hidden)

    def cell(previous, x):
        return C.sigmoid(C.times(x, W) + C.times(previous, R) + b)

    column_state = C.placeholder(shape=(hidden,), dynamic_axes=row.dynamic_axes)
    row_state = cell(C.sequence.past_value(column_state), C.times(row, E_row))
    after_column = cell(row_state, C.times(column, E_column))
    row_state.replace_placeholders({column_state: after_column.output})
    to_row, to_column = Dense(side), Dense(side)
    z_row = to_row(after_column)
    z_column = to_column(cell(after_column, C.times(next_row, E_row)))
    ce = C.cross_entropy_with_softmax(z_row, next_row) + C.cross_entropy_with_softmax(z_column, next_column)
    fix(ce)
    learner = C.adam(ce.parameters, C.learning_parameter_schedule(0.02), C.momentum_schedule(0.9))
    trainer = C.Trainer(C.combine([z_row, z_column]), (ce, None), [learner])
    rng = np.random.RandomState(2)
    texts = [rng.randint(side * side, size=n) for n in (7, 4)]

    def rows(texts):
        return [np.eye(side, dtype=np.float32)[t // side] for t in texts]

    def columns(texts):
        return [np.eye(side, dtype=np.float32)[t % side] for t in texts]

    now, later = [t[:-1] for t in texts], [t[1:] for t in texts]
    feed = {row: rows(now), column: columns(now), next_row: rows(later), next_column: columns(later)}
    result = {"loss": losses(trainer, [feed], 6)}
    # words change places in the table by what they would cost there
    cost = C.log_softmax(z_row).eval({row: feed[row], column: feed[column]})
    result["table"] = [cost[0], cost[1]]
    return result


@program
def skip_gram():
    """Embeddings of a word and its neighbors; a neighbor that was drawn has to be told from one that was seen."""
    vocabulary, size = 12, 4
    center = C.input_variable(vocabulary, is_sparse=True, name="center")
    context = C.input_variable(vocabulary, is_sparse=True, name="context")
    seen = C.input_variable(1, name="seen")
    word_vectors, context_vectors = Embedding(size, name="words"), Embedding(size, name="contexts")
    score = C.reduce_sum(word_vectors(center) * context_vectors(context))
    p = fix(C.sigmoid(score))
    loss = C.binary_cross_entropy(p, seen)
    trainer = C.Trainer(p, (loss, C.square(p - seen)), [C.adagrad(p.parameters, C.learning_parameter_schedule(0.5))])
    rng = np.random.RandomState(0)
    text = rng.randint(vocabulary, size=30)
    rows = [(text[i], text[i + d], 1) for i in range(1, 29) for d in (-1, 1)]
    rows += [(text[i], rng.randint(vocabulary), 0) for i in range(1, 29)]
    rng.shuffle(rows)
    eye = scipy.sparse.eye(vocabulary, format="csr", dtype=np.float32)
    feeds = []
    for start in range(0, 80, 16):
        part = np.array(rows[start : start + 16])
        feeds.append({center: eye[part[:, 0]], context: eye[part[:, 1]], seen: part[:, 2:].astype(np.float32)})
    history = losses(trainer, feeds, 10)
    E = word_vectors.E.value
    nearest = (E.dot(E[3]) / np.linalg.norm(E, axis=1)).argsort()[::-1][:3]
    return {"loss": history, "E": E, "nearest": [float(i) for i in nearest]}


@program
def siamese_sentences():
    """One encoder for two sentences of different length; a margin for pairs that differ."""
    a_axis, b_axis = C.Axis("a"), C.Axis("b")
    a = C.sequence.input_variable(10, sequence_axis=a_axis, name="a")
    b = C.sequence.input_variable(10, sequence_axis=b_axis, name="b")
    same = C.input_variable(1, name="same")
    encode = Sequential([Embedding(5), C.layers.Fold(C.layers.GRU(6)), Dense(4, activation=C.tanh)])
    similarity = fix(C.cosine_distance(encode(a), encode(b), name="similarity"))
    distance = 1 - similarity
    loss = same * C.square(distance) + (1 - same) * C.square(C.element_max(0.7 - distance, 0))
    trainer = C.Trainer(similarity, (loss, None), [C.rmsprop(
        similarity.parameters, C.learning_parameter_schedule(0.3), gamma=0.9, inc=1.2, dec=0.7, max=5.0, min=0.1)])
    feed = {
        a: words([3, 5, 2, 4], 10),
        b: words([4, 1, 2, 6], 10, seed=2),
        same: np.array([[1], [0], [1], [0]], np.float32),
    }
    history = losses(trainer, [feed], 6)
    return {"loss": history, "similarity": similarity.eval({a: feed[a], b: feed[b]})}


@program
def sentences_by_convolution():
    """Filters of several widths over embedded words, each pooled over the sentence."""
    x, y = C.sequence.input_variable(15, is_sparse=True), C.input_variable(3)
    embedded = Embedding(6)(x)

    def branch(width):
        filters = C.layers.Convolution((width, 6), 4, sequential=True, pad=False, activation=C.relu)
        return C.sequence.reduce_max(C.reshape(filters(C.reshape(embedded, (1, 6))), 4))

    joined = C.splice(branch(2), branch(3))
    z = fix(Sequential([Dense(5, activation=C.tanh), C.layers.Dropout(0.0), Dense(3)])(joined))
    ce, errs = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    trainer = C.Trainer(z, (ce, errs), [C.adadelta(z.parameters, C.learning_parameter_schedule(40))])
    feed = {x: [scipy.sparse.csr_matrix(w) for w in words([5, 4, 7, 3], 15)], y: one_hot(4, 3)}
    history = losses(trainer, [feed], 5)
    path = os.path.join(tempfile.mkdtemp(), "sentences.model")
    z.save(path)
    loaded = C.load_model(path)
    return {"loss": history, "out": loaded.eval({loaded.arguments[0]: feed[x]})}


@program
def self_attention_over_unpacked_words():
    """Words become an axis, attend to each other behind a mask, and become a sequence again."""
    vocabulary, size = 9, 6
    x, y = C.sequence.input_variable(vocabulary), C.sequence.input_variable(4)
    embedded = Embedding(size)(x)
    query, key, value = (Dense(size, bias=False)(embedded) for _ in range(3))
    keys, valid = C.sequence.unpack(key, padding_value=0).outputs
    values = C.sequence.unpack(value, padding_value=0, no_mask_output=True)
    keys, valid, values = (C.sequence.broadcast_as(v, query) for v in (keys, valid, values))
    scores = C.times_transpose(query, keys) / np.sqrt(size)
    masked = C.element_select(valid, scores, -1e4)
    attended = C.times(C.softmax(masked, axis=0), values)
    z = fix(Dense(4)(C.layers.LayerNormalization()(attended + embedded)))
    trainer = C.Trainer(
        z,
        (C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)),
        [C.fsadagrad(z.parameters, C.learning_parameter_schedule(0.02), C.momentum_schedule(0.9))],
    )
    feed = {x: words([4, 2, 3], vocabulary), y: words([4, 2, 3], 4, seed=5)}
    history = losses(trainer, [feed], 5)
    return {"loss": history, "out": z.eval({x: feed[x]})}
