"""What random calls of both found different from CNTK 2.7; shapes, texts and numbers are CNTK's."""

import numpy as np
import pytest

import cntkjax as C

F = np.float32
IMAGE = np.arange(12, dtype=F).reshape(1, 4, 3)


def x(*shape, name="x", **options):
    return C.input_variable(shape, name=name, **options)


class TestIndices:
    @pytest.mark.parametrize("bounds", [(None, None, 2), (0, None), (0, 0), (None, None, -1), (0, None, 2)])
    def test_without_a_beginning_or_an_end_nothing_is_sliced_whatever_the_stride(self, bounds):
        a, key = x(4, 3), slice(*bounds)
        assert a[key] is a
        assert str(a[key, 1]) == "Slice(x: Tensor[4,3]) -> Tensor[4,1]"

    def test_strides_count_where_a_slice_begins_or_ends(self):
        a = x(4, 3)
        assert a[1::2].eval({a: IMAGE})[0, :, 0].tolist() == [3, 9]
        assert a[:3:2].eval({a: IMAGE})[0, :, 0].tolist() == [0, 6]

    def test_a_second_ellipsis_is_one_axis(self):
        assert x(4, 2, 4)[2:3, ..., ...].shape == (1, 2, 4)

    @pytest.mark.parametrize("key", [1.0, None, np.array([0, 1])])
    def test_what_is_no_index_is_an_index_error(self, key):
        with pytest.raises(IndexError, match="is no index"):
            x(4, 3)[key]


def test_an_image_of_one_channel_is_scaled():
    a = x(1, 2, 2)
    assert C.image_scaler(a, 2, [1.0]).eval({a: np.ones((1, 1, 2, 2), F)}).tolist() == [[[[3, 3], [3, 3]]]]


class TestWithoutSamples:
    VALUES = [[[5, 2, 3], [4, 9, 0]], [[11, 7, 6], [1, 10, 8]]]

    def test_softmax_and_hardmax_of_constants_go_along_the_last_axis(self):
        constant = C.constant(np.array(self.VALUES, F))
        assert C.hardmax(constant).eval().argmax(-1).tolist() == [[0, 1], [0, 1]]
        assert np.allclose(C.softmax(constant * 1).eval().sum(-1), 1)
        assert np.allclose(C.softmax(constant).eval()[0, 0], [0.8437947, 0.0420101, 0.1141952])

    def test_of_samples_they_go_along_all_axes(self):
        a = x(2, 2, 3)
        assert C.hardmax(a).eval({a: [self.VALUES]}).sum() == 1
        assert np.allclose(C.softmax(a).eval({a: [self.VALUES]}).sum(), 1)
        assert C.hardmax(C.constant(0)).eval() == 1


def test_the_bounds_of_clip_get_no_gradient():
    a, low, high = x(3, needs_gradient=True), C.parameter(3, init=0.3), C.parameter(3, init=0.6)
    found = C.clip(a, low, high).grad({a: [[0, 0.4, 1]]}, wrt=[a, low, high])
    assert [found[v].tolist() for v in (a, low, high)] == [[[0, 1, 0]], [0, 0, 0], [0, 0, 0]]


def test_fmeasure_of_images_is_one_for_each_channel():
    a, b = x(2, 2, 2), x(2, 2, 2)
    assert [C.losses.fmeasure(x(*s), x(*s)).shape for s in ((3,), (2, 3), (2, 3, 4), (2, 2, 2, 2))] == [
        (), (), (2, 1, 1), ()
    ]
    data = {a: [[[[1, 0], [1, 0]], [[1, 1], [1, 1]]]], b: [[[[1, 1], [0, 0]], [[1, 1], [1, 1]]]]}
    assert C.losses.fmeasure(a, b).eval(data).ravel().tolist() == [0.5, 0]


@pytest.mark.parametrize(
    "score, gain, loss, gradient",
    [
        ([1, 2, 0.5], [2, 0, 1], 88.57686, [-0.23562214, 0.21584961, 0.01977252]),
        ([1, 2, 3, 4], [3, 2, 1, 0], 154.46906, [-0.42639077, -0.19442718, 0.03752109, 0.58329684]),
        ([1, 2, 3], [0, 1, 2], -183.94414, [0, 0, 0]),
    ],
)
def test_lambda_rank_takes_the_order_of_items_for_the_best(score, gain, loss, gradient):
    s, g, group = x(1, needs_gradient=True), x(1), x(1)
    f = C.lambda_rank(s, g, group)
    data = {s: np.reshape(score, (-1, 1)), g: np.reshape(gain, (-1, 1)), group: np.ones((len(gain), 1))}
    assert np.allclose(f.eval(data), loss) and np.allclose(f.grad(data, wrt=[s]).ravel(), gradient, atol=1e-6)


def test_one_column_before_the_batch_axis():
    a = x(2, 3)
    f = C.flatten(a, C.Axis.default_batch_axis())
    assert f.shape == (6, 1) and f.eval({a: np.arange(6).reshape(1, 2, 3)}).ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_text_names_the_last_operation_if_its_first_operands_are_those_of_the_graph():
    a, b = x(4, 3, name="a"), x(4, 3, name="b")
    inner = C.sigmoid(b)
    assert str(b * inner) == "ElementTimes(b: Tensor[4,3]) -> Tensor[4,3]"
    assert str(inner * b) == "Composite(b: Tensor[4,3]) -> Tensor[4,3]"
    assert str(C.splice(a, b, inner)) == "Splice(a: Tensor[4,3], b: Tensor[4,3]) -> Tensor[4,9]"
    assert str(C.splice(a, inner, b)) == "Composite(a: Tensor[4,3], b: Tensor[4,3]) -> Tensor[4,9]"


def test_outputs_need_a_gradient_if_any_operand_does():
    a, s = x(3, needs_gradient=True), C.sequence.input_variable(1, needs_gradient=True)
    index = C.input_variable((), needs_gradient=True)
    made = [C.argmax(a), C.gather(C.constant([1, 2]), index), C.to_sequence_like(x(3), s)]
    assert [f.output.needs_gradient for f in made] == [True] * 3


def test_delayed_sparse_data_are_dense():
    s = C.sequence.input_variable(3, is_sparse=True)
    assert not C.sequence.past_value(s).is_sparse


def test_operations_of_two_operands_are_type_errors_with_one():
    for op in (C.plus, C.element_times, C.log_add_exp, C.element_max):
        with pytest.raises(TypeError, match="at least two operands"):
            op(x(3))


@pytest.mark.parametrize("f", [C.swapaxes, C.expand_dims, C.top_k])
def test_axes_that_are_not_static_are_runtime_errors(f):
    with pytest.raises(RuntimeError, match="is no static axis"):
        f(x(2, 3), 1, C.Axis.all_static_axes()) if f is not C.expand_dims else f(x(2, 3), C.Axis.default_batch_axis())


@pytest.mark.parametrize("error", [ValueError, TypeError])
@pytest.mark.parametrize("operand", [None, "a", {}, [None]])
def test_what_is_no_operand_is_a_value_error_and_a_type_error(operand, error):
    with pytest.raises(error, match="operand"):
        x(2) * operand


def test_the_shape_of_a_constant_is_for_numbers_alone():
    assert C.constant([1, 2], shape=(2, 2)).value.tolist() == [1, 2]
    assert C.constant(np.ones(2), (3,)).value.tolist() == [1, 1]
    assert C.constant(1, shape=(2, 2)).shape == (2, 2)


@pytest.mark.parametrize(
    "name, options", [("uniform", {"low": 2, "high": 1}), ("bernoulli", {"mean": 2}), ("normal", {"scale": -1})]
)
def test_distributions_that_do_not_exist_are_runtime_errors(name, options):
    with pytest.raises(RuntimeError, match=name):
        getattr(C.random, name)(2, **options)


@pytest.mark.parametrize(
    "penalties, squash, one, other, expected",
    [
        ((0, 2, 2), True, [2, 2, 1, 0], [2, 2, 2, 1], 6),
        ((1, 1, 2), False, [2, 3, 2, 3], [3, 0, 3, 1], 4),
        ((2, 0, 0), True, [2, 0, 3], [0, 1, 1], 7.5),
    ],
)
def test_edits_that_cost_the_same_substitute_first_and_delete_last(penalties, squash, one, other, expected):
    a, b = C.sequence.input_variable(4), C.sequence.input_variable(4)
    one_hot = np.eye(4, dtype=F)
    f = C.edit_distance_error(a, b, *penalties, squashInputs=squash)
    assert np.isclose(f.eval({a: [one_hot[one]], b: [one_hot[other]]}), expected)
