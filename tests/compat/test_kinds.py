"""Members of public and compiled classes are methods, properties or static where they are in CNTK 2.7.

`kinds.json` is what CNTK's classes say, without names that begin with an underscore.
"""

import functools
import importlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import cntk
from cntkjax.compat import cntk_py

KINDS = json.loads((Path(__file__).parent / "kinds.json").read_text())
# Methods there, here values that can be called too.
BOTH = {"Axis.is_dynamic_axis", "DistributedLearner.parameters", "UserLearner.parameters"}


def kind(cls: type, name: str) -> str:
    """method, static, property (other attributes too) or type."""
    member = inspect.getattr_static(cls, name, getattr(cls, name))
    if "base" in getattr(member, "__dict__", ()):  # delegated to the class whose object is wrapped
        return kind(member.base, name)
    if isinstance(member, (staticmethod, classmethod)):
        return "static"
    if isinstance(member, (property, functools.cached_property)):
        return "property"
    if inspect.isclass(member):
        return "type"
    return "method" if callable(member) else "property"


def classes() -> list[tuple[str, type]]:
    """Those of the table; where a compiled class is the public one here, its base, or creates it, that one counts."""
    table = [(n, getattr(importlib.import_module(n.rpartition(".")[0]), n.rpartition(".")[2])) for n in KINDS]
    public = {base for c in vars(cntk).values() if inspect.isclass(c) for base in c.__mro__}
    return [(n, c) for n, c in table if "cntk_py" not in n or not (c in public or hasattr(c, "public"))]


@pytest.mark.parametrize(("name", "cls"), classes(), ids=str)
def test_members_are_of_the_same_kind(name, cls):
    shared = {(m, k) for k, members in KINDS[name].items() for m in members.split() if hasattr(cls, m)}
    different = {f"{cls.__name__}.{m}": (k, kind(cls, m)) for m, k in shared if kind(cls, m) != k}
    assert different.keys() <= BOTH, different


def test_what_is_both_a_value_and_a_method():
    p = cntk.parameter(2)
    learner = cntk.sgd([p], cntk.learning_parameter_schedule(0.1))
    distributed = cntk.data_parallel_distributed_learner(learner)
    assert distributed.parameters == distributed.parameters() == (p,)
    assert cntk.Axis.default_batch_axis().is_dynamic_axis and cntk.Axis("words").is_dynamic_axis() is True


def test_members_of_a_saved_state_are_methods():
    """They were properties once."""
    assert callable(cntk_py.BackPropState.device) and callable(cntk_py.BackPropState.function)


def test_members_of_the_compiled_classes_take_their_arguments_by_cntks_names():
    C = cntk
    view, f = C.NDArrayView.from_dense(np.ones((2, 3), np.float32)), C.relu(C.input_variable(2))
    assert view.alias(readOnly=True).is_read_only and view.as_shape(newShape=(6,)).shape == (6,)
    assert C.Value(np.ones(2, np.float32)).alias(readOnly=True).is_read_only
    assert f.as_string(doNotInferOutputs=True) == repr(f)
    assert C.constant(1).clone_as(dataType=C.cntk_py.DataType_Double).dtype == np.float64
    C.sgd([C.parameter(2)], 0.1).add_progress_writers(progressWriters=[])
    mask = C.cntk_py.NDMask((2, 2))
    mask.invalidate_section(sectionOffset=(0, 0), sectionShape=(1, 1))
    assert mask.masked_count() == 1
    communicator = C.train.distributed.mpi_communicator()
    communicator.aggregate_in_place(values=[view], sendToWorkers=communicator.workers())
