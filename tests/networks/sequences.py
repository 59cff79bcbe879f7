"""Networks of sequences: classifiers, tagging, language models, captions, acoustics. Scripts for CNTK 2.7."""
import numpy as np

from tests.networks.common import adam, momentum, set_weights, train


def lengths(random, count, longest=9):
    """From 3 to `longest`, the same in every minibatch in another order, so that one program serves all."""
    return random.permutation(np.resize(np.arange(3, longest + 1), count))


def one_hot(indices, size):
    return np.eye(size, dtype=np.float32)[indices]


def counting(classes, seed=1, batches=6, batch=8):
    """Noisy sequences of one-hot vectors; the class is how often the first symbol occurs, at most classes - 1."""
    random = np.random.RandomState(seed)
    for _ in range(batches):
        words = [random.randint(4, size=n) for n in lengths(random, batch)]
        counts = [min((w == 0).sum(), classes - 1) for w in words]
        yield [one_hot(w, 4) + 0.1 * random.standard_normal((len(w), 4)).astype(np.float32) for w in words], counts


def classifier(C, recurrent, rate=0.01):
    x, y = C.sequence.input_variable(4), C.input_variable(3)
    model = set_weights(C.layers.Sequential([recurrent, C.layers.Dense(3)])(x))
    feeds = [{x: sequences, y: one_hot(counts, 3)} for sequences, counts in counting(3)]
    return train(C, model, C.cross_entropy_with_softmax(model, y), adam(C, model, rate), feeds, 200)


def lstm_classifier(C):
    return classifier(C, C.layers.Fold(C.layers.LSTM(8)))


def bidirectional_gru_classifier(C):
    L = C.layers
    last = L.Sequential([(L.Recurrence(L.GRU(6)), L.Recurrence(L.GRU(6), go_backwards=True)), C.splice,
                         (L.Fold(L.GRU(6)), L.Fold(L.GRU(6), go_backwards=True)), C.splice])
    return classifier(C, last)


def slot_tagging(C):
    """The label of a word depends on the next word, which is an input too."""
    L, random = C.layers, np.random.RandomState(1)
    words, labels = (C.sequence.input_variable(size) for size in (12, 3))
    model = set_weights(L.Sequential([
        L.Embedding(8), lambda x: C.splice(x, C.sequence.future_value(x)),
        L.Recurrence(L.LSTM(10)), L.Dense(3)])(words))
    feeds = []
    for _ in range(6):
        texts = [random.randint(12, size=n) for n in lengths(random, 8)]
        tags = [(t + np.append(t[1:], 0)) % 3 for t in texts]
        feeds.append({words: [one_hot(t, 12) for t in texts], labels: [one_hot(t, 3) for t in tags]})
    return train(C, model, C.cross_entropy_with_softmax(model, labels), adam(C, model, 0.02), feeds, 200)


def texts_of(vocabulary, batches, seed=1):
    """Words of a Markov chain with four successors per word: pairs (words, next words) of lists of index arrays."""
    random = np.random.RandomState(seed)
    following = random.randint(vocabulary, size=(vocabulary, 4))
    for _ in range(batches):
        texts = []
        for length in lengths(random, 8):
            text = [random.randint(vocabulary)]
            for _ in range(length):
                text.append(following[text[-1], random.randint(4)])
            texts.append(np.array(text))
        yield [t[:-1] for t in texts], [t[1:] for t in texts]


def character_model(C):
    L, size = C.layers, 12
    now, later = (C.sequence.input_variable(size) for _ in range(2))
    model = set_weights(L.Sequential([
        L.For(range(2), lambda: L.Sequential([L.Stabilizer(), L.Recurrence(L.LSTM(12))])), L.Dense(size)])(now))
    feeds = [{now: [one_hot(t, size) for t in a], later: [one_hot(t, size) for t in b]} for a, b in texts_of(size, 8)]
    return train(C, model, C.cross_entropy_with_softmax(model, later), adam(C, model, 0.02), feeds, 200)


def words_and_states(C, size):
    """Sparse words, the next words, and the states of a small recurrent network."""
    L = C.layers
    now, later = (C.sequence.input_variable(size, is_sparse=True) for _ in range(2))
    states = L.Sequential([L.Embedding(10), L.Recurrence(L.GRU(12))])(now)
    feeds = [{now: C.Value.one_hot([t.tolist() for t in a], size),
              later: C.Value.one_hot([t.tolist() for t in b], size)} for a, b in texts_of(size, 8)]
    return later, states, feeds


def word_model(C):
    later, states, feeds = words_and_states(C, 60)
    model = set_weights(C.layers.Dense(60)(states))
    return train(C, model, C.cross_entropy_with_softmax(model, later), momentum(C, model, 1), feeds, 200)


def sampled_softmax(C):
    """The loss compares 20 sampled words with the right one; the cross entropy over all words is reported."""
    size, draws = 60, 20
    later, states, feeds = words_and_states(C, size)
    W, b = C.parameter((size, 12), init=C.glorot_uniform()), C.parameter((size, 1), init=0)
    scores = set_weights(C.reshape(C.times_transpose(W, states) + b, size))
    chances = np.full(size, 1 / size, np.float32)
    drawn = C.random_sample(chances, draws, True)                 # [draws, size]
    log_chance = C.reduce_mean(C.log(C.random_sample_inclusion_frequency(chances, draws, True)))
    of_drawn = C.reshape(C.times_transpose(C.times(drawn, W), states) + C.times(drawn, b), draws)
    of_right = C.reshape(C.times_transpose(C.reshape(C.times(later, W), (1, 12)), states), 1) + C.times(later, b)
    loss = C.reduce_log_sum_exp(C.splice(of_right, of_drawn) - log_chance) - (of_right - log_chance)
    trainer = C.Trainer(scores, (loss, C.cross_entropy_with_softmax(scores, later)), [momentum(C, scores, 1)])
    losses = []
    for step in range(200):
        trainer.train_minibatch(feeds[step % len(feeds)])
        losses.append(trainer.previous_minibatch_evaluation_average)
    return losses


def captioning(C):
    """A decoder of words that sees the features of its image at every step."""
    L, size, random = C.layers, 12, np.random.RandomState(1)
    image = C.input_variable((2, 3, 3))
    words, following = (C.sequence.input_variable(size) for _ in range(2))
    features = L.Sequential([L.Convolution2D(2, 4, C.relu), L.Dense(6, C.tanh)])(image)
    x = C.splice(L.Embedding(6)(words), C.sequence.broadcast_as(features, words))
    model = set_weights(L.Sequential([L.Recurrence(L.LSTM(12)), L.Dense(size)])(x))
    feeds = []
    for _ in range(6):
        pictures = random.standard_normal((8, 2, 3, 3)).astype(np.float32)
        kinds = (pictures[:, 0].mean(axis=(1, 2)) > 0) + 1
        long = lengths(random, 8)
        texts = [np.arange(long[i] + 1) * kinds[i] % size for i in range(8)]
        feeds.append({image: pictures, words: [one_hot(t[:-1], size) for t in texts],
                      following: [one_hot(t[1:], size) for t in texts]})
    return train(C, model, C.cross_entropy_with_softmax(model, following), adam(C, model, 0.01), feeds, 200)


def sequence_to_sequence(C):
    """Reversing a word, with attention: trained with teacher forcing, decoded greedily by UnfoldFrom."""
    L, size, start, end = C.layers, 8, 0, 1
    random = np.random.RandomState(1)
    source_axis, target_axis = C.Axis('source'), C.Axis('target')
    source = C.sequence.input_variable(size, sequence_axis=source_axis)
    target = C.sequence.input_variable(size, sequence_axis=target_axis)      # ends with `end`
    embed = L.Embedding(8)
    encode = L.Sequential([embed, (L.Recurrence(L.GRU(10)), L.Recurrence(L.GRU(10), go_backwards=True)), C.splice])
    attend, cell, project = L.AttentionModel(12), L.GRU(16), L.Dense(size)
    first = C.constant(one_hot(start, size))

    @C.Function
    def decode(history, source):
        encoded = encode(source)

        @C.Function
        def step(state, word):
            return cell(state, C.splice(word, attend(encoded, state)))

        return project(L.Recurrence(step)(embed(history)))

    @C.Function
    def teacher(source, target):
        return decode(L.Delay(initial_state=first)(target), source)

    @C.Function
    @L.Signature(L.SequenceOver[source_axis][L.Tensor[size]])
    def greedy(source):
        unfold = L.UnfoldFrom(lambda history: decode(history, source) >> C.hardmax,
                              until_predicate=lambda word: C.slice(word, -1, end, end + 1), length_increase=2)
        return unfold(initial_state=first, dynamic_axes_like=source)

    model = set_weights(teacher(source, target), gain=1)
    feeds = []
    for _ in range(6):
        texts = [random.randint(2, size, size=n) for n in lengths(random, 8, 6)]
        feeds.append({source: [one_hot(t, size) for t in texts],
                      target: [one_hot(np.append(t[::-1], end), size) for t in texts]})
    losses = train(C, model, C.cross_entropy_with_softmax(model, target), adam(C, model, 0.02), feeds, 300)

    decoded = greedy(feeds[0][source])
    wanted = feeds[0][target]
    right = sum(np.array_equal(decoded[i].argmax(axis=1), wanted[i].argmax(axis=1)) for i in range(8))
    assert right >= 6, right
    return losses


def ctc_acoustic_model(C):
    """Frames of phones of unknown duration: the network learns the alignment itself."""
    L, phones, random = C.layers, 4, np.random.RandomState(1)             # the last output is the blank
    sounds = 2 * random.standard_normal((phones, 6))
    frames, labels = C.sequence.input_variable(6), C.sequence.input_variable(phones + 1)
    model = set_weights(L.Sequential([
        (L.Recurrence(L.LSTM(8)), L.Recurrence(L.LSTM(8), go_backwards=True)), C.splice, L.Dense(phones + 1)])(frames))
    feeds = []
    for _ in range(6):
        heard, truth = [], []
        for count in lengths(random, 4, 4):
            spoken = np.cumsum(random.randint(1, phones, size=count)) % phones       # never the same twice in a row
            now = np.repeat(spoken, 3)
            heard.append((sounds[now] + random.standard_normal((len(now), 6))).astype(np.float32))
            begins = 1 + (np.arange(len(now)) % 3 == 0)                   # 2 where a phone begins
            truth.append(one_hot(now, phones + 1) * begins[:, None].astype(np.float32))
        feeds.append({frames: heard, labels: truth})
    loss = C.forward_backward(C.labels_to_graph(labels), model, phones, -1)
    return train(C, model, loss, adam(C, model, 0.01), feeds, 200)


NETWORKS = [lstm_classifier, bidirectional_gru_classifier, slot_tagging, character_model, word_model, sampled_softmax,
            captioning, sequence_to_sequence, ctc_acoustic_model]
