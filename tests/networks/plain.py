"""Networks of dense layers: regression, perceptrons, autoencoder, DSSM, a deep Q network. Scripts for CNTK 2.7."""
import numpy as np

from tests.networks.common import adam, classify, momentum, set_weights, train


def logistic_regression(C):
    return classify(C, C.layers.Dense(2), (12,), 2, steps=300, rate=0.05, noise=2)


def perceptron(C):
    network = C.layers.Sequential([C.layers.For(range(2), lambda: C.layers.Dense(24, C.relu)), C.layers.Dense(5)])
    return classify(C, network, (20,), 5, steps=300, noise=1.5)


def autoencoder(C):
    random = np.random.RandomState(1)
    data = (random.standard_normal((64, 3)).dot(random.standard_normal((3, 16)))).astype(np.float32)
    x = C.input_variable(16)
    model = C.layers.Sequential([C.layers.Dense(8, C.tanh), C.layers.Dense(3), C.layers.Dense(8, C.tanh),
                                 C.layers.Dense(16)])(x)
    set_weights(model)
    feeds = [{x: data[start:start + 16]} for start in range(0, 64, 16)]
    return train(C, model, C.squared_error(model, x) / 16, adam(C, model, 0.01), feeds, 400)


def dssm(C):
    """Queries and documents share a space; the document of another query must be farther away."""
    words, batch = 40, 16
    random = np.random.RandomState(1)
    query, document = (C.input_variable(words, is_sparse=True) for _ in range(2))

    def tower():
        return C.layers.Sequential([C.layers.Embedding(16), C.layers.Dense(12, C.tanh), C.layers.Dense(8, C.tanh)])

    model = C.cosine_distance_with_negative_samples(tower()(query), tower()(document), 1, 4)
    set_weights(model)
    loss = -C.slice(C.log_softmax(C.reshape(model * 10, 5)), 0, 0, 1)      # the first one is the query's own
    translation = random.permutation(words)
    feeds = []
    for _ in range(8):
        asked = np.stack([random.choice(words, 3, replace=False) for _ in range(batch)])
        feeds.append({query: bags(C, asked, words), document: bags(C, translation[asked], words)})
    return train(C, model, loss, momentum(C, model, 0.3), feeds, 300)


def bags(C, words, vocabulary):
    from scipy.sparse import csr_matrix

    count, each = words.shape
    return csr_matrix((np.ones(words.size, np.float32), np.sort(words, 1).ravel(), np.arange(0, words.size + 1, each)),
                      shape=(count, vocabulary))


def deep_q_network(C):
    """Learns to walk to the right end of a corridor of ten places: target network, replay, masked errors."""
    places, actions, discount = 10, 2, 0.9
    random = np.random.RandomState(1)
    state, action, target = C.input_variable(places), C.input_variable(actions), C.input_variable(1)
    q = set_weights(C.layers.Sequential([C.layers.Dense(24, C.relu), C.layers.Dense(actions)])(state))
    loss = C.reduce_mean(C.square(C.reduce_sum(q * action) - target))
    trainer = C.Trainer(q, loss, [momentum(C, q, 0.2)])
    eye, losses = np.eye(places, dtype=np.float32), []
    for step in range(300):
        if step % 20 == 0:
            frozen = q.clone('freeze', {state: C.input_variable(places)})
        place, move = random.randint(places - 1, size=32), random.randint(actions, size=32)
        after = np.clip(place + 2 * move - 1, 0, places - 1)
        arrived = after == places - 1
        future = np.where(arrived, 1, discount * frozen.eval(eye[after]).max(axis=1))
        trainer.train_minibatch({state: eye[place], action: np.eye(actions, dtype=np.float32)[move],
                                 target: future.astype(np.float32)[:, None]})
        losses.append(trainer.previous_minibatch_loss_average)
    assert (q.eval(eye[:-1]).argmax(axis=1) == 1).all()      # it walks to the right from everywhere
    return losses


NETWORKS = [logistic_regression, perceptron, autoencoder, dssm, deep_q_network]
