"""Every public name is documented: what it does, and for what people call most, shapes and an example that runs."""

import doctest
import inspect

import pytest

import cntkjax as C

MAIN = ("ops", "losses", "metrics", "layers", "random", "learners", "initializer", "io", "train", "eval")
WITHOUT_EXAMPLE = {
    "UntestedBranchError": "an exception that users do not raise",
    "SequenceOverMeta": "the class of a type whose own example is in SequenceOver",
    "lattice_sequence_with_softmax": "needs the files of a speech recognizer; tests/losses has them",
    "Deserializer": "a protocol; the example is that of the module",
    "TrainingSession": "the example is that of training_session(), which returns one",
    "DistributedLearner": "the examples are those of the functions that return one",
}
OF_PYTHON = {  # functions of ops that work on Python's objects, which have no shape
    "BlockFunction", "get_data_type", "get_python_function_arguments", "is_byte_buffer", "load_model",
    "map_if_possible", "register_native_user_function", "sanitize_variables_or_functions",
}


@pytest.fixture(scope="module")
def described(reference_module):
    """The functions and classes that the reference describes, by the path under which it does."""
    homes, result = {}, {}
    for name in reference_module.module_names():
        module = reference_module.import_module(name)
        for member, value in reference_module.public_names(module, homes):
            if reference_module.is_object(value) and id(value) not in homes:
                homes[id(value)] = f"{name}.{member}"
                result[f"{name}.{member}"] = value
    return result


def in_main_modules(described):
    for path, value in described.items():
        if path.split(".")[1] in MAIN and path.startswith("cntk."):
            yield path, path.rpartition(".")[2], inspect.getdoc(value) or ""


def documentation(value):
    """A class does not inherit the documentation of its base."""
    return value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)


def test_every_function_and_class_is_documented(described):
    assert len(described) > 350 and described["cntk.ops.plus"] is C.plus
    assert [path for path, value in described.items() if not documentation(value)] == []


def test_every_public_member_of_a_class_is_documented(described):
    missing = []
    for path, cls in described.items():
        for name, member in vars(cls).items() if inspect.isclass(cls) else ():
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            is_described = inspect.isroutine(function) or isinstance(function, property)
            if is_described and not name.startswith("_") and not inspect.getdoc(function):
                missing.append(f"{path}.{name}")
    assert missing == []


def test_what_is_called_most_has_an_example(described):
    parse = doctest.DocTestParser().get_examples
    without = {name for _, name, text in in_main_modules(described) if not parse(text)}
    assert without == set(WITHOUT_EXAMPLE)


def test_operations_state_their_shapes(described):
    names = [(path, name, text) for path, name, text in in_main_modules(described) if path.startswith("cntk.ops")]
    without = {name for path, name, text in names if "Shapes:" not in text and not inspect.isclass(described[path])}
    assert without == OF_PYTHON
