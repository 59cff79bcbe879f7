"""Initial values: distributions as measured on CNTK 2.7, the same values for the same seed."""
import math

import numpy as np
import pytest

import cntkjax as C
from cntkjax import initializer as init
from cntkjax.graph import seed

SHAPE = (3, 5, 7, 11)

# (output_rank, filter_rank) -> fan_in, fan_in + fan_out of a parameter of SHAPE, from the spread of CNTK's values
FANS = {(None, None): (105, 116), (1, 1): (165, 242), (1, 2): (231, 616), (0, None): (1155, 1156), (0, 1): (1155, 1166),
        (0, 2): (1155, 1232), (2, None): (15, 92), (2, 1): (33, 418), (2, 2): (77, 1232), (3, None): (3, 388),
        (3, 1): (11, 1166), (-1, 1): (385, 418), (-1, 2): (385, 616), (-2, 2): (77, 1232)}

RANKED = {  # standard deviation at scale 1, and the limit in units of it (None: unbounded)
    "xavier": (lambda fan_in, both: math.sqrt(1 / fan_in), math.sqrt(3)),
    "glorot_uniform": (lambda fan_in, both: math.sqrt(2 / both), math.sqrt(3)),
    "glorot_normal": (lambda fan_in, both: math.sqrt(2 / both), None),
    "he_uniform": (lambda fan_in, both: math.sqrt(2 / fan_in), math.sqrt(3)),
    "he_normal": (lambda fan_in, both: math.sqrt(2 / fan_in), None),
}


@pytest.fixture(autouse=True)
def _fresh_seeds():
    seed.reset_random_seed()
    yield
    seed.reset_random_seed()


def ranks(output_rank, filter_rank):
    options = {"output_rank": output_rank, "filter_rank": filter_rank}
    return {key: rank for key, rank in options.items() if rank is not None}


def draw(initializer, shape=SHAPE, count=60_000, dtype=np.float32):
    """Many values of a parameter of this shape."""
    samples = [initializer.sample(shape, dtype) for _ in range(1 + count // math.prod(shape))]
    assert all(s.shape == shape and s.dtype == dtype for s in samples)
    return np.stack(samples).astype(np.float64).ravel()


@pytest.mark.parametrize("rank", FANS, ids=str)
def test_fans_are_those_of_cntk(rank):
    fan_in, fan_out = init.he_normal(**ranks(*rank)).fans(SHAPE)
    assert (fan_in, fan_in + fan_out) == FANS[rank]


@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("rank", [(None, None), (2, 1), (-1, 2)], ids=str)
def test_spread_follows_the_fans(name, rank):
    spread, limit = RANKED[name]
    expected = 2 * spread(*FANS[rank])
    values = draw(getattr(init, name)(2, **ranks(*rank)))
    assert values.std() == pytest.approx(expected, rel=0.02)
    assert values.mean() == pytest.approx(0, abs=0.02 * expected)
    if limit:
        assert 0.99 * limit * expected < np.abs(values).max() <= limit * expected * (1 + 1e-6)


@pytest.mark.parametrize(("initializer", "std", "limit"), [
    (init.uniform(0.5), 0.5 / math.sqrt(3), 0.5),
    (init.normal(0.5), 0.5, None),
    (init.normal(0.5, 2, 1), 0.5, None),
    (init.truncated_normal(0.5), 0.4398, 1.0),  # CNTK's measured 0.4391 and 0.99999
], ids=["uniform", "normal", "normal with ranks", "truncated_normal"])
def test_spread_without_fans(initializer, std, limit):
    values = draw(initializer)
    assert values.std() == pytest.approx(std, rel=0.01)
    assert values.mean() == pytest.approx(0, abs=0.01)
    if limit:
        assert 0.98 * limit < np.abs(values).max() <= limit


@pytest.mark.parametrize(("name", "first"), {  # CNTK 2.7: parameter((3, 2), init=name(0.7, seed=3))
    "uniform": [0.0822723806, -0.425930738, 0.126337782, -0.215083525, 0.0837138891, -0.194176227],
    "normal": [0.488711566, 0.103355721, 0.392057031, 0.33906132, 0.590124428, -0.43755126],
    "truncated_normal": [0.488711566, 0.103355721, 0.392057031, 0.33906132, 0.590124428, -0.43755126],
    "xavier": [0.0822723806, -0.425930738, 0.126337782, -0.215083525, 0.0837138891, -0.194176227],
    "glorot_uniform": [0.0901248828, -0.466583759, 0.138396114, -0.235612214, 0.0917039737, -0.212709412],
    "glorot_normal": [0.30908832, 0.0653678924, 0.247958645, 0.21444121, 0.373227447, -0.2767317],
    "he_uniform": [0.116350718, -0.60235703, 0.178668603, -0.304174036, 0.118389316, -0.274606645],
    "he_normal": [0.399031341, 0.0843895972, 0.320113242, 0.276842445, 0.48183459, -0.357259125],
}.items())
def test_values_are_those_that_cntk_draws(name, first):
    values = getattr(init, name)(0.7, seed=3).sample((3, 2), np.float32)
    np.testing.assert_array_equal(values.ravel(), np.array(first, np.float32))


def test_numbers_beyond_the_ziggurat_are_those_of_cntk():
    values = init.normal(1, seed=7).sample((4000,), np.float32)
    np.testing.assert_array_equal(values[[3476, 3851, 3999]], np.float32([3.6698017, -3.6351414, -0.96233463]))


def test_seeds_and_numbers_of_64_bits():
    values = init.he_normal(0.3, seed=2**40 + 5).sample((2, 2), np.float64)
    cntk = [[0.48474847800516785, -0.3348675054799111], [-0.07690576429250835, 0.44229525458724817]]
    np.testing.assert_allclose(values, cntk, rtol=1e-12)


def test_a_network_has_the_initial_parameters_of_cntk():
    layers = C.layers.Sequential([
        C.layers.Embedding(3), C.layers.Dropout(0.5), C.layers.Recurrence(C.layers.LSTM(2)), C.layers.Dense(2),
    ])
    parameters = layers(C.sequence.input_variable(4)).parameters
    assert [p.name for p in parameters] == ["W", "b", "b", "W", "H", "E"]
    cntk = [[0.699447632, -0.11309357, 0.230865955], [0, 0], [0, 0, 0], [0.596162617, 0.517333031, 0.41923061],
            [0.0910398811, -0.471320778, 0.139801174], [-0.629940271, 0.911275864, -0.852552533]]
    for parameter, first in zip(parameters, cntk, strict=True):
        np.testing.assert_array_equal(parameter.value.ravel()[:3], np.array(first, np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_values_have_the_requested_type(dtype):
    values = init.glorot_uniform(seed=1).sample((4, 3), dtype)
    assert values.dtype == dtype
    np.testing.assert_allclose(values, init.glorot_uniform(seed=1).sample((4, 3), dtype))


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0)])
def test_scalars_and_empty_parameters_get_values(shape):
    assert init.uniform(1).sample(shape, np.float32).shape == shape
    assert init.normal(1).sample(shape, np.float32).shape == shape
    assert init.truncated_normal(1).sample(shape, np.float32).shape == shape
    if shape:
        assert init.he_normal().sample(shape, np.float32).shape == shape


def test_the_same_seed_gives_the_same_values_and_another_seed_others():
    a, b, c = (init.normal(1, seed=s).sample((50,), np.float32) for s in (3, 3, 4))
    assert (a == b).all()
    assert (a != c).any()


def test_automatic_seeds_differ_and_repeat_after_a_reset():
    first = [init.uniform(1).sample((50,), np.float32) for _ in range(2)]
    seed.reset_random_seed()
    again = [init.uniform(1).sample((50,), np.float32) for _ in range(2)]
    assert (first[0] != first[1]).any()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[1], init.uniform(1, seed=1).sample((50,), np.float32))


def test_a_fixed_seed_gives_all_parameters_the_same_values():
    seed.set_fixed_random_seed(6)
    first, second = (init.uniform(1).sample((50,), np.float32) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, init.uniform(1, seed=6).sample((50,), np.float32))


def test_a_seed_is_chosen_when_the_parameter_is_created_not_when_its_shape_is_inferred():
    early = init.uniform(1).seeded()
    late = init.uniform(1).seeded()
    late_values, early_values = late.sample((9,), np.float32), early.sample((9,), np.float32)
    np.testing.assert_array_equal(early_values, init.uniform(1, seed=0).sample((9,), np.float32))
    np.testing.assert_array_equal(late_values, init.uniform(1, seed=1).sample((9,), np.float32))
    assert init.bilinear(3, 3).seeded() == init.bilinear(3, 3)


def test_descriptions_have_the_keys_of_the_model_format():
    auto, infer = 18446744073709551613, 2147483647
    assert dict(init.glorot_uniform()) == {"initializerType": "glorotUniform", "scale": 1.0, "outputRank": infer,
                                           "filterRank": infer, "randomSeed": auto}
    assert dict(init.normal(2, 1, 3, 4)) == {"initializerType": "normal", "scale": 2.0, "outputRank": 1,
                                             "filterRank": 3, "randomSeed": 4}
    assert dict(init.truncated_normal(0.3)) == {"initializerType": "TruncNormal", "scale": 0.3, "randomSeed": auto}
    assert dict(init.bilinear(3, 4)) == {"initializerType": "bilinear", "kernelWidth": 3, "kernelHeight": 4}


def test_an_initializer_is_recreated_from_its_description():
    original = init.he_uniform(2, 1, 1, 9)
    restored = init.Initializer(**original)
    np.testing.assert_array_equal(original.sample(SHAPE, np.float32), restored.sample(SHAPE, np.float32))
    with pytest.raises(ValueError, match="unknown initializer 'nonsense'"):
        init.Initializer(initializerType="nonsense")


def test_bilinear_interpolates_each_channel_by_itself():
    weights = init.bilinear(4, 4).sample((2, 2, 4, 4), np.float32)
    one = [[0.0625, 0.1875, 0.1875, 0.0625], [0.1875, 0.5625, 0.5625, 0.1875],
           [0.1875, 0.5625, 0.5625, 0.1875], [0.0625, 0.1875, 0.1875, 0.0625]]
    np.testing.assert_allclose(weights, np.einsum("ij,hw->ijhw", np.eye(2), one))
    third = init.bilinear(5, 5).sample((1, 1, 5, 5), np.float64)[0, 0, 2]
    np.testing.assert_allclose(third, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])


@pytest.mark.parametrize(("kernel", "shape", "message"), [
    ((3, 4), (1, 1, 3, 4), "must be square, not 4 x 3"),
    ((4, 4), (2, 1, 4, 4), "as many input as output channels"),
    ((4, 4), (1, 1, 5, 5), r"shape \(channels, channels, 4, 4\)"),
    ((4, 4), (4, 4), r"not \(4, 4\)"),
])
def test_bilinear_needs_a_square_filter_per_channel(kernel, shape, message):
    with pytest.raises(RuntimeError, match=message):
        init.bilinear(*kernel).sample(shape, np.float32)


@pytest.mark.parametrize(("rank", "shape"), [((1, 0), ()), ((1, 1), (29,)), ((-2, 1), (3, 5)), ((1, -1), (3, 5))])
def test_ranks_that_exceed_the_shape_are_an_error(rank, shape):
    with pytest.raises(ValueError, match=r"'heNormal': output rank -?\d and filter rank -?\d need a parameter"):
        init.he_normal(1, *rank).sample(shape, np.float32)


@pytest.mark.parametrize("make", [init.uniform, init.normal, init.truncated_normal, init.glorot_uniform])
@pytest.mark.parametrize("scale", [0, -0.5])
def test_a_scale_that_is_not_positive_is_an_error(make, scale):
    with pytest.raises(ValueError, match="scale must be positive"):
        make(scale)


def test_ranks_are_set_where_they_are_open():
    ranked = init.initializer_with_rank(init.he_normal(seed=7), -1, 2)
    assert (ranked["outputRank"], ranked["filterRank"], ranked["randomSeed"]) == (-1, 2, 7)
    assert init.initializer_with_rank(init.uniform(1), 1, 2) == init.uniform(1)
    assert init.initializer_with_rank(init.he_normal(), 1)["filterRank"] == init.SentinelValueForInferParamInitRank
    with pytest.raises(ValueError, match="outputRank is 3 already"):
        init.initializer_with_rank(init.glorot_uniform(output_rank=3), 1, 2)
    with pytest.raises(TypeError, match="needs an initializer"):
        init.initializer_with_rank(3, 1, 2)
