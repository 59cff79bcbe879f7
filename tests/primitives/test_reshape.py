"""Changes of shape: axes from and to the batch axis, and sparse data."""

import numpy as np

import cntkjax as C

FREE = C.FreeDimension


class TestBatchAxis:
    def test_an_unpacked_batch_axis_is_a_static_axis_of_the_batch_size(self):
        x = C.input_variable(3)
        weights = C.softmax(C.unpack_batch(x), axis=0)
        assert weights.shape == (FREE, 3) and weights.dynamic_axes == ()
        for n in (3, 5, 6, 7):  # sizes that are padded elsewhere
            assert weights.eval({x: np.zeros((n, 3))}).tolist() == [[np.float32(1 / n)] * 3] * n

    def test_a_static_axis_becomes_the_batch_axis(self):
        x, weights = C.input_variable(2), C.parameter(init=np.arange(6, dtype=np.float32).reshape(3, 2))
        data = np.ones((3, 2), np.float32)
        assert (x * C.to_batch(weights)).eval({x: data}).tolist() == weights.value.tolist()
        assert C.to_batch(weights).eval().shape == (3, 2)

    def test_round_trip_with_another_number_of_samples(self):
        x = C.input_variable((2, 3))
        rows = C.to_batch(C.reshape(C.unpack_batch(x), (-1, 3)))
        data = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        assert rows.eval({x: data}).tolist() == data.reshape(8, 3).tolist()


def test_a_sparse_input_keeps_its_elements_in_another_shape():
    x = C.input_variable(6, is_sparse=True)
    data = np.eye(6, dtype=np.float32)[[4, 1]]
    assert C.reshape(x, (2, 3)).eval({x: data}).tolist() == data.reshape(2, 2, 3).tolist()
