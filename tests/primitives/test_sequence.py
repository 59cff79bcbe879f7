"""Sequences unpacked to arrays, and arrays as sequences."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence as S
from tests.ops.test_sequence import assert_equal, chosen, positive


class TestUnpacking:
    x = S.input_variable(2, needs_gradient=True)
    xs = [np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[7, 8]], np.float32)]

    def test_gives_steps_as_the_first_axis_and_a_mask(self):
        steps, mask = S.unpack(self.x, -1).outputs
        assert steps.shape == (C.FreeDimension, 2) and mask.shape == (C.FreeDimension,)
        values = C.combine(steps, mask).eval({self.x: self.xs})
        np.testing.assert_array_equal(values[steps], [self.xs[0], [[7, 8], [-1, -1], [-1, -1]]])
        np.testing.assert_array_equal(values[mask], [[1, 1, 1], [1, 0, 0]])

    def test_has_as_many_steps_as_the_longest_sequence_of_each_minibatch(self):
        f = S.unpack(self.x, 0, no_mask_output=True)
        for longest in (2, 5, 3, 4):
            lengths = [longest, 1]
            assert f.eval({self.x: [np.ones((n, 2), np.float32) for n in lengths]}).shape == (2, longest, 2)

    def test_a_slice_has_as_many_steps_as_it_promises(self):
        xs = [np.ones((n, 2), np.float32) for n in (5, 2, 4)]
        for begin, end, steps in ((1, 0, 4), (0, -1, 4), (0, 2, 2), (-3, 0, 3)):
            f = S.unpack(S.slice(self.x, begin, end), 0, no_mask_output=True)
            assert f.eval({self.x: xs}).shape == (3, steps, 2)

    def test_is_undone_by_to_sequence(self):
        steps, mask = S.unpack(self.x, 0).outputs
        lengths = C.reduce_sum(mask)
        assert_equal(C.to_sequence(steps, lengths).eval({self.x: self.xs}), self.xs)
        assert_equal(C.to_sequence_like(steps, self.x).eval({self.x: self.xs}), self.xs)
        assert_equal(C.square(C.to_sequence_like(steps, self.x)).grad({self.x: self.xs}), [2 * s for s in self.xs])

    def test_sequences_of_other_lengths_of_the_same_array_have_another_axis(self):
        steps, mask = S.unpack(self.x, 0).outputs
        lengths = C.reduce_sum(mask)
        whole, shorter = C.to_sequence(steps, lengths), C.to_sequence(steps, lengths - 1)
        assert whole.dynamic_axes != shorter.dynamic_axes
        assert whole.dynamic_axes == C.to_sequence(steps, lengths).dynamic_axes
        xs = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) for n in (3, 2)]
        lasts = C.splice(S.last(whole), S.last(shorter)).eval({self.x: xs})
        np.testing.assert_array_equal(lasts, [[4, 5, 2, 3], [2, 3, 0, 1]])

    def test_data_may_be_fed_along_the_axis_of_to_sequence(self, grid):
        steps, mask = S.unpack(self.x, 0).outputs
        sequences = C.to_sequence(steps, C.reduce_sum(mask))
        y = C.input_variable(2, dynamic_axes=sequences.dynamic_axes, needs_gradient=True)
        f, random = sequences * y, np.random.default_rng(0)
        for lengths in ((3, 1, 4), (5, 3, 1, 6), (2, 2)):
            xs, ys = ([random.normal(size=(n, 2)).astype(np.float32) for n in lengths] for _ in range(2))
            assert_equal(f.eval({self.x: xs, y: ys}), [a * b for a, b in zip(xs, ys, strict=True)])
            assert_equal(f.grad({self.x: xs, y: ys}, wrt=[y]), xs)

    @pytest.mark.parametrize("whole_first", [True, False])
    def test_all_steps_of_an_array_are_sequences_of_other_lengths(self, whole_first):
        x, lengths = C.input_variable((3, 2)), C.input_variable(())
        makers = [lambda: C.to_sequence(x), lambda: C.to_sequence(x, lengths)]
        made = [make() for make in (makers if whole_first else makers[::-1])]
        whole, shorter = made if whole_first else made[::-1]
        array = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
        values = C.combine(whole, shorter).eval({x: array, lengths: [2, 1]})
        assert_equal(values[whole.output], array)
        assert_equal(values[shorter.output], [array[0, :2], array[1, :1]])

    @pytest.mark.parametrize("select, reference", [
        (lambda x: S.slice(x, 0, -1), lambda x: x[:-1]), (lambda x: S.slice(x, 0, 2), lambda x: x[:2]),
        (lambda x: S.slice(x, 1, 0), lambda x: x[1:]), (lambda x: S.slice(x, -2, 0), lambda x: x[-2:]),
        (lambda x: S.gather(x, positive(x)), chosen), (lambda x: S.gather(x, positive(x), (1, -1)), chosen),
    ])
    def test_data_may_be_fed_along_the_axis_of_selected_steps(self, select, reference, grid):
        steps = select(self.x)
        y = C.input_variable(2, dynamic_axes=steps.dynamic_axes)
        xs = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) for n in (3, 2, 5)]
        ys = [reference(x) for x in xs]
        assert_equal((steps - y).eval({self.x: xs, y: ys}), [np.zeros_like(y) for y in ys])

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)], ids=str)
    def test_a_condition_is_one_number_of_any_rank(self, shape, tmp_path):
        x, c = S.input_variable(2, name="x", needs_gradient=True), S.input_variable(shape, name="c")
        twice = C.constant(np.full(shape, 2, np.float32))
        picked = S.gather(x, c)
        f = C.combine(S.where(c), picked, S.scatter(picked, c), S.where(S.broadcast_as(twice, x)))
        assert [v.shape for v in f.outputs] == [(), (2,), (2,), ()]
        xs = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) for n in (5, 2)]
        cs = [np.array([0, 1, 1, 0, 1]), np.array([1, 0])]
        f.save(tmp_path / "model")
        for g in (f, C.load_model(tmp_path / "model")):
            feed = {"x": xs, "c": [c.reshape(-1, *shape) for c in cs]}
            steps, values, spread, repeated = g.eval({v: feed[v.name] for v in g.arguments}).values()
            assert_equal(steps, [[1, 2, 4], [0]])  # CNTK's numbers
            assert_equal(values, [x[c > 0] for x, c in zip(xs, cs, strict=True)])
            assert_equal(spread, [x * c[:, None] for x, c in zip(xs, cs, strict=True)])
            assert_equal(repeated, [[0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 0, 1, 1]])
        gradients = S.scatter(picked, c).grad({x: xs, c: feed["c"]}, [x])
        assert_equal(gradients, [np.repeat(c[:, None], 2, 1) for c in cs])

    def test_a_condition_of_two_numbers_a_step_is_rejected(self):
        with pytest.raises(ValueError, match="one number for each step"):
            S.gather(self.x, S.input_variable((2, 1)))

    def test_inputs_along_such_an_axis_follow_a_clone(self):
        """CNTK clones them too, and computes the same."""
        def criterion():
            x = S.input_variable(1)
            steps = C.layers.SequentialConvolution(3, 1, pad=True, init=0.5)(x)
            chosen = S.gather(x, C.greater(x, 0.3))
            y, z = (C.input_variable(1, dynamic_axes=v.dynamic_axes) for v in (steps, chosen))
            return C.combine(C.squared_error(steps, y), chosen - z)

        f = criterion()
        data = np.array([[0.1], [0.5], [0.9]], np.float32)
        for g in (f, f.clone("clone"), f.clone("share").clone("freeze")):
            x, y, z = g.arguments
            values = g.eval({x: [data], y: [data], z: [data[1:]]})
            assert_equal(values[g.outputs[0]], [[0.04, 0.0625, 0.04]])
            assert_equal(values[g.outputs[1]], [[[0], [0]]])

    def test_labels_may_be_fed_along_the_axis_of_a_convolution_over_steps(self):
        """The losses are CNTK 2.7's."""
        x = S.input_variable(1)
        model = C.layers.SequentialConvolution(3, 1, pad=True, init=0.5)(x)
        y = C.input_variable(1, dynamic_axes=model.dynamic_axes)
        loss = C.squared_error(model, y)
        trainer = C.Trainer(model, (loss, None), [C.sgd(model.parameters, 0.1)])
        losses = []
        for lengths in ((3, 1, 4), (5, 3, 1, 6)):
            sequences = [np.arange(n, dtype=np.float32).reshape(n, 1) / 4 for n in lengths]
            trainer.train_minibatch({x: sequences, y: sequences})
            losses.append(trainer.previous_minibatch_loss_average)
        np.testing.assert_allclose(losses, [0.01953125, 0.04730242], rtol=1e-6)

    def test_a_sequence_is_not_longer_than_its_array(self):
        """CNTK has errors of the same type."""
        for shape in ((3, 2), (C.FreeDimension, 2)):
            x, lengths = C.input_variable(shape), C.input_variable(())
            array, f = np.ones((2, 3, 2), np.float32), C.to_sequence(x, lengths)
            assert list(map(len, f.eval({x: array, lengths: [3, 1]}))) == [3, 1]
            for wrong in ([4, 1], [3, -1]):
                with pytest.raises(ValueError, match="to be made of arrays of 3"):
                    f.eval({x: array, lengths: wrong})
            with pytest.raises(ValueError, match=r"\[4, 1\] steps are to be made of arrays of 3"):
                C.to_sequence_like(x, self.x).eval({x: array, self.x: [np.ones((n, 2), np.float32) for n in (4, 1)]})

    def test_an_array_has_as_many_steps_as_the_longest_sequence(self):
        """As in CNTK, which has an error of the same type."""
        for shape in ((5, 2), (C.FreeDimension, 2)):
            x = C.input_variable(shape)
            f = C.to_sequence_like(x * 2, self.x) if shape[0] == 5 else C.to_sequence_like(x, self.x)
            array = np.ones((2, 5, 2), np.float32)
            for lengths in (5, 2), (5, 5):
                steps = f.eval({x: array, self.x: [np.ones((n, 2), np.float32) for n in lengths]})
                assert tuple(map(len, steps)) == lengths
            with pytest.raises(ValueError, match=r"first dimension.* 5, does not match the longest sequence.* 3"):
                f.eval({x: array, self.x: [np.ones((n, 2), np.float32) for n in (3, 2)]})

    def test_its_outputs_have_names(self):
        assert [v.name for v in S.unpack(self.x, 0, name="steps").outputs] == ["steps", "steps_UnpackSequenceMask"]

    def test_of_a_placeholder_has_a_shape_from_which_others_are_inferred(self):
        """An attention layer of CNTK's Polymath: without it, the product took the shape of its other operand."""
        steps, mask = S.unpack(C.placeholder(shape=(3,)), 0).outputs
        assert (steps.shape, mask.shape) == ((C.FreeDimension, 3), (C.FreeDimension,))
        assert C.reduce_sum(C.placeholder(shape=(3,)) * steps, axis=1).shape == (C.FreeDimension, 1)
        assert C.to_sequence(C.placeholder(shape=(4, 3))).shape == (3,)

    def test_a_reduction_compiles_once_for_lengths_that_are_near(self):
        from cntkjax.engine.run.program_cache import programs

        f = S.reduce_sum(self.x)
        programs.clear()
        for n in (20, 19, 18, 17, 20, 16):
            f.eval({self.x: [np.ones((n, 2), np.float32), np.ones((3, 2), np.float32)]})
        (program,) = programs
        assert len(program.executables) == 1
