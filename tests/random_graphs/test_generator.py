"""The generator: reproducible, with a rule for everything that is public."""

import inspect

import pytest

import cntk as C

from .draft import Draft
from .generator import OBSERVED, TABLE, try_rule, write, write_pair
from .layer_rules import LEARNERS

PACKAGES = ("cntkjax.ops", "cntkjax.losses", "cntkjax.metrics", "cntkjax.layers")
MODULES = (C.ops, C.ops.sequence, C.losses, C.metrics, C.layers.layers, C.layers.sequence, C.layers.higher_order_layers)
RANDOM = "random numbers on the device, which are not CNTK's"
OWN = "not in CNTK 2.7"
GRAPHS = "needs graphs of labels: tests/primitives/test_ctc.py"
NATIVE = "needs a compiled library: tests/ops/test_native.py"
LEAF = "a leaf, which most programs have"

UNREACHED = {
    "as_composite": "a part of other functions", "custom_proxy_op": "a placeholder of converters",
    "input": "the old name of input_variable", "input_variable": LEAF,
    "output_variable": "for user functions", "associative_multi_arg": "sum, mean and splice call it",
    "load_model": "Function.load, which reload calls", "batch_normalization": "the layer BatchNormalization calls it",
    "dropout": RANDOM, "random_sample": RANDOM, "random_sample_inclusion_frequency": RANDOM, "nce_loss": RANDOM,
    "crop_automatic": "needs two paths from one image: tests/ops", "crop_automatic_with_ancestors": "needs two paths",
    "native_user_function": NATIVE, "register_native_user_function": NATIVE,
    "forward_backward": GRAPHS,
    "labels_to_graph": GRAPHS, "tan": "its gradient is wrong in CNTK: docs/compatibility.md", "gradient": OWN,
    "is_training": OWN,
    "optimized_rnnstack": "CNTK has it on GPUs only",
    "lattice_sequence_with_softmax": "needs lattices: tests/primitives/test_lattice.py",
}


def reached(name: str) -> bool:
    texts = [r.template for r in TABLE.values()]
    return any(f"C.{module}{name}(" in t for t in texts for module in ("", "layers.", "sequence.", "losses."))


def test_the_same_seed_writes_the_same_program():
    for seed in (3, 4):
        assert write(seed)[0].lines() == write(seed)[0].lines()


@pytest.mark.parametrize("rule", ["softmax", "Dense"])
def test_pairs_show_each_observation_of_each_rule(rule):
    first = list(TABLE).index(rule)
    programs = [write_pair(first + row * len(TABLE)) for row in range(len(OBSERVED))]
    assert [p.observations for p in programs] == [(name,) for name in OBSERVED]
    assert all(f"{rule}(" in p.statements[-1].text for p in programs)


def test_every_public_operation_loss_metric_and_layer_is_reached_or_has_a_reason():
    public = {
        name for module in MODULES for name, f in vars(module).items()
        if inspect.isfunction(f) and not name.startswith("_") and f.__module__.rpartition(".")[0] in PACKAGES
        and name in getattr(module, "__all__", [name])
    }
    assert {name for name in public if not reached(name)} == set(UNREACHED)


def test_every_learner_is_reached():
    own = {n for n, f in inspect.getmembers(C.learners, inspect.isfunction) if f.__module__.endswith("._learners")}
    settings = {"default_unit_gain_value", "set_default_unit_gain_value"}
    assert set(LEARNERS) == own - settings | {"universal"}


@pytest.mark.parametrize("name", TABLE)
def test_a_rule_writes_statements_that_build(name):
    for seed in range(20):
        draft = Draft(seed, "float32")
        made = try_rule(draft, name)
        if made is not None:
            assert draft.type_of(made).dtype.startswith("float")
            return
    pytest.fail(f"refused: {draft.refused[-1][-1].text if draft.refused else 'no operand fits'}")

