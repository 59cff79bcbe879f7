"""Packing of feeds into the arrays of a program."""

import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.data.ragged import Ragged, SparseRows
from cntkjax.engine.lower.carry import Memory
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.minibatch import MinibatchPacker, arguments_in_order, gather_rows, pad_rows, shape_key
from cntkjax.graph.errors import AxisError, BatchSizeError

DATA = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
def test_padding_repeats_a_sample(as_array):
    x = C.input_variable(2)
    assert pad_rows(as_array(DATA), 3, x).shape == (3, 2)
    padded = np.asarray(pad_rows(as_array(DATA), 5, x))
    np.testing.assert_array_equal(padded[:3], DATA)
    assert all(any((row == sample).all() for sample in DATA) for row in padded[3:])


def test_sparse_samples_are_padded_to_a_common_number_of_elements():
    x = C.input_variable(4, is_sparse=True)
    array = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]], np.float32)
    packed = gather_rows(SparseRows.from_dense(array), np.array([[2, 0], [1, 0]]), x)
    np.testing.assert_array_equal(packed.todense(), array[[[2, 0], [1, 0]]])
    one_hot = pad_rows(SparseRows.from_dense(np.eye(4, dtype=np.float32)), 4, x)
    assert one_hot.is_one_hot and shape_key(one_hot) != shape_key(packed)


def test_one_hot_samples_take_the_form_that_others_need_once_there_is_such_a_program():
    x = C.input_variable(4, is_sparse=True)
    plan = Plan([C.times(x, np.eye(4, dtype=np.float32)).output])

    def packed(packer, array):
        return packer.pack(plan, [Ragged(SparseRows.from_dense(np.float32(array)), None)], Memory()).arguments[0]

    two, one = [[0, 1, 0, 0], [0, 0, 0, 0]], [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert packed(MinibatchPacker(plan), one).is_one_hot
    packer = MinibatchPacker(plan)
    assert not packed(packer, two).is_one_hot and not packed(packer, one).is_one_hot
    np.testing.assert_array_equal(packed(packer, one).todense(), one)


def test_equal_shapes_have_equal_signatures():
    x = C.sequence.input_variable(2)
    plan = Plan([C.sequence.reduce_sum(x).output])
    packer = MinibatchPacker(plan)

    def signature(lengths):
        data = np.zeros((sum(lengths), 2), np.float32)
        return packer.pack(plan, [Ragged(data, np.array(lengths, np.int32))], Memory()).signature

    assert signature([2, 1]) == signature([1, 2]) != signature([200, 100])


def test_samples_are_counted_on_the_host():
    x = C.sequence.input_variable(2)
    plan = Plan([C.plus(x, 1).output])
    minibatch = MinibatchPacker(plan).pack(plan, [Ragged(DATA, np.array([2, 1], np.int32))], Memory())
    assert minibatch.count == 2
    assert [minibatch.samples(axes) for axes in (x.dynamic_axes, x.dynamic_axes[:1], ())] == [3, 2, 1]
    assert minibatch.samples(C.sequence.input_variable(2, sequence_axis=C.Axis("other")).dynamic_axes) is None


@pytest.mark.parametrize(
    "lengths, shares, expected",
    [
        ([3, 3, 3, 3, 3, 3], 3, [2, 2, 2]),
        ([9, 1, 2, 3, 1, 2], 2, [1, 5]),
        ([1, 2, 3, 1, 2, 9], 2, [5, 1]),
        ([1, 1, 50, 1, 1], 3, [2, 1, 2]),
        ([50, 1, 1], 3, [1, 1, 1]),
        ([3, 3, 0, 0], 2, [1, 3]),
    ],
)
def test_devices_get_about_as_many_samples_each(lengths, shares, expected):
    """Not as many sequences: their shares run in one shape, which the largest decides on."""
    x = C.sequence.input_variable(1)
    plan = Plan([C.sequence.reduce_sum(x).output])
    data = np.arange(sum(lengths), dtype=np.float32).reshape(-1, 1)
    feed = Ragged(data, np.array(lengths, np.int32))
    first = MinibatchPacker(plan).pack(plan, [feed], Memory(), shares=shares)
    assert [share.count for share in (first, *first.others)] == expected


def test_devices_get_as_many_sequences_each_where_each_has_a_row():
    x = C.sequence.input_variable(1)
    plan = Plan([C.sequence.unpack(x, 0, no_mask_output=True).output])
    feed = Ragged(np.zeros((12, 1), np.float32), np.array([9, 1, 1, 1], np.int32))
    first = MinibatchPacker(plan).pack(plan, [feed], Memory(), shares=2)
    assert [share.count for share in (first, *first.others)] == [2, 2]


def test_feeds_that_do_not_agree_raise():
    x, y = C.sequence.input_variable(2), C.sequence.input_variable(2)
    plan = Plan([C.plus(x, y).output])
    packer = MinibatchPacker(plan)

    def feed(*lengths):
        return Ragged(np.zeros((sum(lengths), 2), np.float32), np.array(lengths, np.int32))

    with pytest.raises(AxisError, match=r"\[1, 2\] against \[2, 1\]"):
        packer.pack(plan, [feed(2, 1), feed(1, 2)], Memory())
    with pytest.raises(BatchSizeError, match="different numbers of sequences"):
        packer.pack(plan, [feed(2, 1), feed(3)], Memory())
    with pytest.raises(ValueError, match="no data are fed for argument"):
        arguments_in_order(plan, {x: feed(1)})
