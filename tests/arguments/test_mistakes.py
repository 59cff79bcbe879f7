"""Arguments that can only be mistakes are errors at once; what CNTK computes something sensible with is accepted."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pytest

import cntkjax as C
from cntkjax import _typing
from cntkjax.graph import explaining
from cntkjax.graph.annotations import parameters_of
from cntkjax.graph.arguments import checked

x, two = C.input_variable(3, name="x"), C.input_variable(2)
w = C.parameter(3, init=1.0)


def trainer():
    return C.Trainer(None, C.reduce_sum(C.squared_error(x * w, 0)), C.sgd([w], 0.1))


MISTAKES = {  # what was passed: the call, what the message says
    "a learning rate that is NaN": (lambda: C.sgd([w], math.nan), "sgd: .*nan is not a number"),
    "NaN among learning rates": (lambda: C.learning_parameter_schedule([0.1, math.nan]), "nan is not a number"),
    "NaN after some epochs": (lambda: C.learning_parameter_schedule([(2, 0.1), (1, math.nan)]), "nan"),
    "momentum above 1": (lambda: C.momentum_sgd([w], 0.1, 1.5), "momentum_sgd: .*momentum = 1.5 is above 1"),
    "a schedule of such momentums": (lambda: C.momentum_schedule([0.9, 2]), "momentum = 2.0 is above 1"),
    "variance momentum above 1": (lambda: C.adam([w], 0.1, 0.9, variance_momentum=1.2), "momentum = 1.2 is above 1"),
    "a negative time constant": (lambda: C.momentum_as_time_constant_schedule(-5), "momentum = -5: a time constant"),
    "a stride of 0": (lambda: x[::0], "a stride of 0 selects nothing"),
    "a negative size of a stream": (lambda: C.io.StreamDef("x", shape=-3), "StreamDef: shape = -3"),
    "a text as size of a stream": (lambda: C.io.StreamDef("x", shape="b"), "StreamDef: shape = 'b'"),
    "topN above the classes": (lambda: C.classification_error(two, two, topN=9), "topN = 9 of 2 classes"),
    "a layer above all memory": (lambda: C.layers.Dense(2**40), "Dense: .* 1,099,511,627,776 elements"),
    "a weight above all memory": (lambda: C.layers.Dense(2**37)(C.input_variable(9)), "'W'.* limits it"),
    "a negative layer": (lambda: C.layers.Dense(-3), "Dense: the shape is .* not -3"),
    "a layer of no units": (lambda: C.layers.Dense(0), "Dense: the shape is .* not 0"),
    "a text as layer": (lambda: C.layers.Dense("a"), "Dense: the shape is .* not 'a'"),
    "a text as parameter": (lambda: C.parameter("x"), "parameter: .* not 'x'"),
    "no minibatch": (lambda: trainer().train_minibatch(None), r"Trainer.train_minibatch: Input\('x'.* NoneType"),
    "no model to debug": (lambda: C.debugging.debug_model(None), "debug_model: model = None"),
    "a negative seed": (lambda: C.dropout(x, 0.5, seed=-3), "dropout: seed = -3"),
    "a window of 2**40 steps": (lambda: C.layers.PastValueWindow(2**40, -2), "PastValueWindow: window_size"),
    "an empty file name": (lambda: C.relu(w).save(""), "Function.save: .* is empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_at_once(name):
    mistake, message = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=message):
        mistake()


ACCEPTED = {  # as in CNTK 2.7
    "a negative learning rate is gradient ascent": (lambda: C.learning_parameter_schedule(-0.1)[0], -0.1),
    "an infinite learning rate": (lambda: C.learning_parameter_schedule(math.inf)[0], math.inf),
    "a time constant that never ends": (lambda: C.momentum_as_time_constant_schedule(math.inf)[0], 1.0),
    "a size that is a whole float": (lambda: C.layers.Dense(4.0)(x).shape, (4,)),
    "no bias, as None": (lambda: len(C.layers.Dense(4, bias=None)(x).parameters), 1),
    "no name, as None": (lambda: C.relu(x, name=None).name, ""),
    "padding with NaN": (lambda: np.isnan(C.pad([1.0], [(1, 1)], constant_value=math.nan).eval()).tolist(),
                         [True, False, True]),
    "a stride of -1 reverses": (lambda: C.constant([1, 2, 3])[0:3:-1].eval().tolist(), [3, 2, 1]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_cntk_computes_with_is_accepted(name):
    compute, expected = ACCEPTED[name]
    assert compute() == expected


class TestErrorsOfOthers:
    def test_an_error_in_a_users_function_stays_what_it_is(self):
        def visitor(node):
            raise AttributeError("my own")

        with pytest.raises(AttributeError, match="^my own$"):
            C.logging.depth_first_search(C.relu(x), visitor)

    def test_a_wrong_number_of_arguments_is_pythons_error(self):
        with pytest.raises(TypeError, match=r"relu\(\) missing 1 required positional argument: 'x'"):
            C.relu()

    def test_the_cause_of_an_accident_is_kept(self):
        with pytest.raises(ValueError, match="find_by_name cannot be called with node = 3") as error:
            C.logging.find_by_name(3, "x")
        assert isinstance(error.value.__cause__, AttributeError)


@pytest.mark.parametrize(("accident", "kind"), [
    ("import zlib; zlib.no_such_function(3)", AttributeError), ("len(3)", TypeError), ("int('a')", ValueError),
    ("{}['no such key']", KeyError), ("(1).no_such_attribute", AttributeError),
])
def test_arguments_that_are_right_are_not_blamed_for_an_accident(accident, kind, monkeypatch):
    source = C.io.MinibatchSourceFromData({"x": np.ones((4, 2), np.float32)})
    inside = compile(accident, explaining.PACKAGE + "io/_reader.py", "exec")
    monkeypatch.setattr("cntkjax.io._user_source.np", _Raising(inside))
    with pytest.raises(kind) as error:
        source.next_minibatch(8)
    assert "cannot be called with" not in str(error.value) and "minibatch_size" not in str(error.value)


@pytest.mark.parametrize(("streams", "is_blamed"), [
    (lambda source: {C.input_variable(2): source.streams.x}, False), (lambda source: [source.streams.x], False),
    (lambda source: {C.input_variable(2): object()}, True),
])
def test_objects_of_the_package_are_not_blamed_for_an_accident(streams, is_blamed):
    source = C.io.MinibatchSourceFromData({"x": np.ones((4, 2), np.float32)})
    scope = {"__name__": "cntkjax.io._reader", "Collection": Collection}
    exec(compile("def read(streams: Collection): len(3)", explaining.PACKAGE + "io/_reader.py", "exec"), scope)
    with pytest.raises((TypeError, ValueError)) as error:
        checked(scope["read"], "read")(streams(source))
    assert ("read cannot be called with" in str(error.value)) == is_blamed


class _Raising:
    """In the place of NumPy: runs code that breaks down, in a module of the package's name."""

    def __init__(self, code):
        self._code = code

    def __getattr__(self, name):
        exec(self._code, {"__name__": "cntkjax.io._reader"})


@pytest.mark.parametrize(
    "annotation, accepted, refused",
    [
        ("int", [3, np.int8(3), 3.0, True], [2.5, "3", None, 2**70, math.nan, [3]]),
        ("float", [3, 2.5, np.float32(1), np.array(1.0), math.inf], ["3", None, math.nan, object(), 1j]),
        ("bool", [True, 0, None, np.True_], ["yes", [], 0.5, object()]),
        ("str | bytes | None", ["a", b"a", None], [3, ["a"]]),
        ("int | Sequence[int]", [3, (3, 4), [], range(3), np.array([3])], [[2.5], "34", {}, [None]]),
        ("Count | None", [1, 5, None], [0, -1, 1.5]),
        ("ArrayLike", [1, [1, 2], np.ones(2), 2.5], ["a", None, {}, [object()]]),
        ("Mapping[str, int]", [{}, {"a": 1}], [[], 3]),
        ("Callable[..., int]", [len], [3, "len"]),
        ("ElementType", [np.float32, "float", 1], []),
        ("UnknownName", [3, "a", None], []),
    ],
)
def test_annotations_decide_what_is_accepted(annotation, accepted, refused):
    names = {"Sequence": Sequence, "Mapping": Mapping, "Callable": Callable} | vars(_typing)
    scope = {}
    exec(f"def f(a: {annotation!r}): pass", names, scope)
    check = parameters_of(scope["f"]).annotations.get("a")
    assert not any(check.rejects(value) for value in accepted) if check else not refused
    assert all(check.rejects(value) for value in refused) if check else True
