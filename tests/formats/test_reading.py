"""Damaged records of models are errors that name the reason."""

import copy
import random

import pytest

import cntkjax as C
from cntkjax.formats.dictionary import FormatError, SizeT, StoredShape, encode
from cntkjax.formats.model import load
from tests.formats.networks import blocks, dense, record_of, recurrence


# ---- damage
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda m: m.update(type="Other"), "holds no function"),
        (lambda m: m.update(Learners=[]), "the state of a trainer"),
        (lambda m: m.update(root="Nothing1"), "no function 'Nothing1'"),
        (lambda m: m.update(version=SizeT(9)), "version 9; the newest"),
        (lambda m: m.pop("inputs"), "inputs is missing"),
        (lambda m: m["primitive_functions"].append(m["primitive_functions"][0]), "two functions have the uid"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "two variables have the uid"),
        (lambda m: m["primitive_functions"][0].update(op=SizeT(999)), "'Times.*': operation number 999 is not known"),
        (lambda m: m["primitive_functions"][0].update(op=SizeT(57)), "a block needs the graph inside"),
        (lambda m: m["primitive_functions"][0]["inputs"].pop(), r"\(Times\) does not fit its inputs"),
        (lambda m: m["primitive_functions"][0].update(inputs=["Gone1"]), "its input 'Gone1' is not in the file"),
        (lambda m: m["primitive_functions"][0]["attributes"].update(outputRank="1"), "attribute outputRank is '1'"),
        (lambda m: m["primitive_functions"][1]["inputs"].__setitem__(0, "Tanh_Output_"), "is not in the file"),
        (lambda m: m["inputs"][0].update(kind=SizeT(1)), "of kind 1"),
        (lambda m: m["inputs"][0].update(shape=StoredShape((99,))), "has shape"),
        (lambda m: m["inputs"][0].update(data_type=SizeT(3)), "unknown element type 3"),
        (lambda m: m["inputs"][-1].update(dynamic_axis=[1]), "has entries that are not axes"),
    ],
)
def test_each_kind_of_damage_is_named(tmp_path, damage, reason):
    record = record_of(dense()[0], tmp_path)
    record["inputs"].sort(key=lambda v: "value" not in v)
    damage(record)
    with pytest.raises(FormatError, match=reason):
        load(encode(record))


def test_a_cycle_without_any_known_variable_is_rejected(tmp_path):
    record = record_of(dense()[0], tmp_path)
    first, *_, last = record["primitive_functions"]
    first["inputs"] = [last["uid"] + "_Output_0"] * 2
    with pytest.raises(FormatError, match="is not in the file"):
        load(encode(record))


def test_a_block_that_contains_itself_is_rejected(tmp_path):
    record = record_of(blocks()[0], tmp_path)
    for block in [f for f in record["primitive_functions"] if "block_function_composite" in f]:
        broken = copy.deepcopy(record)
        (target,) = [f for f in broken["primitive_functions"] if f["uid"] == block["uid"]]
        target["block_function_composite"]["root"] = broken["root"]
        with pytest.raises(FormatError, match="part of another graph too"):
            load(encode(broken))


def test_damaged_records_only_raise_format_errors(tmp_path):
    wholes = [record_of(build()[0], tmp_path) for build in (recurrence, blocks)]
    rng = random.Random(3)
    for _ in range(300):
        broken = copy.deepcopy(rng.choice(wholes))
        place = broken
        while True:  # walk to some entry, and replace, remove or double it
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = rng.choice(list(keys))
            if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.1:
                break
            place = place[key]
        value = rng.choice([0, "", "Times1", SizeT(3), [], {}, StoredShape((1,)), None, broken["root"]])
        place[key] = value if rng.random() < 0.8 else [place[key]] * 2
        try:
            load(encode(broken))
        except FormatError as error:
            assert "bytes>" in str(error)


# ---- older files
def test_models_before_version_3_hold_the_state_of_random_numbers_apart(tmp_path):
    """What CNTK 2.7 makes of such files."""
    record = record_of(C.dropout(C.input_variable(3), 0.5, seed=7, name="drop"), tmp_path)
    (node,) = [f for f in record["primitive_functions"] if "rngSeed" in f["attributes"]]
    record["version"] = SizeT(2)
    record["state"] = {node["uid"]: {"rng_seed": SizeT(77), "rng_offset": SizeT(5)}}
    attributes = load(encode(record)).find_by_name("drop").attributes
    assert (attributes["rngSeed"], attributes["rngOffset"]) == (77, 5)
    del node["attributes"]["rngSeed"], node["attributes"]["rngOffset"]
    record["state"] = {}
    assert load(encode(record)).find_by_name("drop").attributes["rngOffset"] == 0
    record["state"] = {node["uid"]: {"rng_seed": SizeT(77)}}
    with pytest.raises(FormatError, match="rng_offset is missing"):
        load(encode(record))


def test_batch_normalization_without_a_number_of_samples_begins_at_0(tmp_path):
    """As in models of CNTK 2.0; what CNTK 2.7 makes of them: the first minibatch trained on replaces the statistics."""
    x = C.input_variable(2)
    record = record_of(C.layers.BatchNormalization(normalization_time_constant=100)(x), tmp_path)
    (block,) = [f for f in record["primitive_functions"] if "block_function_composite" in f]
    (node,) = [f for f in record["primitive_functions"] if f is not block]
    node["version"], count = SizeT(3), node["inputs"].pop()
    block["inputs"].remove(count)
    record["inputs"] = [v for v in record["inputs"] if v["uid"] != count]
    model = load(encode(record))
    names = [v.name for v in model.root_function.inputs]
    assert names == ["scale", "bias", "aggregate_mean", "aggregate_variance", "", ""]
    assert [c.value.tolist() for c in model.constants] == [[0, 0], [0, 0], 0]
    trainer = C.Trainer(model, C.reduce_sum(model), C.sgd(model.parameters, C.learning_parameter_schedule(0)))
    trainer.train_minibatch([[1, 2], [3, 6]])
    assert [c.value.tolist() for c in model.constants] == [[2, 4], [2, 8], 2]
