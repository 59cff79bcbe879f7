"""The data of one stream of a minibatch, from values and arrays."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.io import MinibatchData


def test_minibatch_data_from_a_value():
    from cntkjax.core import Value

    data = MinibatchData(Value([np.ones((2, 3)), np.ones((1, 3))]), num_sequences=2, num_samples=3, sweep_end=True)
    assert (data.num_sequences, data.num_samples, data.end_of_sweep, data.shape) == (2, 3, True, (2, 2, 3))
    assert data.ragged.lengths.tolist() == [2, 1]
    assert data.data.asarray().shape == (2, 2, 3)


@pytest.mark.parametrize(("samples", "sequences"), [(1, 1), (4, 1), (4, 4)])
def test_minibatch_data_of_an_array_are_fed_like_the_array(samples, sequences):
    """One sample [*shape] is a sample, as a `Value` alone is; CNTK counts as it is told."""
    data = MinibatchData(C.Value(batch=np.array([1, 2, 3], "f")), sequences, samples, True)
    assert (data.shape, data.asarray().shape) == ((3,), (3,))
    assert (len(data), data.num_samples, data.end_of_sweep) == (sequences, samples, True)
    x, s = C.input_variable(3), C.sequence.input_variable(3)
    np.testing.assert_array_equal(C.alias(x).eval({x: data}), [[1, 2, 3]])
    np.testing.assert_array_equal(C.alias(s).eval({s: data}), [[[1, 2, 3]]])


def test_minibatch_data_of_an_array_of_steps_are_one_sequence():
    s = C.sequence.input_variable(3)
    data = MinibatchData(C.Value(batch=np.ones((4, 3), "f")), 1, 4, False)
    assert [sequence.shape for sequence in C.alias(s).eval({s: data})] == [(4, 3)]


def test_a_source_may_give_one_sample_without_a_batch_axis():
    """Weights of CNTK 2.7 after three minibatches of one sample."""

    class OneSample(C.io.UserMinibatchSource):
        x = C.io.StreamInformation("x", 0, "dense", np.float32, (3,))
        y = C.io.StreamInformation("y", 1, "dense", np.float32, (1,))

        def stream_infos(self):
            return [self.x, self.y]

        def next_minibatch(self, *options):
            return {
                self.x: MinibatchData(C.Value(batch=np.array([1, 2, 3], "f")), 1, 1, True),
                self.y: MinibatchData(C.Value(batch=np.array([1], "f")), 1, 1, True),
            }

    x, y, w = C.input_variable(3), C.input_variable(1), C.parameter(3)
    model = C.reduce_sum(x * w)
    trainer = C.Trainer(model, (C.squared_error(model, y), None), [C.sgd([w], C.learning_parameter_schedule(0.1))])
    streams = {x: OneSample.x, y: OneSample.y}
    C.training_session(trainer, OneSample(), mb_size=1, model_inputs_to_streams=streams, max_samples=3).train()
    assert trainer.total_number_of_samples_seen == 3
    np.testing.assert_allclose(w.value, [0.488, 0.976, 1.464], rtol=1e-6)


def test_data_that_a_reader_has_read_may_be_replaced(tmp_path):
    """As programs do that transform images after a reader; numbers of samples stay as they were read, as in CNTK."""
    (tmp_path / "data.txt").write_text("0 |x 1\n0 |x 2\n1 |x 3\n")
    streams = C.io.StreamDefs(x=C.io.StreamDef("x", 1))
    source = C.io.MinibatchSource(C.io.CTFDeserializer(str(tmp_path / "data.txt"), streams), randomize=False)
    x = C.sequence.input_variable(1)
    minibatch = source.next_minibatch(3, {x: source.streams.x})
    array = minibatch[x].data.data.asarray().copy()
    array[0, 0] = 10
    minibatch[x].data = C.Value(C.NDArrayView.from_dense(array))
    assert (minibatch[x].num_samples, minibatch[x].num_sequences) == (3, 2)
    z = C.sequence.reduce_sum(x)
    np.testing.assert_array_equal(z.eval({x: minibatch[x]})[0], [12])
    np.testing.assert_array_equal(z.eval({x: minibatch[x].data})[0], [12])
    with pytest.raises(TypeError, match="has to be a Value, not ndarray"):
        minibatch[x].data = array
