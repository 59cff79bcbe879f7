"""Random tensors, dropout and samples: distributions, seeds, streams."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import random
from cntkjax.graph.mersenne import MersenneTwister64

DISTRIBUTIONS = [
    (lambda n: random.uniform(n, low=-1, high=3, seed=1), 1.0, 4 / np.sqrt(12)),
    (lambda n: random.normal(n, mean=2, scale=3, seed=1), 2.0, 3.0),
    (lambda n: random.gumbel(n, loc=1, scale=2, seed=1), 1 + 2 * 0.57721566, 2 * np.pi / np.sqrt(6)),
    (lambda n: random.bernoulli(n, mean=0.3, seed=1), 0.3, np.sqrt(0.21)),
]


@pytest.mark.parametrize(("make", "mean", "deviation"), DISTRIBUTIONS, ids=["uniform", "normal", "gumbel", "bernoulli"])
class TestDistributions:
    def test_mean_and_standard_deviation_are_as_requested(self, make, mean, deviation):
        drawn = make(20000).eval()
        assert abs(drawn.mean() - mean) < 4 * deviation / np.sqrt(20000)
        assert abs(drawn.std() / deviation - 1) < 0.05

    def test_two_evaluations_equal_one_of_twice_the_size(self, make, mean, deviation):
        half = make(50)
        np.testing.assert_array_equal(np.concatenate([half.eval(), half.eval()]), make(100).eval())


@pytest.mark.parametrize(("make", "second"), [  # CNTK 2.7, its second evaluation
    (lambda: random.uniform(3, low=-1, high=3, seed=5), [1.7037288, -0.63853246, -0.614630282]),
    (lambda: random.normal(3, mean=2, scale=3, seed=1), [-0.213366836, 7.33840466, 0.334120184]),
    (lambda: random.gumbel(3, loc=1, scale=2, seed=5), [0.761232078, 5.71378803, 5.57924318]),
    (lambda: random.bernoulli(6, mean=0.4, seed=5), [0, 1, 1, 0, 0, 0]),
], ids=["uniform", "normal", "gumbel", "bernoulli"])
def test_numbers_in_a_given_shape_are_those_of_cntk(make, second, tmp_path):
    drawn = make()
    drawn.eval()
    drawn.save(tmp_path / "drawn.model")
    for again in (drawn, C.load_model(tmp_path / "drawn.model")):  # the model file holds the number of draws
        np.testing.assert_allclose(again.eval(), np.float32(second), rtol=2e-7)


def test_the_backward_pass_uses_the_numbers_of_the_forward_pass():
    x, y = (C.input_variable(1000, needs_gradient=True, name=name) for name in "xy")
    first, second = C.dropout(x, 0.5, seed=1), C.dropout(y, 0.5, seed=2)
    both = C.combine([first, second])
    ones = np.ones((1, 1000), np.float32)
    state, values = both.forward({x: ones, y: ones}, [first.output, second.output], {first.output, second.output})
    gradients = both.backward(state, {second.output: ones}, {y})
    np.testing.assert_array_equal(gradients[y], values[second.output])


def test_like_takes_shape_axes_and_type():
    x = C.sequence.input_variable((2, 3), np.float64)
    drawn = random.normal_like(x, seed=1)
    assert (drawn.shape, drawn.dtype, drawn.dynamic_axes) == ((2, 3), np.float64, x.dynamic_axes)
    data = {x: [np.zeros((2, 2, 3)), np.zeros((1, 2, 3))]}
    first, second = drawn.eval(data), drawn.eval(data)
    assert [f.shape for f in first] == [(2, 2, 3), (1, 2, 3)] and not np.array_equal(first[0], second[0])


@pytest.mark.parametrize("make", [
    lambda: random.uniform(2, low=2, high=1), lambda: random.normal(2, scale=-1), lambda: random.bernoulli(2, mean=2),
    lambda: random.gumbel(2, scale=-1), lambda: random.uniform((2, C.FreeDimension)),
    lambda: random.normal(2, dtype=np.float16),
], ids=range(6))
def test_invalid_arguments_are_errors(make):
    with pytest.raises((RuntimeError, ValueError)):
        make()


STEPS, SAMPLES = C.sequence.input_variable(3), C.input_variable((2, 2))
SEQUENCES = {STEPS: [np.ones((n, 3), np.float32) for n in (1, 3, 2, 4, 1, 1, 5, 2)]}  # four rows in CNTK's grid


def dropout(x):
    return C.dropout(x, 0.3, seed=12, name="dropped")


def dropout_in_a_loop(delay):
    state = C.placeholder((3,))
    f = dropout(STEPS + 0 * delay(state))
    return f.replace_placeholder(f.output)


NUMBERS_OF_CNTK = {  # what two evaluations keep, of CNTK 2.7
    "sequences": (lambda: dropout(STEPS), SEQUENCES, [
        "010111010101111111001011011111111111011111110111110110001",
        "111001011111111011000110111111110111111011110111111011011"]),
    "a loop": (lambda: dropout_in_a_loop(C.sequence.past_value), SEQUENCES, [
        "010111010101111111001011011111111111011111110111110110001",
        "111001011111111011000110111111110111111011110111111011011"]),
    "a loop from the last step on": (lambda: dropout_in_a_loop(C.sequence.future_value), SEQUENCES, [
        "111101010111001110110111011011010111110111110111011111111",
        "110111011001011011101111111110111111111111110011111011111"]),
    "a value for each sequence": (lambda: dropout(C.sequence.last(STEPS)), SEQUENCES, [
        "010111001011111111011111", "010111011110101110111111"]),
    "samples": (lambda: dropout(SAMPLES), {SAMPLES: np.ones((3, 2, 2), np.float32)}, ["010111001011", "111111011111"]),
    "a parameter": (lambda: dropout(C.parameter(5, init=1)), {}, ["01011", "10010"]),
}


def test_numbers_like_those_of_sequences_are_those_of_cntk():
    feeds = {STEPS: SEQUENCES[STEPS][:3]}
    uniform, normal = (draw(STEPS, seed=12).eval(feeds) for draw in (random.uniform_like, random.normal_like))
    np.testing.assert_allclose(uniform[1], np.float32([
        [0.67154700, 0.80108559, 0.60381991], [0.18323641, 0.53980261, 0.83258098],
        [0.70511699, 0.79013711, 0.39207470],
    ]), 1e-6)
    np.testing.assert_allclose(uniform[2], np.float32([
        [0.28774920, 0.16629320, 0.81011999], [0.33457270, 0.62677801, 0.38982299],
    ]), 1e-6)
    np.testing.assert_allclose(normal[2], np.float32([
        [0.07836010, 0.61101741, -0.31432131], [1.20232141, -0.29401651, 1.28398490],
    ]), 1e-6)


def test_a_checkpoint_holds_how_many_numbers_dropout_has_drawn(tmp_path):
    """A trainer's tests draw none. Losses are those of CNTK 2.7."""
    w = C.parameter((2, 2), init=1)
    loss = C.reduce_sum(dropout(SAMPLES * w))
    trainer = C.Trainer(None, (loss, loss), C.sgd([w], 0))
    feeds = {SAMPLES: np.ones((3, 2, 2), np.float32)}

    def kept():
        trainer.train_minibatch(feeds)
        return round(trainer.previous_minibatch_loss_average * 3 * 0.7)

    first, second = kept(), kept()
    trainer.test_minibatch(feeds)
    trainer.save_checkpoint(str(tmp_path / "t"))
    assert loss.find_by_name("dropped").root_function.attributes["rngOffset"] == 24
    third = kept()
    trainer.restore_from_checkpoint(str(tmp_path / "t"))
    assert (first, second, third, kept()) == (7, 11, third, third)


def test_dropout_of_pieces_of_sequences_is_that_of_cntk(tmp_path):
    """The reader cuts sequences into pieces of four steps, three side by side. Losses are those of CNTK 2.7."""
    steps = [(s, t) for s, n in enumerate([5, 2, 9, 1, 1, 12, 3, 6, 2]) for t in range(n)]
    lines = [f"{s} |x {0.1 * s + 0.3 * t:.2f} {1 - 0.05 * t * s:.2f}\n" for s, t in steps]
    (tmp_path / "x.ctf").write_text("".join(lines))
    deserializer = C.io.CTFDeserializer(str(tmp_path / "x.ctf"), C.io.StreamDefs(x=C.io.StreamDef("x", 2)))
    source = C.io.MinibatchSource(deserializer, randomize=False, truncation_length=4)
    x, w, state = C.sequence.input_variable(2), C.parameter(2, init=1), C.placeholder(2)
    f = C.dropout(x * w + 0.5 * C.sequence.past_value(state), 0.3, seed=9)
    loss = C.reduce_sum(f.replace_placeholder(f.output))
    trainer, losses = C.Trainer(None, (loss, loss), C.sgd([w], 0.01)), []
    for _ in range(6):
        trainer.train_minibatch(source.next_minibatch(12, {x: source.streams.x}))
        losses.append(trainer.previous_minibatch_loss_average)
    np.testing.assert_allclose(losses, [1.6288, 2.579, 1.5596, 1.4973, 2.9839, 3.9098], atol=1e-4)


class TestDropout:
    def test_in_training_elements_are_dropped_and_the_mean_stays(self):
        x = C.input_variable(1000, needs_gradient=True)
        gradient = C.dropout(x, 0.25, seed=1).grad({x: np.ones((10, 1000), np.float32)})
        assert set(np.unique(gradient)) == {0, np.float32(1 / 0.75)}
        assert abs((gradient == 0).mean() - 0.25) < 0.02

    def test_each_evaluation_drops_other_elements_and_a_seed_repeats_them(self):
        x = C.input_variable(100, needs_gradient=True)
        ones = {x: np.ones((1, 100), np.float32)}
        one, same, different = (C.dropout(x, 0.5, seed=s) for s in (1, 1, 2))
        first, second = one.grad(ones), one.grad(ones)
        assert not np.array_equal(first, second) and not np.array_equal(first, different.grad(ones))
        np.testing.assert_array_equal(first, same.grad(ones))

    @pytest.mark.parametrize("kind", NUMBERS_OF_CNTK)
    def test_on_a_cpu_it_drops_what_cntk_drops(self, kind):
        make, feeds, numbers = NUMBERS_OF_CNTK[kind]
        f = make()
        for expected in numbers:
            values = next(iter(f.forward(feeds, [f.output], {f.output})[1].values()))
            kept = np.concatenate([np.ravel(v) for v in values]) != 0
            assert "".join(map(str, kept.astype(int))) == expected

    def test_outside_of_training_dropout_is_the_identity(self):
        x = C.input_variable(3)
        assert C.dropout(x, 0.5).eval({x: [[1, 2, 3]]}).tolist() == [[1, 2, 3]]

    @pytest.mark.parametrize("rate", [1.0, -0.5])
    def test_an_invalid_rate_is_an_error(self, rate):
        with pytest.raises(ValueError, match="dropout_rate"):
            C.dropout(C.input_variable(3), rate)


class TestSamples:
    WEIGHTS = np.array([1, 2, 3, 4, 10], np.float32)

    def test_samples_with_duplicates_follow_the_weights(self):
        drawn = C.random_sample(self.WEIGHTS, 4000, True, seed=1).eval().toarray()
        assert drawn.shape == (4000, 5) and (drawn.sum(1) == 1).all()
        np.testing.assert_allclose(drawn.mean(0), self.WEIGHTS / 20, atol=0.03)

    def test_samples_without_duplicates_differ(self):
        drawn = C.random_sample(self.WEIGHTS, 4, False, seed=1)
        for _ in range(5):
            assert (drawn.eval().sum(0) <= 1).all()

    def test_samples_select_rows(self):
        W = C.parameter(init=np.arange(10, dtype=np.float32).reshape(5, 2))
        assert C.times(C.random_sample([0, 0, 1, 0, 0], 2, True), W).eval().tolist() == [[4, 5], [4, 5]]

    def test_expected_frequencies_match_the_samples(self):
        often = C.random_sample_inclusion_frequency(self.WEIGHTS, 3, True).eval()
        np.testing.assert_allclose(often, [0.15, 0.3, 0.45, 0.6, 1.5], rtol=1e-6)
        once = C.random_sample_inclusion_frequency(C.parameter(init=self.WEIGHTS), 3, False).eval()
        np.testing.assert_allclose(once.sum(), 3, rtol=1e-4)
        np.testing.assert_allclose(once, [0.242, 0.434, 0.584, 0.700, 0.976], atol=0.03)

    @pytest.mark.parametrize("duplicates", [True, False])
    def test_a_reshaped_constant_gives_the_samples_of_cntk(self, duplicates):
        weights = C.Constant(np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32))
        row = C.reshape(weights, (1, 8))  # sampled softmax in CNTK's tutorials passes this
        samples = C.random_sample(row, 3, duplicates, 7)
        assert [samples.eval().indices.tolist() for _ in range(2)] == [[6, 7, 1], [7, 2, 0]]  # CNTK's
        frequencies = C.random_sample_inclusion_frequency(row, 3, duplicates, 7).eval()
        third = 3 / 31 if duplicates else 0.11715
        assert frequencies.shape == (1, 8) and frequencies[0, 1] == pytest.approx(third, rel=1e-4)

    def test_frequencies_of_constant_weights_are_sampled_as_in_cntk(self, tmp_path):
        tried = C.random_sample_inclusion_frequency(self.WEIGHTS, 3, False, seed=1)
        for _ in range(2):  # CNTK 2.7
            np.testing.assert_allclose(tried.eval(), [0.23411644, 0.4218227, 0.57048494, 0.68662244, 0.9727953], 1e-6)
        tried.save(tmp_path / "tried.model")
        assert tried.root_function.attributes["rngOffset"] == 52

    @pytest.mark.parametrize(("duplicates", "cntk", "offset"), [
        (True, [[3, 3, 6, 1, 5, 9, 6], [2, 7, 7, 2, 7, 8, 4], [6, 4, 5, 8, 6, 4, 5]], 21),
        (False, [[3, 6, 1, 5, 9, 2, 7], [7, 2, 8, 4, 6, 5, 3], [3, 2, 8, 7, 6, 4, 9]], 37),
    ])
    def test_classes_drawn_with_constant_weights_are_those_of_cntk(self, duplicates, cntk, offset, tmp_path):
        drawn = C.random_sample(np.arange(1, 11, dtype=np.float32), 7, duplicates, seed=1)
        assert [np.asarray(drawn.eval().todense()).argmax(-1).tolist() for _ in cntk] == cntk
        drawn.save(tmp_path / "drawn.model")
        assert drawn.root_function.attributes["rngOffset"] == offset

    def test_too_few_classes_are_an_error(self):
        with pytest.raises(ValueError, match="3 classes cannot be drawn, for only 2 have a weight"):
            C.random_sample(np.float32([0, 1, 1, 0]), 3, False).eval()

    @pytest.mark.parametrize(("weights", "n"), [([1, 2, 3], 3), ([1, 2, 3], 0), ([1, -1], 1)])
    def test_samples_that_cannot_be_drawn_are_errors(self, weights, n):
        with pytest.raises(ValueError):
            C.random_sample(weights, n, False)


def test_seeds_are_counted_or_fixed():
    C.cntk_py.set_fixed_random_seed(7)
    assert C.dropout([1.0], 0.5).root_function.attributes["rngSeed"] == 7
    assert random.uniform(2).root_function.attributes["rngSeed"] == 7
    C.cntk_py.reset_random_seed(3)
    assert [random.uniform(2).root_function.attributes["rngSeed"] for _ in range(2)] == [3, 4]
    C.cntk_py.reset_random_seed(0)


def test_numbers_of_a_sequence_do_not_depend_on_how_far_it_is_padded():
    def drawn(*lengths):
        x = C.sequence.input_variable(2)
        return C.random.normal_like(x, seed=3).eval({x: [np.zeros((n, 2), np.float32) for n in lengths]})[0]

    np.testing.assert_array_equal(drawn(3), drawn(5)[:3])


def test_a_stream_continues_from_a_large_offset():
    """As in the file of a model that has drawn many numbers."""
    far = 2**21 + 5
    drawn = random.uniform(4, dtype=np.float64, seed=3)
    drawn.root_function.node_attributes["rngOffset"] = far
    np.testing.assert_array_equal(drawn.eval(), MersenneTwister64(3).uniform(far + 4)[far:])
