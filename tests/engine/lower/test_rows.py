"""Embeddings are trained by the rows that a minibatch looks up, as in CNTK 2.7 (numbers without a source are its)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.lower.rows import Rows, apply_update

START = np.array([[1, 2], [3, 4], [-5, 6], [-7, 8]], np.float32) / 10
MINIBATCHES = [[0, 1], [1, 1], [2], [0, 2]]
RATE = C.learning_parameter_schedule(0.1, minibatch_size=1)
RATES = C.learning_parameter_schedule([0.1, 0.3, 0.5, 0.7], minibatch_size=1, epoch_size=1)
MOMENTUM = C.momentum_schedule(0.5)

TRAJECTORIES = {
    "sgd": (lambda p: C.sgd(p, RATE), [0.424, 0.488, 0.664, 0.712, 0.04, 0.744, -0.7, 0.8]),
    "momentum": (lambda p: C.momentum_sgd(p, RATE, MOMENTUM), [0.316, 0.392, 0.531, 0.598, -0.14, 0.696, -0.7, 0.8]),
    "momentum, rates change": (
        lambda p: C.momentum_sgd(p, RATES, MOMENTUM), [1.072, 1.064, 1.175, 1.15, 1.39, 1.104, -0.7, 0.8],
    ),
    "momentum, means": (
        lambda p: C.momentum_sgd(p, lr=0.1, momentum=0.5), [0.21025, 0.298, 0.419, 0.502, -0.245, 0.668, -0.7, 0.8],
    ),
    "momentum, l1 on every row": (
        lambda p: C.momentum_sgd(p, RATE, MOMENTUM, l1_regularization_weight=0.1),
        [0.251, 0.327, 0.465, 0.532, -0.0806, 0.6366, -0.63, 0.73],
    ),
    "clipped by norm": (
        lambda p: C.sgd(
            p, RATE, gradient_clipping_threshold_per_sample=0.3, gradient_clipping_with_truncation=False
        ),
        [0.162734, 0.255763, 0.373249, 0.462785, -0.424849, 0.62004, -0.7, 0.8],
    ),
    "adagrad": (
        lambda p: C.adagrad(p, RATE), [0.36399, 0.462285, 0.647446, 0.744787, -0.250189, 0.829571, -0.7, 0.8],
    ),
    "adagrad without average": (
        lambda p: C.adagrad(p, RATE, need_ave_multiplier=False),
        [0.266436, 0.36585, 0.486378, 0.585749, -0.331768, 0.76, -0.7, 0.8],
    ),
    "adadelta": (lambda p: C.adadelta(p, RATE), [0.10009, 0.20009, 0.300102, 0.400102, -0.49991, 0.60009, -0.7, 0.8]),
}


def trained(make_learner, minibatches=MINIBATCHES, dtype=np.float32, feed=None):
    x = C.input_variable(4, dtype=dtype, is_sparse=True)
    table = C.parameter((4, 2), dtype=dtype, init=START.astype(dtype))
    trainer = C.Trainer(None, (C.reduce_sum(C.square(C.times(x, table) - 1)), None), [make_learner([table])])
    for rows in minibatches:
        trainer.train_minibatch({x: csr_matrix(np.eye(4, dtype=dtype)[rows]) if feed is None else feed(rows)})
    return table.value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_trajectory_is_that_of_cntk(name, dtype):
    make_learner, expected = TRAJECTORIES[name]
    np.testing.assert_allclose(trained(make_learner, dtype=dtype).ravel(), expected, atol=6e-7)


@pytest.mark.parametrize(
    "make_learner",
    [
        lambda p: C.adam(p, RATE, MOMENTUM),
        lambda p: C.fsadagrad(p, RATE, MOMENTUM),
        lambda p: C.rmsprop(p, RATE, 0.9, 1.2, 0.7, 10, 0.01),
        lambda p: C.nesterov(p, RATE, MOMENTUM),
    ],
)
def test_absent_rows_are_unchanged_whatever_their_momentum(make_learner):
    before, after = (trained(make_learner, MINIBATCHES[:n]) for n in (1, 2))  # the second has row 1 alone
    assert (after[[0, 2, 3]] == before[[0, 2, 3]]).all()
    assert (after[1] != before[1]).all()


def test_values_and_empty_samples_of_sparse_data_have_the_gradient_of_the_dense_product():
    data = csr_matrix(np.array([[0, 2, 0, -1], [0, 0, 0, 0], [0, 0.5, 0, 0]], np.float32))

    def gradient_of_loss(w):
        return jax.grad(lambda w: jnp.sum((jnp.asarray(data.toarray()) @ w - 1) ** 2))(w)

    values = trained(lambda p: C.sgd(p, RATE), [None], feed=lambda rows: data)
    np.testing.assert_allclose(values, START - 0.1 * np.asarray(gradient_of_loss(START)), rtol=1e-6)


def test_the_first_row_is_unchanged_if_only_padding_refers_to_it():
    data = csr_matrix(np.array([[0, 2, 0, -1], [0, 0, 3, 0]], np.float32))
    values = trained(lambda p: C.momentum_sgd(p, RATE, MOMENTUM), [[0], None], feed=lambda rows: (
        csr_matrix(np.eye(4, dtype=np.float32)[rows]) if rows else data
    ))
    np.testing.assert_allclose(values[0], [0.19, 0.28], rtol=1e-6)


def embeddings_of_sequences(sparse):
    x, y = (C.sequence.input_variable(5, is_sparse=sparse, name=n) for n in "xy")
    random = np.random.RandomState(1)
    shared, separate = (C.parameter((5, 3), init=random.randn(5, 3).astype(np.float32)) for _ in range(2))
    sums = [C.sequence.reduce_sum(C.tanh(C.times(v, w))) for v, w in ((x, shared), (y, shared), (y, separate))]
    loss = C.reduce_sum(C.square(sums[0] - sums[1] * sums[2]))
    trainer = C.Trainer(None, (loss, None), [C.sgd([shared, separate], RATE)])
    for _ in range(3):
        ids = [[random.randint(4, size=n) for n in (3, 1, 5)] for _ in range(2)]
        eye = np.eye(5, dtype=np.float32)
        feeds = ([csr_matrix(eye[i]) if sparse else eye[i] for i in sequences] for sequences in ids)
        trainer.train_minibatch(dict(zip((x, y), feeds, strict=True)))
    return np.stack([shared.value, separate.value])


def test_several_products_with_one_table_and_several_tables_of_one_input_add_up_as_with_dense_data():
    np.testing.assert_allclose(embeddings_of_sequences(True), embeddings_of_sequences(False), rtol=2e-5)


def test_a_table_that_is_also_read_elsewhere_has_a_dense_gradient():
    x = C.input_variable(4, is_sparse=True)
    table = C.parameter((4, 2), init=START)
    loss = C.reduce_sum(C.square(C.times(x, table) - 1)) + C.reduce_sum(table)
    trainer = C.Trainer(None, (loss, None), [C.sgd([table], RATE)])
    trainer.train_minibatch({x: csr_matrix(np.eye(4, dtype=np.float32)[[0]])})
    np.testing.assert_allclose(table.value[1:], START[1:] - 0.1, rtol=1e-6)


SAMPLES = C.random_sample(np.full(6, 1 / 6), 2, True, seed=5)  # of CNTK: rows 0 and 4, then 1 and 4
IDS = C.input_variable(1)
VECTOR, MATRIX = (C.input_variable(shape, is_sparse=True) for shape in (4, (2, 4)))
SEQUENCE = C.sequence.input_variable(4, is_sparse=True)
BY_ROWS = {  # products with a parameter of ones -> the first column after two minibatches
    "random samples": (
        lambda w: C.times(SAMPLES, w), [{IDS: [[0]]}] * 2, [0.7071, 0.7071, 1, 1, 0.2071, 1],
    ),
    "one-hot samples of computed indices": (
        lambda w: C.times(C.one_hot(IDS, 4, sparse_output=True), w), [{IDS: [[0], [1]]}, {IDS: [[2], [3]]}],
        [0.5, 0.5, 0.5, 0.5],
    ),
    "sparse matrices": (
        lambda w: C.times(MATRIX, w),
        [{MATRIX: csr_matrix(np.eye(4, dtype=np.float32)[rows])} for rows in ([0, 1], [2, 3])],
        [0.7071, 0.7071, 0.7071, 0.7071],
    ),
    "sparse data with a label": (
        lambda w: C.times(C.layers.Label("l")(VECTOR), w),
        [{VECTOR: csr_matrix(np.eye(4, dtype=np.float32)[rows])} for rows in ([0, 1], [2, 3])],
        [0.5, 0.5, 0.5, 0.5],
    ),
    "steps that are gathered, but not the padding in the place of others": (
        lambda w: C.times(C.sequence.gather(SEQUENCE, C.sequence.is_first(SEQUENCE)), w),
        [{SEQUENCE: [csr_matrix(np.eye(4, dtype=np.float32)[steps])]} for steps in ([0, 2, 2], [1, 1, 0])],
        [0.7071, 0.7071, 1, 1],
    ),
    **{f"fed data, beside {name} of the whole table": (
        lambda w, f=f: C.times(VECTOR, w) + C.reduce_sum(f(w)),
        [{VECTOR: csr_matrix(np.eye(4, dtype=np.float32)[rows])} for rows in ([0, 1], [2, 3])],
        [0.5, 0.5, 0.5, 0.5],
    ) for name, f in {
        "stop_gradient": C.stop_gradient, "floor": C.floor, "a comparison": lambda w: C.greater(w, 0.3),
        "zeros_like": C.zeros_like, "hardmax": C.hardmax, "argmax": lambda w: C.argmax(w, 0),
    }.items()},
    "reshaped sparse data, which do not count": (
        lambda w: C.times(C.reshape(VECTOR, 4), w),
        [{VECTOR: csr_matrix(np.eye(4, dtype=np.float32)[rows])} for rows in ([0, 1], [2, 3])],
        [0.25, 0.25, 0.5, 0.5],
    ),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_momentum_moves_only_rows_that_computed_sparse_data_read(name):
    product, feeds, expected = BY_ROWS[name]
    table = C.parameter((len(expected), 2), init=1)
    loss = C.reduce_sum(product(table))
    loss = loss if loss.arguments else loss + C.reduce_sum(IDS) * 0
    learner = C.momentum_sgd(
        [table], C.learning_parameter_schedule_per_sample(1), C.momentum_schedule(0.5, minibatch_size=2), True
    )
    trainer = C.Trainer(None, (loss, None), [learner])
    for feed in feeds:
        trainer.train_minibatch(feed)
    np.testing.assert_allclose(table.value[:, 0], expected, atol=1e-4)


def test_rows_are_equivalent_to_the_dense_array():
    rows = Rows(jnp.array([1, 3, 5, 6]), jnp.array([[1.0, 2], [3, 4], [7, 7], [8, 8]]), 5)  # the last two: padding
    table = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(rows.dense(), [[0, 0], [1, 2], [0, 0], [3, 4], [0, 0]])
    np.testing.assert_array_equal(apply_update(jnp.asarray(table), rows), table + rows.dense())
    np.testing.assert_array_equal(rows.put(jnp.asarray(table), rows.values)[:, 0], [0, 1, 4, 3, 8])
    assert rows.mean(rows.values) == 2.5
