"""Differences from CNTK 2.7 that random calls of both revealed; shapes, texts and numbers are CNTK's."""

import copy
import pickle

import numpy as np
import pytest

import cntkjax as C

F = np.float32
IMAGE = np.arange(12, dtype=F).reshape(1, 4, 3)


def x(*shape, name="x", **options):
    return C.input_variable(shape, name=name, **options)


class TestIndices:
    @pytest.mark.parametrize("bounds", [(None, None), (0, None), (None, None, 1)])
    def test_a_slice_without_begin_or_end_is_the_whole(self, bounds):
        a, key = x(4, 3), slice(*bounds)
        assert a[key] is a
        assert str(a[key, 1]) == "Slice(x: Tensor[4,3]) -> Tensor[4,1]"

    def test_a_stride_applies_to_a_slice_with_begin_or_end(self):
        a = x(4, 3)
        assert a[1::2].eval({a: IMAGE})[0, :, 0].tolist() == [3, 9]
        assert a[:3:2].eval({a: IMAGE})[0, :, 0].tolist() == [0, 6]

    def test_a_second_ellipsis_is_one_axis(self):
        assert x(4, 2, 4)[2:3, ..., ...].shape == (1, 2, 4)

    @pytest.mark.parametrize("key", [1.0, None, np.array([0, 1])])
    def test_an_invalid_index_is_an_index_error(self, key):
        with pytest.raises(IndexError, match="is not an index"):
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

    def test_softmax_and_hardmax_of_samples_go_along_all_axes(self):
        a = x(2, 2, 3)
        assert C.hardmax(a).eval({a: [self.VALUES]}).sum() == 1
        assert np.allclose(C.softmax(a).eval({a: [self.VALUES]}).sum(), 1)
        assert C.hardmax(C.constant(0)).eval() == 1


def test_the_bounds_of_clip_get_no_gradient():
    a, low, high = x(3, needs_gradient=True), C.parameter(3, init=0.3), C.parameter(3, init=0.6)
    gradients = C.clip(a, low, high).grad({a: [[0, 0.4, 1]]}, wrt=[a, low, high])
    assert [gradients[v].tolist() for v in (a, low, high)] == [[[0, 1, 0]], [0, 0, 0], [0, 0, 0]]


def test_flattening_before_the_batch_axis_gives_one_column():
    a = x(2, 3)
    f = C.flatten(a, C.Axis.default_batch_axis())
    assert f.shape == (6, 1) and f.eval({a: np.arange(6).reshape(1, 2, 3)}).ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_str_names_the_last_operation_if_its_first_operands_are_those_of_the_graph():
    a, b = x(4, 3, name="a"), x(4, 3, name="b")
    inner = C.sigmoid(b)
    assert str(b * inner) == "ElementTimes(b: Tensor[4,3]) -> Tensor[4,3]"
    assert str(inner * b) == "Composite(b: Tensor[4,3]) -> Tensor[4,3]"
    assert str(C.splice(a, b, inner)) == "Splice(a: Tensor[4,3], b: Tensor[4,3]) -> Tensor[4,9]"
    assert str(C.splice(a, inner, b)) == "Composite(a: Tensor[4,3], b: Tensor[4,3]) -> Tensor[4,9]"


def test_outputs_need_a_gradient_if_any_operand_does():
    a, s = x(3, needs_gradient=True), C.sequence.input_variable(1, needs_gradient=True)
    index = C.input_variable((), needs_gradient=True)
    functions = [C.argmax(a), C.gather(C.constant([1, 2]), index), C.to_sequence_like(x(3), s)]
    assert [f.output.needs_gradient for f in functions] == [True] * 3


def test_binary_operations_with_one_operand_are_type_errors():
    for op in (C.plus, C.element_times, C.log_add_exp, C.element_max):
        with pytest.raises(TypeError, match="at least two operands"):
            op(x(3))


@pytest.mark.parametrize("f", [C.swapaxes, C.expand_dims, C.top_k])
def test_axes_that_are_not_static_are_runtime_errors(f):
    with pytest.raises(RuntimeError, match="is not a static axis"):
        f(x(2, 3), 1, C.Axis.all_static_axes()) if f is not C.expand_dims else f(x(2, 3), C.Axis.default_batch_axis())


@pytest.mark.parametrize("error", [ValueError, TypeError])
@pytest.mark.parametrize("operand", [None, "a", {}, [None]])
def test_an_invalid_operand_is_a_value_error_and_a_type_error(operand, error):
    with pytest.raises(error, match="operand"):
        x(2) * operand


def test_the_shape_of_a_constant_applies_to_scalars_only():
    assert C.constant([1, 2], shape=(2, 2)).value.tolist() == [1, 2]
    assert C.constant(np.ones(2), (3,)).value.tolist() == [1, 1]
    assert C.constant(1, shape=(2, 2)).shape == (2, 2)


@pytest.mark.parametrize(
    "name, options", [("uniform", {"low": 2, "high": 1}), ("bernoulli", {"mean": 2}), ("normal", {"scale": -1})]
)
def test_invalid_distributions_are_runtime_errors(name, options):
    with pytest.raises(RuntimeError, match=name):
        getattr(C.random, name)(2, **options)


class TestPromisedLengths:
    VALUES, HOLDS = np.array([[[1, 2], [3, 4], [5, 6], [7, 8]]], F), np.array([[[1], [0], [0], [1]]], F)

    @pytest.mark.parametrize("promise", [(1, 0), [1, 0], (2, 0), (0, 2), (1, -2)])
    def test_gather_takes_the_steps_whatever_is_promised(self, promise):
        s, c = C.sequence.input_variable(2), C.sequence.input_variable(1)
        f = C.sequence.gather(s, c, promise)
        assert f.eval({s: self.VALUES, c: self.HOLDS})[0].tolist() == [[1, 2], [7, 8]]

    @pytest.mark.parametrize("promise", [(1, 0), (2, 0), (0, 2)])
    def test_scatter_restores_the_gathered_steps(self, promise):
        s, c = C.sequence.input_variable(2), C.sequence.input_variable(1)
        f = C.sequence.scatter(C.sequence.gather(s, c), c, promise)
        assert f.eval({s: self.VALUES, c: self.HOLDS})[0].tolist() == [[1, 2], [0, 0], [0, 0], [7, 8]]

    @pytest.mark.parametrize("promise", [1, (1,), (1, 0, 1), (-1, 0), (1.5, 0)])
    @pytest.mark.parametrize("f", [C.sequence.gather, C.sequence.scatter])
    def test_an_invalid_promise_is_an_error(self, f, promise):
        s = C.sequence.input_variable(1)
        with pytest.raises(TypeError, match=r"must be a pair \(non-negative factor, summand\)"):
            f(s, s, promise)

    def test_constants_are_gathered_and_scattered_at_every_step(self):
        c = C.sequence.input_variable(1)
        assert C.sequence.gather(C.constant([1, 2]), c).eval(self.HOLDS)[0].tolist() == [[1, 2], [1, 2]]
        assert C.sequence.scatter(C.constant([1]), c).eval(self.HOLDS)[0].tolist() == [[1], [0], [0], [1]]

    def test_one_value_per_sequence_is_gathered_at_its_only_step(self):
        a, c = x(2), C.sequence.input_variable(1)
        assert C.sequence.gather(a, c, (0, 1)).eval({a: [[3, 4]], c: self.HOLDS[:, :2]}).tolist() == [[3, 4]]

    def test_scattering_sequences_where_one_step_is_promised_is_an_error(self):
        s = C.sequence.input_variable(1)
        with pytest.raises(ValueError, match="promised to hold once"):
            C.sequence.scatter(s, s, (0, 1))


def test_splicing_one_operand_returns_it_without_a_name():
    f = C.splice(x(2, 3), axis=0, name="n")
    assert (f.name, f.root_function.op_name, f.output.name) == ("", "Combine", "x")


def test_a_scalar_broadcast_over_sequences_has_their_type():
    s = C.sequence.input_variable(1, np.float64)
    assert C.sequence.broadcast_as(1, s).dtype is np.float64


def test_broadcasting_as_sequences_of_another_type_is_an_error():
    s, a = C.sequence.input_variable(1, np.float64), x(1)
    with pytest.raises(ValueError, match="float32 and float64"):
        C.sequence.broadcast_as(a, s)


def test_generated_sequences_have_the_type_of_their_first_state():
    with C.default_options(dtype=np.float64):
        start, like = x(1, dtype=np.float64), C.sequence.input_variable(1, np.float64)
        f = C.layers.UnfoldFrom(lambda h: h * 2)(start, like)
    assert f.dtype is np.float64
    (value,) = f.eval({start: np.array([[1 + 2**-40]]), like: [np.zeros((2, 1))]})
    assert value.tolist() == [[2 + 2**-39], [4 + 2**-38]]


class TestEquality:
    def test_a_function_equals_its_only_output(self):
        z = C.relu(x(2))
        assert z == z.output and z.output == z and (z != z.output) is False
        assert z in [z.output] and z.output in [z] and z in C.abs(z).root_function.inputs
        assert [C.abs(x(2)), z].index(z.output) == 1

    def test_other_functions_are_unequal_and_the_output_has_another_hash(self):
        z = C.relu(x(2))
        assert z != z.root_function and z != C.combine(z) and z != x(2) and z != 1 and z is not None
        assert len({z, z.output}) == 2 and z not in {z.output: 1}

    def test_a_function_of_several_outputs_equals_none_of_them(self):
        z = C.relu(x(2))
        assert C.combine(z, C.abs(x(2))) != z.output


class TestIteration:
    @pytest.mark.parametrize("make", [lambda: x(), lambda: x(C.FreeDimension), lambda: C.placeholder()])
    @pytest.mark.parametrize("use", [list, iter, lambda v: dict([v])])
    def test_tensors_whose_first_axis_has_no_size_are_not_iterable(self, make, use):
        with pytest.raises(TypeError):
            use(make())

    @pytest.mark.parametrize("make", [lambda v: v, lambda v: v + 1])
    def test_tensors_iterate_over_their_first_axis(self, make):
        v, data = x(3, 2), np.arange(6, dtype=np.float32).reshape(1, 3, 2)
        expected = make(data)[0]
        rows = [row for _, row in zip(range(3), make(v), strict=False)]  # in CNTK, too
        first, _, last = make(v)
        assert [row.shape for row in rows] == [(1, 2)] * 3
        np.testing.assert_array_equal([row.eval({v: data})[0, 0] for row in rows], expected)
        np.testing.assert_array_equal((first * last).eval({v: data})[0, 0], expected[0] * expected[2])

    def test_a_function_of_several_outputs_iterates_over_them(self):
        one, other = C.combine(C.relu(x(2)), C.abs(x(2)))
        assert [one.owner.op_name, other.owner.op_name] == ["ReLU", "Abs"]


def test_arguments_of_a_wrong_type_are_reported_at_once():
    for wrong in (
        lambda: C.as_composite(x(2)), lambda: C.as_block(x(2), [], "b"), lambda: C.input_variable(2, dynamic_axes="s"),
        lambda: C.Trainer(None, C.reduce_sum(C.parameter(2)), 3),
    ):
        with pytest.raises(TypeError, match="takes a function|dynamic axes are a list|a learner or a list of learners"):
            wrong()


def test_a_stride_of_0_is_a_value_error():
    with pytest.raises(ValueError, match="have to be positive"):
        C.pooling(x(1, 4, 4), C.MAX_POOLING, (2, 2), (0, 0))


class TestRejectedArguments:
    @pytest.mark.parametrize("to_map", [2, 3, 5])
    def test_a_product_needs_an_axis_that_is_not_mapped(self, to_map):
        with pytest.raises(ValueError, match=f"{to_map} axes of the left operand are mapped"):
            C.times(x(2, 3), C.parameter((3, 4)), infer_input_rank_to_map=to_map)

    @pytest.mark.parametrize("shape", [(0, 6), (-1, 0)])
    def test_a_reshape_to_an_empty_shape(self, shape):
        with pytest.raises(ValueError, match="another number of elements"):
            C.reshape(x(2, 3), shape)

    @pytest.mark.parametrize("groups", [0, -1])
    def test_a_convolution_with_no_groups(self, groups):
        with pytest.raises(ValueError, match=f"groups = {groups} is not possible: it has to be"):
            C.convolution(C.parameter((4, 2, 3, 3)), x(2, 8, 8), groups=groups)

    @pytest.mark.parametrize("make", [C.constant, C.Constant])
    def test_a_constant_without_value_or_shape(self, make):
        with pytest.raises(ValueError, match="neither a value nor a shape"):
            make()

    def test_a_name_that_is_not_a_string(self):
        with pytest.raises(ValueError, match="name = 3 .* a str"):
            (x(2) * 2).find_by_name(3)

    @pytest.mark.parametrize("none", [C.sum, C.mean, lambda: C.sum([])])
    def test_a_sum_or_mean_without_operands(self, none):
        with pytest.raises(RuntimeError, match="needs at least one operand"):
            none()

    @pytest.mark.parametrize("make", [lambda: x(2), lambda: C.parameter(2), lambda: C.constant(1), C.placeholder])
    def test_the_owner_of_a_variable_that_is_not_an_output(self, make):
        with pytest.raises(RuntimeError, match="is not the output of a function"):
            make().owner  # noqa: B018
        assert (x(2) * 2).output.owner.op_name == "ElementTimes"


def test_a_function_supports_shallow_copies_only():
    f = C.layers.Dense(2)(x(3))
    assert copy.copy(f).parameters == f.parameters and copy.copy(f).outputs == f.outputs
    with pytest.raises(TypeError, match=r"use f.clone\('clone'\)"):
        copy.deepcopy(f)
    with pytest.raises(TypeError, match=r"use f.save\(file\)"):
        pickle.dumps(f)


@pytest.mark.parametrize("make", [
    lambda: x(2), lambda: C.parameter(2), lambda: C.constant(1), lambda: C.sgd([C.parameter(2)], 0.1),
])  # fmt: skip
def test_variables_and_learners_support_shallow_copies_only(make):
    one = make()
    assert copy.copy(one) is one
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"copied by copy.deepcopy or pickled, as in CNTK: keep"):
            attempt(one)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_of_a_value_stay_valid(copied):
    a = C.sequence.input_variable(1)
    f = a + 1
    data = [np.array([[1], [2]], F), np.array([[3]], F)]
    value = f.eval({a: data}, as_numpy=False)
    other = copied(value)
    f.eval({a: data})
    assert not value.is_valid
    assert [v.tolist() for v in other.as_sequences(a)] == [[[2], [3]], [[4]]]


class TestNumPy:
    """NumPy calls the operators of what it doesn't know; CNTK's cycle GANs take `np.abs(x - y)`."""

    def test_ufuncs_that_use_operators_return_nodes_with_gradients(self):
        a, w = x(2), C.Parameter(2, init=2)
        loss = C.reduce_sum(np.abs(-w) + np.square(w) + np.negative(a * w) + np.reciprocal(a))
        np.testing.assert_array_equal(loss.grad({a: F([[1, 2]])}, wrt=[w]), [4, 3])
        for number in (F([1, 2]), np.float64(1)):
            functions = [number + a, number - a * 1, number * w, number / a, np.add(number, a)]
            assert [f.shape for f in functions] == [(2,)] * 5

    def test_a_function_is_a_single_object_and_a_parameter_an_array_of_values(self):
        f, w = x(2) * 2, C.Parameter(2, init=2)
        assert np.asarray(f).shape == () and np.asarray(f).item() is f and not hasattr(f, "asarray")
        assert np.sqrt(w).tolist() == pytest.approx([2**0.5] * 2) and np.sum(w) == 4
        for function in (np.exp, np.isnan):
            with pytest.raises(TypeError):
                function(f)
        with pytest.raises(TypeError):
            np.mod(w, 2)

    def test_no_array_is_equal_to_a_tensor(self):
        a = x(2)
        assert (F([1, 2]) == a) is False and (a != F([1, 2])) is True
        assert a not in [F([1, 2]), np.float64(1)]
