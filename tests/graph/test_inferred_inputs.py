"""Inputs of which a dimension is inferred: it comes with the first data."""

import numpy as np
import pytest

import cntkjax as C

OPEN = C.InferredDimension


def test_weights_get_their_size_from_the_first_data_and_train_then():
    x = C.input_variable((2, OPEN))
    model = C.layers.Sequential([C.layers.Dense(3), C.layers.Dense(1)])(x)
    batch = np.ones((5, 2, 4), np.float32)
    assert model.eval({x: batch}).shape == (5, 1)
    assert x.shape == (2, 4) and {p.shape for p in model.parameters} >= {(2, 4, 3), (3, 1)}
    trainer = C.Trainer(model, (C.reduce_sum(model), None), [C.sgd(model.parameters, 0.1)])
    assert trainer.train_minibatch({x: batch})
    with pytest.raises(ValueError, match="do not match the variable"):
        model.eval({x: np.ones((5, 2, 3))})


def test_data_that_do_not_fit_the_graph_leave_it_as_it_was():
    x = C.input_variable(OPEN)
    model = C.layers.Dense(2)(x) + C.reduce_sum(x + C.constant(np.ones(4, np.float32)))
    with pytest.raises(ValueError, match="Plus"):
        model.eval({x: np.ones((1, 3))})
    assert x.shape == (OPEN,) and model.eval({x: np.ones((1, 4))}).shape == (1, 2)


def test_an_input_that_no_weight_depends_on_takes_data_of_any_size():
    x = C.input_variable((2, OPEN))
    f = C.relu(x)
    assert [f.eval({x: np.ones((1, 2, n))}).shape for n in (3, 4)] == [(1, 2, 3), (1, 2, 4)]


def test_a_function_follows_a_size_that_its_input_got_in_another_one():
    x = C.input_variable((OPEN, 3))
    f, g = C.layers.Dense(2)(x), C.sin(x) + 1
    f.eval({x: np.ones((1, 4, 3))})
    assert g.eval({x: np.ones((1, 4, 3))}).shape == (1, 4, 3) and g.shape == (4, 3)


def test_channels_of_a_kernel_are_not_inferred_from_a_free_dimension():
    with pytest.raises(ValueError, match="free dimension has no size"):
        C.layers.Convolution2D((2, 2), 3)(C.input_variable((C.FreeDimension, 4, 5)))
